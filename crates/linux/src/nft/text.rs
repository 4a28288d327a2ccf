//! Tables as a person would type them: the format that `nft list table` prints and `nft -f` reads.

use std::fmt::Write;

use ipnet::IpNet;

use super::{Base, Chain, Match, Rule, Table, Verdict};

impl Table {
    /// The table in nft's language, with a line's end after each line.
    pub fn to_text(&self) -> String {
        let mut text = format!("table {} {} {{\n", self.family.name(), self.name);
        let chains: Vec<String> = self.chains.iter().map(|chain| self.chain(chain)).collect();
        text += &chains.join("\n");
        text += "}\n";
        text
    }

    fn chain(&self, chain: &Chain) -> String {
        let mut text = format!("\tchain {} {{\n", chain.name);
        if let Some(base) = &chain.base {
            let Base { kind, hook, priority } = base;
            let (kind, hook) = (kind.name(), hook.name());
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\t\ttype {kind} hook {hook} priority {priority}; policy accept;");
        }
        for rule in &chain.rules {
            let _ = writeln!(text, "\t\t{}", self.rule(rule));
        }
        text + "\t}\n"
    }

    fn rule(&self, rule: &Rule) -> String {
        let mut words: Vec<String> = rule.matches.iter().map(|condition| self.condition(condition)).collect();
        words.push(verdict(&rule.then));
        words.join(" ")
    }

    fn condition(&self, condition: &Match) -> String {
        let family = self.family.name();
        match condition {
            Match::Saddr { not, net } => format!("{family} saddr {}{}", unless(*not), prefix(net)),
            Match::Daddr { not, net } => format!("{family} daddr {}{}", unless(*not), prefix(net)),
            Match::Iifname { not, name } => format!("iifname {}\"{name}\"", unless(*not)),
            Match::Oifname { not, name } => format!("oifname {}\"{name}\"", unless(*not)),
            Match::TcpDport(port) => format!("tcp dport {port}"),
            Match::TcpSport(port) => format!("tcp sport {port}"),
            Match::UdpDport(port) => format!("udp dport {port}"),
            Match::DaddrIsLocal => "fib daddr type local".to_owned(),
            Match::Established => "ct state established,related".to_owned(),
        }
    }
}

fn unless(not: bool) -> &'static str {
    if not { "!= " } else { "" }
}

/// A prefix that is one address is written as that address.
pub(super) fn prefix(net: &IpNet) -> String {
    let net = net.trunc();
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Accept => "accept".to_owned(),
        Verdict::Drop => "drop".to_owned(),
        Verdict::Return => "return".to_owned(),
        Verdict::Notrack => "notrack".to_owned(),
        Verdict::Jump(chain) => format!("jump {chain}"),
        Verdict::Masquerade { random: false } => "masquerade".to_owned(),
        Verdict::Masquerade { random: true } => "masquerade fully-random".to_owned(),
        Verdict::Dnat { to, port } if to.is_ipv6() => format!("dnat to [{to}]:{port}"),
        Verdict::Dnat { to, port } => format!("dnat to {to}:{port}"),
    }
}
