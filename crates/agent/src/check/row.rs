//! What a node finds of its ways to the others, as people and programs get it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The version of the form below.
pub const SCHEMA: u32 = 1;

/// One node's ways to the others: a row of the matrix.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Row {
    /// The version of this format: [`SCHEMA`].
    pub schema: u32,
    /// The network of the check, by the name in the agent's settings.
    pub network: String,
    /// The prefixes of this node's pods, by which the others know it.
    pub pods: Vec<String>,
    /// When the check began, in seconds since 1970.
    pub at_s: u64,
    /// What is wrong on this node for every peer.
    pub here: Vec<Reason>,
    /// The other nodes by the source's names for them.
    pub peers: BTreeMap<String, CheckedPeer>,
}

/// What was found of the ways to another node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckedPeer {
    /// The prefixes of its pods; none where its lease is refused.
    pub pods: Vec<String>,
    /// Whether all of its ways are well, for small packets and for full ones.
    pub is_reached: bool,
    /// Its ways by the family of pods: `ipv4`, `ipv6`.
    pub families: BTreeMap<String, CheckedFamily>,
    /// Why it is not reached; empty if nothing is wrong.
    pub reasons: Vec<Reason>,
}

/// The ways to another node for one family of pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedFamily {
    /// The way between nodes: `direct`, `vxlan`, `wireguard` or `aws-vpc`.
    pub by: String,
    /// To the node itself, at its address on the wire.
    pub node: CheckedWay,
    /// To its address in its pods' network, where the network has tunnels: that of its tunnel device.
    pub tunnel: Option<CheckedWay>,
    /// To what it forwards to its pods. The packet ends on the node, which would have to forward it and says so.
    pub pods: CheckedWay,
    /// The same from this node's own address in its pods' network, as a pod would send it; `None` where the node has no
    /// such address, or sends from it anyway.
    pub as_pod: Option<CheckedWay>,
}

/// What was found of one way: an address that was asked for an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedWay {
    /// The address that was to answer.
    pub address: IpAddr,
    /// Whether small packets came back.
    pub is_reached: bool,
    /// How long a small one took there and back, in microseconds.
    pub rtt_us: Option<u64>,
    /// The bytes of the full packet; `None`: small ones alone were sent.
    pub full_bytes: Option<u32>,
    /// Whether it came back without being fragmented; `None`: it was not sent, or small ones do not come back.
    pub carries_full: Option<bool>,
    /// What came instead, in words; `None`: all is well.
    pub instead: Option<String>,
}

/// Why something is not reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The same for programs, which do not parse sentences.
    pub kind: ReasonKind,
    /// The family of pods that it concerns; `None`: all.
    pub family: Option<String>,
    /// What is seen. It is so.
    pub seen: String,
    /// What follows from that, or where to look. It may be otherwise.
    pub follows: String,
}

/// What is wrong, as a code for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// The agent does not know what the node is to have, or cannot bring it to that.
    Undecided,
    /// The agent does not follow the peer's lease.
    LeaseRefused,
    /// The agent could not make the way there.
    NotMade,
    /// The link to other nodes is not there, or down.
    WireDown,
    /// The tunnel device is not there.
    TunnelMissing,
    /// The tunnel device is down.
    TunnelDown,
    /// There is no route to the peer's pods.
    RouteMissing,
    /// Another program's route has its place, or is chosen before it.
    RouteForeign,
    /// The tunnel's neighbour entry is not as the agent made it.
    Neighbour,
    /// The tunnel's forwarding entry is not as the agent made it.
    ForwardingEntry,
    /// The encrypted tunnel's peer is not as the agent made it.
    TunnelPeer,
    /// Something else is not as the agent made it.
    Changed,
    /// This machine does not send the packet.
    SendRefused,
    /// An error message came back.
    IcmpError,
    /// No neighbour on the link has the next hop's address.
    NextHopUnresolved,
    /// The peer's node does not answer.
    NodeSilent,
    /// The peer's node answers, and its tunnel does not.
    TunnelSilent,
    /// The peer's node answers, and the two ends of the encrypted tunnel do not agree on a session.
    NoHandshake,
    /// The peer's node answers, and what it is to forward to its pods does not come back.
    PodsSilent,
    /// Small packets pass, and full ones do not.
    Narrow,
    /// This node drops answers that come by another link than it would send by.
    ReversePathFilter,
    /// This node does not forward what its pods send.
    ForwardingOff,
}

impl CheckedWay {
    /// Whether all packets came back.
    pub fn is_well(&self) -> bool {
        self.is_reached && self.carries_full != Some(false)
    }
}

impl CheckedFamily {
    /// The ways that were checked, of those that the network has.
    pub fn ways(&self) -> impl Iterator<Item = &CheckedWay> {
        [&self.node, &self.pods].into_iter().chain(&self.tunnel).chain(&self.as_pod)
    }

    /// Whether all of them are well.
    pub fn is_well(&self) -> bool {
        self.ways().all(CheckedWay::is_well)
    }
}

impl Row {
    /// Whether nothing is wrong on this node and every peer is reached.
    pub fn is_well(&self) -> bool {
        self.here.is_empty() && self.peers.values().all(|peer| peer.is_reached)
    }
}
