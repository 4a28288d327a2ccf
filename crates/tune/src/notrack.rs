//! Connections that conntrack is not to know: tables of ours that say so of a port.

use linux::nft::{Base, Chain, ChainKind, Family, Hook, Match, Rule, Table, Verdict};

/// Of nftables' hooks before conntrack looks (`NF_IP_PRI_RAW` in linux/netfilter_ipv4.h; conntrack is at -200).
const RAW: i32 = -300;

/// For packets to a TCP port that is served here, and for the answers from it. Both directions must be named: one that is
/// tracked alone would be a connection that never answers. Over the loopback both ends are here, and each packet passes
/// both hooks.
pub(crate) fn tables(port: u16) -> Vec<Table> {
    let lo = || linux::IfName::new("lo").expect("a constant name is valid");
    let rule = |matches| Rule { matches, then: Verdict::Notrack };
    let chain = |name: &str, hook, usual, own: [Match; 2]| Chain {
        name: name.to_owned(),
        base: Some(Base { kind: ChainKind::Filter, hook, priority: RAW }),
        rules: vec![rule(vec![usual]), rule(own.to_vec())],
    };
    let (to, from) = (Match::TcpDport(port), Match::TcpSport(port));
    let requests = [Match::Iifname { not: false, name: lo() }, from.clone()];
    let answers = [Match::Oifname { not: false, name: lo() }, to.clone()];
    let table = |family| Table {
        family,
        name: format!("hostgap-notrack-{port}"),
        chains: vec![
            chain("requests", Hook::Prerouting, to.clone(), requests.clone()),
            chain("answers", Hook::Output, from.clone(), answers.clone()),
        ],
    };
    [Family::Ip, Family::Ip6].map(table).to_vec()
}
