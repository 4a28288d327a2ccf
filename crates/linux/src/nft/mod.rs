//! nftables: a small model of tables, rendered as `nft` text for people and as JSON for the `nft` program, which is
//! the one external program that changes something on our behalf: the netlink interface of nftables speaks of
//! registers and byte codes, and `nft` is the one keeper of the way from rules to those.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::IfName;

mod json;
mod run;
mod text;

pub use run::{add, delete, dump, exists, settle};

/// A table with all that is in it; it is made and deleted as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The packets it sees.
    pub family: Family,
    /// Its name, unique in the family and namespace.
    pub name: String,
    /// Its chains, those that are jumped to before those that jump.
    pub chains: Vec<Chain>,
}

/// The address family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
}

/// A list of rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Its name, unique in the table.
    pub name: String,
    /// Where packets enter it; `None`: only by a jump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// How a base chain hangs in the packet's way. The policy is always `accept`: the project's rules never close a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// What kind of work the chain does.
    pub kind: ChainKind,
    /// Where.
    pub hook: Hook,
    /// Order among the chains of one hook, lowest first (filter 0, dstnat -100, srcnat 100, raw -300).
    pub priority: i32,
}

/// The type of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainKind {
    /// Accept or drop.
    Filter,
    /// Address translation; sees the first packet of a connection.
    Nat,
}

/// A netfilter hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// Before routing.
    Prerouting,
    /// To one of the node's own addresses.
    Input,
    /// Routed to another link.
    Forward,
    /// Made on this node.
    Output,
    /// After routing.
    Postrouting,
}

/// Conditions, all of which must hold, and what happens then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The conditions.
    pub matches: Vec<Match>,
    /// What happens.
    pub then: Verdict,
}

/// A condition on a packet. `not` inverts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Match {
    /// The source address lies in the prefix.
    Saddr {
        /// Inverts the condition.
        not: bool,
        /// The prefix.
        net: IpNet,
    },
    /// The destination address lies in the prefix.
    Daddr {
        /// Inverts the condition.
        not: bool,
        /// The prefix.
        net: IpNet,
    },
    /// The packet came in by the link.
    Iifname {
        /// Inverts the condition.
        not: bool,
        /// The link.
        name: IfName,
    },
    /// The packet leaves by the link.
    Oifname {
        /// Inverts the condition.
        not: bool,
        /// The link.
        name: IfName,
    },
    /// TCP to this port.
    TcpDport(u16),
    /// TCP from this port.
    TcpSport(u16),
    /// The destination port of a UDP packet.
    UdpDport(u16),
    /// The destination is one of the node's own addresses.
    DaddrIsLocal,
    /// conntrack knows the connection (`ct state established,related`).
    Established,
}

/// What a rule does with a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Let it pass; ends the hook's chain.
    Accept,
    /// Discard it.
    Drop,
    /// Back to the calling chain.
    Return,
    /// conntrack is not to know the packet.
    Notrack,
    /// Go on in another chain and come back.
    Jump(String),
    /// Take the outgoing link's address as source; `random` as flannel and kube-proxy do (`fully-random`).
    Masquerade {
        /// Choose ports fully at random.
        random: bool,
    },
    /// Send it to another address and port.
    Dnat {
        /// The new destination.
        to: IpAddr,
        /// The new port.
        port: u16,
    },
}

impl Family {
    /// nft's own name of it.
    pub fn name(self) -> &'static str {
        match self {
            Family::Ip => "ip",
            Family::Ip6 => "ip6",
        }
    }
}

impl ChainKind {
    /// nft's own name of it.
    pub fn name(self) -> &'static str {
        match self {
            ChainKind::Filter => "filter",
            ChainKind::Nat => "nat",
        }
    }
}

impl Hook {
    /// nft's own name of it.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Prerouting => "prerouting",
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
            Hook::Postrouting => "postrouting",
        }
    }
}
