//! Rules that need connection tracking, and would stop working with NOTRACK.

use linux::Netns;
use linux::xtables;
use serde_json::Value;

/// Expressions of nftables that need connection tracking.
const WORDS: [&str; 7] = [
    "\"type\":\"nat\"",
    "{\"ct\":",
    "\"ct count\":",
    "\"ct helper\":",
    "\"masquerade\"",
    "\"dnat\"",
    "\"snat\"",
];

/// Matches and targets of iptables, legacy or nft, that need connection tracking. `CT` is not among them, since
/// `--notrack` itself is one.
const EXTENSIONS: [&str; 15] = [
    "conntrack",
    "state",
    "connmark",
    "connbytes",
    "connlabel",
    "connlimit",
    "helper",
    "cluster",
    "MASQUERADE",
    "SNAT",
    "DNAT",
    "REDIRECT",
    "NETMAP",
    "CONNMARK",
    "SYNPROXY",
];

/// What needs connection tracking in a namespace, and how to list it; `None` if nothing does.
pub(crate) fn who_asks(netns: &Netns) -> Result<Option<String>, linux::Error> {
    let rules = linux::nft::dump(netns)?;
    let text = rules.to_string();
    if WORDS.iter().any(|word| text.contains(word)) {
        return Ok(Some(
            "rules of this namespace need connection tracking, for address translation or state (`nft list ruleset`)"
                .to_owned(),
        ));
    }
    if let Some(name) = of_iptables_nft(&rules) {
        return Ok(Some(format!(
            "rules of this namespace need connection tracking for {name} (`iptables-nft-save`, `ip6tables-nft-save`)"
        )));
    }
    for table in netns.run(xtables::legacy_tables)?? {
        let program = if table.ipv6 { "ip6tables-legacy" } else { "iptables-legacy" };
        if let Some(name) = table.extensions.iter().find(|name| EXTENSIONS.contains(&name.as_str())) {
            return Ok(Some(format!(
                "rules of this namespace need connection tracking for {name} in table {0} of {program} (`{program} -t {0} -S` \
                 shows them): take them out first, if they are not needed",
                table.name
            )));
        }
    }
    Ok(None)
}

/// The first such extension in rules of iptables-nft, which nft shows as `{"xt": {"name": …}}`.
fn of_iptables_nft(rules: &Value) -> Option<&str> {
    let own = rules["xt"]["name"].as_str().filter(|name| EXTENSIONS.contains(name));
    own.or_else(|| match rules {
        Value::Array(list) => list.iter().find_map(of_iptables_nft),
        Value::Object(object) => object.values().find_map(of_iptables_nft),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::of_iptables_nft;

    #[test]
    fn extensions_of_iptables_are_found_in_rules() {
        let rule =
            |name: &str| json!([{ "rule": { "expr": [{ "xt": { "type": "match", "name": name } }] } }]);
        assert_eq!(of_iptables_nft(&rule("conntrack")), Some("conntrack"));
        assert_eq!(of_iptables_nft(&rule("comment")), None);
        // Before 1.0.6 nft printed no name.
        assert_eq!(of_iptables_nft(&json!([{ "xt": null }])), None);
    }
}
