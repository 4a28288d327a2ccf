//! Connections without conntrack: our own tables exempt a port.

use linux::IfName;
use linux::nft::priority::RAW;
use linux::nft::{Base, Chain, ChainKind, Family, Hook, Match, Rule, Statement, Table};

/// Tables for packets to a TCP port that is served in this namespace, and for its answers. Both directions must be
/// exempt: if only one is tracked, conntrack sees a connection without answers. Over the loopback both ends are here,
/// and each packet passes both hooks.
pub(crate) fn served(port: u16) -> Vec<Table> {
    let lo = || IfName::new("lo").expect("a constant name is valid");
    let (to, from) = (Match::TcpDport(port), Match::TcpSport(port));
    let requests = vec![vec![to.clone()], vec![Match::Iifname { not: false, name: lo() }, from.clone()]];
    let answers = vec![vec![from], vec![Match::Oifname { not: false, name: lo() }, to]];
    tables(port, &[chain("requests", Hook::Prerouting, requests), chain("answers", Hook::Output, answers)])
}

/// For packets that a node forwards, to a TCP port that a pod serves and from it; the pod may be
/// this node's or another's.
pub(crate) fn forwarded(port: u16) -> Vec<Table> {
    let both = vec![vec![Match::TcpDport(port)], vec![Match::TcpSport(port)]];
    tables(port, &[chain("forwarded", Hook::Prerouting, both)])
}

fn chain(name: &str, hook: Hook, rules: Vec<Vec<Match>>) -> Chain {
    Chain {
        name: name.to_owned(),
        base: Some(Base { kind: ChainKind::Filter, hook, priority: RAW }),
        rules: rules.into_iter().map(|matches| Rule { matches, then: Statement::Notrack }).collect(),
    }
}

fn tables(port: u16, chains: &[Chain]) -> Vec<Table> {
    let table = |family| Table {
        family,
        name: format!("hostgap-notrack-{port}"),
        maps: Vec::new(),
        chains: chains.to_vec(),
    };
    [Family::Ip, Family::Ip6].map(table).to_vec()
}
