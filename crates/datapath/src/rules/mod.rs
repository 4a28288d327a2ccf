//! The nftables tables of the set-ups that data paths stand for, and the words to write them in.

pub(crate) mod border;
pub(crate) mod docker;
pub(crate) mod flannel;
pub(crate) mod ports;
pub(crate) mod tunnel;

use ipnet::IpNet;
use linux::IfName;
use linux::nft::priority::{DSTNAT, FILTER, RAW, SRCNAT};
use linux::nft::{Base, Chain, ChainKind, Family as TableFamily, Hook, Match, Rule, Statement};

use crate::Family;

fn table_family(family: Family) -> TableFamily {
    match family {
        Family::V4 => TableFamily::Ip,
        Family::V6 => TableFamily::Ip6,
    }
}

/// A chain that packets enter at a hook.
fn base(name: &str, kind: ChainKind, hook: Hook, priority: i32, rules: Vec<Rule>) -> Chain {
    Chain { name: name.to_owned(), base: Some(Base { kind, hook, priority }), rules }
}

/// A chain that other chains jump to.
fn chain(name: &str, rules: Vec<Rule>) -> Chain {
    Chain { name: name.to_owned(), base: None, rules }
}

fn rule(matches: impl Into<Vec<Match>>, then: Statement) -> Rule {
    Rule { matches: matches.into(), then }
}

fn jump(chain: &str) -> Statement {
    Statement::Jump(chain.to_owned())
}

fn from(net: IpNet) -> Match {
    Match::Saddr { not: false, net }
}

fn not_from(net: IpNet) -> Match {
    Match::Saddr { not: true, net }
}

fn to(net: IpNet) -> Match {
    Match::Daddr { not: false, net }
}

fn not_to(net: IpNet) -> Match {
    Match::Daddr { not: true, net }
}

fn enters_by(name: &IfName) -> Match {
    Match::Iifname { not: false, name: name.clone() }
}

fn enters_by_other_than(name: &IfName) -> Match {
    Match::Iifname { not: true, name: name.clone() }
}

fn leaves_by(name: &IfName) -> Match {
    Match::Oifname { not: false, name: name.clone() }
}

fn leaves_by_other_than(name: &IfName) -> Match {
    Match::Oifname { not: true, name: name.clone() }
}
