//! The rows that outside programs print as JSON, without what changes by itself.

use std::net::Ipv6Addr;

use linux::{Mac, Netns};
use serde_json::Value;

use crate::judge::run;

/// Names in the programs' JSON for counters, timers, states that settle later, and numbers that the kernel
/// assigns in sequence.
const VOLATILE: &[&str] = &[
    "age",
    "bytes",
    "carrier",
    "expires",
    "forward_delay_timer",
    "gc_timer",
    "handle",
    "hello_timer",
    "hold_timer",
    "ifindex",
    "link_index",
    "link_netnsid",
    "message_age_timer",
    "metainfo",
    "operstate",
    "packets",
    "preferred_life_time",
    "tcn_timer",
    "tentative",
    "topology_change",
    "topology_change_detected",
    "topology_change_timer",
    // A bridge takes these from its ports, and keeps them when the ports are gone.
    "tso_max_segs",
    "tso_max_size",
    "used",
    "valid_life_time",
];

/// Flags of links and routes that follow the carrier after a while.
const OF_CARRIER: &[&str] = &["NO-CARRIER", "LOWER_UP", "RUNNING", "linkdown"];

/// The rows that a program prints as a JSON array. No output counts as an empty array.
pub(super) fn list(netns: &Netns, program: &str, arguments: &[&str]) -> Vec<Value> {
    json_arrays(&run(netns, program, arguments)).pop().unwrap_or_default()
}

/// The rows of each JSON array in `text`.
pub(super) fn json_arrays(text: &str) -> Vec<Vec<Value>> {
    let values = serde_json::Deserializer::from_str(text).into_iter();
    values
        .map(|value| match value.expect("asked for JSON") {
            Value::Array(rows) => rows
                .into_iter()
                .map(steady)
                .filter(|row| row.as_object().is_none_or(|fields| !fields.is_empty()))
                .collect(),
            row => vec![steady(row)],
        })
        .collect()
}

pub(super) fn list_nft(netns: &Netns) -> Vec<Value> {
    let ruleset = list(netns, "nft", &["-j", "list", "ruleset"]);
    let rows = ruleset.into_iter().filter_map(|mut ruleset| ruleset.get_mut("nftables").map(Value::take));
    rows.flat_map(|rows| rows.as_array().cloned().unwrap_or_default()).collect()
}

/// The value without its volatile parts.
fn steady(value: Value) -> Value {
    match value {
        Value::Object(mut fields) => {
            if let Some(Value::Array(flags)) = fields.get_mut("flags") {
                flags.retain(|flag| !flag.as_str().is_some_and(|flag| OF_CARRIER.contains(&flag)));
            }
            let lasting = fields.into_iter().filter(|(name, _)| !VOLATILE.contains(&name.as_str()));
            Value::Object(lasting.map(|(name, value)| (name, steady(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(steady).collect()),
        plain => plain,
    }
}

/// False for rows that the kernel adds later by itself. These are the local routes of IPv6, which follow the
/// check of an address (`addrconf_dad_work`, even without duplicate address detection), and the routes of a
/// link's own address and of multicast, which follow the carrier. Forwarding entries of multicast groups come
/// and go with addresses, and others are learnt from packets. An address that was left behind still shows
/// among the addresses of its link.
pub(super) fn is_lasting(kind: &str, row: &Value) -> bool {
    let starts = |field: &str, prefix| row[field].as_str().is_some_and(|text| text.starts_with(prefix));
    match kind {
        "fdb" => row["state"] == "permanent" && !starts("mac", "33:33:") && !starts("mac", "01:00:5e:"),
        "route6" if row["protocol"] == "kernel" => row["table"] != "local" && row["dst"] != "fe80::/64",
        _ => true,
    }
}

/// The link-local address that the kernel derives from an Ethernet address (RFC 4291, appendix A).
pub(super) fn link_local(mac: &str) -> Option<Ipv6Addr> {
    let Mac([a, b, c, d, e, f]) = mac.parse().ok()?;
    Some(Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
}

pub(super) fn parsed(address: &Value) -> Option<Ipv6Addr> {
    address.as_str()?.parse().ok()
}

/// The leaves of a value with their paths, so that a diff shows the one field that differs. A link's arrays,
/// such as its addresses, become rows.
pub(super) fn flat(path: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, value)| flat(&format!("{path}.{name}"), value)).collect()
        }
        Value::Array(rows) => rows.iter().map(|row| (path.to_owned(), row.to_string())).collect(),
        plain => vec![(path.to_owned(), plain.to_string())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volatile_fields_are_left_out_at_any_depth() {
        let value = serde_json::json!({"ifindex": 3, "a": [{"handle": 7, "b": 1}]});
        assert_eq!(steady(value), serde_json::json!({"a": [{"b": 1}]}));
    }

    #[test]
    fn what_follows_the_carrier_is_left_out_and_nothing_else() {
        let route = |fields: &str| -> Value { serde_json::from_str(fields).unwrap() };
        let route6 = |fields: &str| is_lasting("route6", &route(fields));
        assert!(!route6(r#"{"type":"local","dst":"fd00::1","table":"local","protocol":"kernel"}"#));
        assert!(!route6(r#"{"type":"multicast","dst":"ff00::/8","table":"local","protocol":"kernel"}"#));
        assert!(!route6(r#"{"dst":"fe80::/64","protocol":"kernel"}"#));
        assert!(route6(r#"{"dst":"fd00::/64","protocol":"kernel"}"#));
        assert!(route6(r#"{"dst":"fe80::/64"}"#), "a user added it");
        assert!(route6(r#"{"type":"local","dst":"fd00::1","table":"local"}"#), "a user added it");
        let flags = serde_json::json!({"flags": ["UP", "LOWER_UP", "linkdown", "onlink"]});
        assert_eq!(steady(flags), serde_json::json!({"flags": ["UP", "onlink"]}));
        let own = link_local("66:c1:8e:b5:49:be").unwrap();
        assert_eq!(own.to_string(), "fe80::64c1:8eff:feb5:49be");
    }
}
