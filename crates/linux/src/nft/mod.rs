//! nftables: a small model of tables in `nft`'s own language. `nft` is the one external program that changes something
//! on our behalf: the netlink interface of rules speaks of registers and byte codes, and `nft` is the one keeper of the
//! way from rules to those. What needs no byte code goes to the kernel directly, a hundred times as fast
//! ([`crate::netlink::Nftables`]): whether a table exists, its removal, and the elements of maps.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::IfName;

mod run;
mod text;
mod wire;

pub use run::{add, counted, dump, settle};

/// A table with all that is in it; it is made and deleted as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The packets it sees.
    pub family: Family,
    /// Its name, unique in the family and namespace.
    pub name: String,
    /// Its maps and sets, which are made empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<Map>,
    /// Its chains; a chain comes before those that jump to it.
    pub chains: Vec<Chain>,
}

/// The address family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// nft's `ip`: IPv4 only.
    Ip,
    /// nft's `ip6`: IPv6 only.
    Ip6,
    /// nft's `netdev`: whatever arrives at a link ([`Hook::Ingress`]).
    Netdev,
}

/// A map, or a set if its elements have no value. Elements come and go one by one, while the table stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// Its name, unique in the table.
    pub name: String,
    /// The parts of a packet that form the key.
    pub key: Vec<PacketField>,
    /// What it answers; empty for a set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value: Vec<PacketField>,
}

/// A part of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketField {
    /// The source address in the IP header.
    Saddr,
    /// The destination address in the IP header.
    Daddr,
    /// The transport protocol (`meta l4proto`).
    Protocol,
    /// The destination port of TCP or UDP (`th dport`).
    Dport,
}

/// An element of a map or a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// The family of its table.
    pub family: Family,
    /// The name of its table.
    pub table: String,
    /// Its map or set.
    pub map: String,
    /// One value for each part of [`Map::key`].
    pub key: Vec<Datum>,
    /// One value for each part of [`Map::value`]; empty for a set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value: Vec<Datum>,
}

/// What a part of a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Datum {
    /// An address of the table's family.
    Address(IpAddr),
    /// TCP, as a transport protocol.
    Tcp,
    /// UDP, as a transport protocol.
    Udp,
    /// A port of the transport protocol.
    Port(u16),
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// What kind of work the chain does.
    pub kind: ChainKind,
    /// The hook at which packets enter the chain.
    pub hook: Hook,
    /// Order among the chains of one hook, lowest first (filter 0, dstnat -100, srcnat 100, raw -300).
    pub priority: i32,
}

/// Priorities of base chains at which the kernel's own work stands (include/uapi/linux/netfilter_ipv4.h).
pub mod priority {
    /// Before connection tracking, which is at -200.
    pub const RAW: i32 = -300;
    /// Destination translation (`NF_IP_PRI_NAT_DST`).
    pub const DSTNAT: i32 = -100;
    /// Chains that accept and drop (`NF_IP_PRI_FILTER`).
    pub const FILTER: i32 = 0;
    /// Source translation (`NF_IP_PRI_NAT_SRC`).
    pub const SRCNAT: i32 = 100;
}

/// The type of a base chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainKind {
    /// Accepts or drops packets.
    Filter,
    /// Address translation; sees the first packet of a connection.
    Nat,
}

/// A netfilter hook: a point in a packet's way where chains run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// Received by a link, before the kernel looks at the protocol; in a table of [`Family::Netdev`].
    Ingress {
        /// The link, which has to exist.
        device: IfName,
    },
    /// Received, before the routing decision.
    Prerouting,
    /// To one of the node's own addresses.
    Input,
    /// Routed to another link.
    Forward,
    /// Made on this node.
    Output,
    /// About to leave, after the routing decision.
    Postrouting,
}

/// Conditions, all of which must hold, and what happens then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// All must hold; an empty list matches every packet.
    pub matches: Vec<Match>,
    /// What happens to a packet that matches.
    pub then: Statement,
}

/// A condition on a packet. `not` inverts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Match {
    /// The source address lies in the prefix.
    Saddr {
        /// True: the address is outside the prefix.
        not: bool,
        /// The prefix, of the table's family.
        net: IpNet,
    },
    /// The destination address lies in the prefix.
    Daddr {
        /// True: the address is outside the prefix.
        not: bool,
        /// The prefix, of the table's family.
        net: IpNet,
    },
    /// The packet came in by the link.
    Iifname {
        /// True: the packet came in by any other link.
        not: bool,
        /// The link's exact name; it need not exist.
        name: IfName,
    },
    /// The packet leaves by the link.
    Oifname {
        /// True: the packet leaves by any other link.
        not: bool,
        /// The link's exact name; it need not exist.
        name: IfName,
    },
    /// TCP to this port.
    TcpDport(u16),
    /// TCP from this port.
    TcpSport(u16),
    /// The destination port of a UDP packet.
    UdpDport(u16),
    /// These parts of the packet are an element of the set.
    In {
        /// What the set is asked with.
        parts: Vec<PacketField>,
        /// The set, of the same table.
        set: String,
    },
    /// Holds always, and counts the packets for which all before it held ([`counted`]).
    Counter,
    /// The destination is one of the node's own addresses.
    DaddrIsLocal,
    /// conntrack knows the connection (`ct state established,related`).
    Established,
    /// The connection's destination was translated (`ct status dnat`).
    DestinationTranslated,
}

/// What a rule does with a packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statement {
    /// Let it pass; ends the hook's chain.
    Accept,
    /// Discards the packet without an answer.
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
        /// The new destination address, of the table's family.
        to: IpAddr,
        /// The new destination port.
        port: u16,
    },
    /// Send it to this port of the node itself.
    Redirect {
        /// The new destination port.
        port: u16,
    },
    /// Send it to the address and port that the map holds for these parts of it; go on if the map has no such element.
    DnatBy {
        /// What the map is asked with.
        parts: Vec<PacketField>,
        /// The map, of the same table; its value is an address and a port.
        map: String,
    },
}

impl Family {
    /// The keyword in nft's syntax.
    pub fn name(self) -> &'static str {
        match self {
            Family::Ip => "ip",
            Family::Ip6 => "ip6",
            Family::Netdev => "netdev",
        }
    }

    /// The header that its rules speak of addresses in; a table of links speaks of IPv4.
    fn header(self) -> &'static str {
        match self {
            Family::Ip | Family::Netdev => "ip",
            Family::Ip6 => "ip6",
        }
    }
}

impl ChainKind {
    /// The keyword in nft's syntax.
    pub fn name(self) -> &'static str {
        match self {
            ChainKind::Filter => "filter",
            ChainKind::Nat => "nat",
        }
    }
}

impl Hook {
    /// The keyword in nft's syntax.
    pub fn name(&self) -> &'static str {
        match self {
            Hook::Ingress { .. } => "ingress",
            Hook::Prerouting => "prerouting",
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
            Hook::Postrouting => "postrouting",
        }
    }
}
