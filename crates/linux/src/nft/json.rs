//! Tables as the JSON that `nft -j` reads (libnftables-json(5)).

use ipnet::IpNet;
use serde_json::{Value, json};

use super::text::prefix;
use super::{Chain, Match, Rule, Table, Verdict};

impl Table {
    /// The commands that make the table with all that is in it, as one transaction. They fail if there is a table of
    /// that name.
    pub fn to_json(&self) -> Value {
        let mut commands =
            vec![json!({"create": {"table": {"family": self.family.name(), "name": self.name}}})];
        // First all chains, then the rules, so that a jump may lead anywhere.
        commands.extend(self.chains.iter().map(|chain| json!({"add": {"chain": self.chain_json(chain)}})));
        for chain in &self.chains {
            let rules = chain.rules.iter().map(|rule| json!({"add": {"rule": self.rule_json(chain, rule)}}));
            commands.extend(rules);
        }
        json!({ "nftables": commands })
    }

    fn chain_json(&self, chain: &Chain) -> Value {
        let mut value = json!({"family": self.family.name(), "table": self.name, "name": chain.name});
        if let Some(base) = &chain.base {
            value["type"] = base.kind.name().into();
            value["hook"] = base.hook.name().into();
            value["prio"] = base.priority.into();
            value["policy"] = "accept".into();
        }
        value
    }

    fn rule_json(&self, chain: &Chain, rule: &Rule) -> Value {
        let conditions = rule.matches.iter().map(|condition| self.condition_json(condition));
        let expressions: Vec<Value> = conditions.chain([verdict(&rule.then)]).collect();
        json!({"family": self.family.name(), "table": self.name, "chain": chain.name, "expr": expressions})
    }

    fn condition_json(&self, condition: &Match) -> Value {
        let field = |field: &str| json!({"payload": {"protocol": self.family.name(), "field": field}});
        match condition {
            Match::Saddr { not, net } => compare(*not, &field("saddr"), &net_json(net)),
            Match::Daddr { not, net } => compare(*not, &field("daddr"), &net_json(net)),
            Match::Iifname { not, name } => compare(*not, &meta("iifname"), &json!(name.as_str())),
            Match::Oifname { not, name } => compare(*not, &meta("oifname"), &json!(name.as_str())),
            Match::TcpDport(port) => {
                compare(false, &json!({"payload": {"protocol": "tcp", "field": "dport"}}), &json!(port))
            }
            Match::TcpSport(port) => {
                compare(false, &json!({"payload": {"protocol": "tcp", "field": "sport"}}), &json!(port))
            }
            Match::UdpDport(port) => {
                compare(false, &json!({"payload": {"protocol": "udp", "field": "dport"}}), &json!(port))
            }
            Match::DaddrIsLocal => {
                compare(false, &json!({"fib": {"result": "type", "flags": ["daddr"]}}), &json!("local"))
            }
            Match::Established => json!({"match": {
                "op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]
            }}),
        }
    }
}

fn meta(key: &str) -> Value {
    json!({"meta": {"key": key}})
}

fn compare(not: bool, left: &Value, right: &Value) -> Value {
    json!({"match": {"op": if not { "!=" } else { "==" }, "left": left, "right": right}})
}

fn net_json(net: &IpNet) -> Value {
    if net.prefix_len() == net.max_prefix_len() {
        return prefix(net).into();
    }
    json!({"prefix": {"addr": net.network().to_string(), "len": net.prefix_len()}})
}

fn verdict(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Accept => json!({"accept": null}),
        Verdict::Drop => json!({"drop": null}),
        Verdict::Return => json!({"return": null}),
        Verdict::Notrack => json!({"notrack": null}),
        Verdict::Jump(chain) => json!({"jump": {"target": chain}}),
        Verdict::Masquerade { random: false } => json!({"masquerade": null}),
        Verdict::Masquerade { random: true } => json!({"masquerade": {"flags": ["fully-random"]}}),
        Verdict::Dnat { to, port } => json!({"dnat": {"addr": to.to_string(), "port": port}}),
    }
}
