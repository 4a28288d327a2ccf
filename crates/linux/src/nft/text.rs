//! Tables as a person would type them: the format that `nft list table` prints and `nft -f` reads.

use std::fmt::{self, Write};

use ipnet::IpNet;

use super::{Base, Chain, Datum, Element, Family, Hook, Map, Match, PacketField, Rule, Statement, Table};

impl Table {
    /// The table in nft's language, with a line's end after each line.
    pub fn to_text(&self) -> String {
        let mut text = format!("table {} {} {{\n", self.family.name(), self.name);
        let maps = self.maps.iter().map(|map| self.map(map));
        let parts: Vec<String> = maps.chain(self.chains.iter().map(|chain| self.chain(chain))).collect();
        text += &parts.join("\n");
        text += "}\n";
        text
    }

    fn map(&self, map: &Map) -> String {
        let types = |parts: &[PacketField]| joined(parts.iter().map(|part| part.type_name(self.family)));
        let (kind, value) = match map.value.as_slice() {
            [] => ("set", String::new()),
            value => ("map", format!(" : {}", types(value))),
        };
        format!("\t{kind} {} {{\n\t\ttype {}{value}\n\t}}\n", map.name, types(&map.key))
    }

    fn chain(&self, chain: &Chain) -> String {
        let mut text = format!("\tchain {} {{\n", chain.name);
        if let Some(base) = &chain.base {
            let Base { kind, hook, priority } = base;
            let device = match hook {
                Hook::Ingress { device } => format!(" device \"{device}\""),
                _ => String::new(),
            };
            let (kind, hook) = (kind.name(), hook.name());
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\t\ttype {kind} hook {hook}{device} priority {priority}; policy accept;");
        }
        for rule in &chain.rules {
            let _ = writeln!(text, "\t\t{}", self.rule(rule));
        }
        text + "\t}\n"
    }

    fn rule(&self, rule: &Rule) -> String {
        let mut words: Vec<String> = rule.matches.iter().map(|condition| self.condition(condition)).collect();
        words.push(self.verdict(&rule.then));
        words.join(" ")
    }

    fn condition(&self, condition: &Match) -> String {
        let family = self.family.header();
        match condition {
            Match::Saddr { not, net } => format!("{family} saddr {}{}", unless(*not), prefix(net)),
            Match::Daddr { not, net } => format!("{family} daddr {}{}", unless(*not), prefix(net)),
            Match::Iifname { not, name } => format!("iifname {}\"{name}\"", unless(*not)),
            Match::Oifname { not, name } => format!("oifname {}\"{name}\"", unless(*not)),
            Match::TcpDport(port) => format!("tcp dport {port}"),
            Match::TcpSport(port) => format!("tcp sport {port}"),
            Match::UdpDport(port) => format!("udp dport {port}"),
            Match::In { parts, set } => format!("{} @{set}", self.selectors(parts)),
            Match::Counter => "counter".to_owned(),
            Match::DaddrIsLocal => "fib daddr type local".to_owned(),
            Match::Established => "ct state established,related".to_owned(),
            Match::DestinationTranslated => "ct status dnat".to_owned(),
        }
    }
}

impl Table {
    fn verdict(&self, verdict: &Statement) -> String {
        match verdict {
            Statement::Accept => "accept".to_owned(),
            Statement::Drop => "drop".to_owned(),
            Statement::Return => "return".to_owned(),
            Statement::Notrack => "notrack".to_owned(),
            Statement::Jump(chain) => format!("jump {chain}"),
            Statement::Masquerade { random: false } => "masquerade".to_owned(),
            Statement::Masquerade { random: true } => "masquerade fully-random".to_owned(),
            Statement::Dnat { to, port } if to.is_ipv6() => format!("dnat to [{to}]:{port}"),
            Statement::Dnat { to, port } => format!("dnat to {to}:{port}"),
            Statement::Redirect { port } => format!("redirect to :{port}"),
            Statement::DnatBy { parts, map } => {
                format!("dnat {} to {} map @{map}", self.family.header(), self.selectors(parts))
            }
        }
    }

    fn selectors(&self, parts: &[PacketField]) -> String {
        let family = self.family.header();
        joined(parts.iter().map(|part| match part {
            PacketField::Saddr => format!("{family} saddr"),
            PacketField::Daddr => format!("{family} daddr"),
            PacketField::Protocol => "meta l4proto".to_owned(),
            PacketField::Dport => "th dport".to_owned(),
        }))
    }
}

impl PacketField {
    fn type_name(self, family: Family) -> &'static str {
        match (self, family) {
            (PacketField::Saddr | PacketField::Daddr, Family::Ip | Family::Netdev) => "ipv4_addr",
            (PacketField::Saddr | PacketField::Daddr, Family::Ip6) => "ipv6_addr",
            (PacketField::Protocol, _) => "inet_proto",
            (PacketField::Dport, _) => "inet_service",
        }
    }
}

impl Element {
    /// The element in braces, as in a listing; `{ tcp . 80 : 10.244.1.2 . 8080 }`.
    pub fn to_text(&self) -> String {
        match self.value.as_slice() {
            [] => format!("{{ {} }}", joined(&self.key)),
            value => format!("{{ {} : {} }}", joined(&self.key), joined(value)),
        }
    }

    /// Its key alone, in braces.
    pub fn key_text(&self) -> String {
        format!("{{ {} }}", joined(&self.key))
    }

    /// Its place in nft's syntax: family, table and map.
    pub fn place(&self) -> String {
        format!("{} {} {}", self.family.name(), self.table, self.map)
    }
}

impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Datum::Address(address) => address.fmt(f),
            Datum::Tcp => f.write_str("tcp"),
            Datum::Udp => f.write_str("udp"),
            Datum::Port(port) => port.fmt(f),
        }
    }
}

/// A concatenation of nft.
fn joined(parts: impl IntoIterator<Item = impl fmt::Display>) -> String {
    parts.into_iter().map(|part| part.to_string()).collect::<Vec<_>>().join(" . ")
}

fn unless(not: bool) -> &'static str {
    if not { "!= " } else { "" }
}

/// A prefix that is one address is written as that address.
fn prefix(net: &IpNet) -> String {
    let net = net.trunc();
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}
