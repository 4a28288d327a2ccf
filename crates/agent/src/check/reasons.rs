//! Why something is not reached: first what of the agent's own work is no longer so on this node, then what came back,
//! or did not, from the way.

mod local;
mod way;

use std::collections::BTreeSet;

use datapath::Family;
use linux::icmp::{EchoRefusal, IcmpReason};

use super::CheckError;
use super::echoes::{EchoResult, Outcome};
use super::row::{Reason, ReasonKind};
use super::scene::Scene;
use super::targets::{Target, Targets};
use crate::path_mtu::PathMtus;
use crate::status::{PeerStatus, Status, word};

/// What is known of another node in one family whose ways are not all well.
pub(super) struct Findings<'a> {
    pub(super) peer: &'a str,
    pub(super) target: &'a Target,
    pub(super) targets: &'a Targets,
    pub(super) results: &'a [EchoResult],
    /// How much narrow ways carry.
    pub(super) carried: &'a PathMtus,
}

impl Findings<'_> {
    /// The reasons that are to be seen.
    pub(super) fn reasons(&self, scene: &mut Scene) -> Result<Vec<Reason>, CheckError> {
        let mut reasons = self.local(scene)?;
        let of_way = self.of_way(scene, &reasons)?;
        reasons.extend(of_way);
        Ok(reasons)
    }

    fn reason(&self, kind: ReasonKind, seen: impl Into<String>, follows: impl Into<String>) -> Reason {
        Reason { kind, family: Some(word(self.target.family)), seen: seen.into(), follows: follows.into() }
    }
}

/// What the state says of a peer whose lease is not followed, or to which the agent could not make the way.
pub(super) fn of_lease(peer: &PeerStatus) -> Option<Reason> {
    let why = peer.why_not.clone()?;
    let (kind, follows) = if peer.pods.is_empty() {
        (
            ReasonKind::LeaseRefused,
            "correct the lease, or the network's configuration; what stood before stays",
        )
    } else {
        (ReasonKind::NotMade, "the agent tries again as long as it runs; its log has it, too")
    };
    Some(Reason { kind, family: None, seen: format!("the agent says: {why}"), follows: follows.to_owned() })
}

/// What is wrong on this node for every peer.
pub(super) fn here(status: &Status, families: &BTreeSet<Family>) -> Result<Vec<Reason>, CheckError> {
    let mut reasons = Vec::new();
    reasons.extend(status.undecided.as_ref().map(|why| Reason {
        kind: ReasonKind::Undecided,
        family: None,
        seen: format!("the agent reports for this node: {why}"),
        follows: "it may not know all nodes, and its routes to the others may be out of date".to_owned(),
    }));
    for family in families {
        let key = forwarding(*family);
        if Scene::parameter(key)?.as_deref() == Some("0") {
            reasons.push(Reason {
                kind: ReasonKind::ForwardingOff,
                family: Some(word(*family)),
                seen: format!("{} is 0 on this node, and pods are attached to it", dotted(key)),
                follows: format!(
                    "packets of its pods are not forwarded: sysctl -w {}=1, and find the program that set it to 0",
                    dotted(key)
                ),
            });
        }
    }
    Ok(reasons)
}

/// The parameter that lets a node forward.
fn forwarding(family: Family) -> &'static str {
    match family {
        Family::V4 => "net/ipv4/ip_forward",
        Family::V6 => "net/ipv6/conf/all/forwarding",
    }
}

fn dotted(key: &str) -> String {
    key.replace('/', ".")
}

/// What came instead of an answer, in words.
pub(super) fn instead(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Answered { .. } => None,
        Outcome::Refused(EchoRefusal { from, reason, .. }) => {
            Some(format!("{from} says: {}", words(*reason)))
        }
        Outcome::Unsent(error) => Some(format!("not sent: {}", error.reason())),
        Outcome::Silent => Some("nothing came back".to_owned()),
    }
}

fn words(reason: IcmpReason) -> String {
    match reason {
        IcmpReason::NoRoute => "no route".to_owned(),
        IcmpReason::HostUnreachable => "host unreachable".to_owned(),
        IcmpReason::Prohibited => "administratively prohibited".to_owned(),
        IcmpReason::Rejected => "port or protocol unreachable".to_owned(),
        IcmpReason::TooBig { mtu } => format!("fragmentation needed, MTU {mtu}"),
        IcmpReason::HopLimit => "hop limit exceeded".to_owned(),
        IcmpReason::Other { kind, code } => format!("ICMP type {kind} code {code}"),
    }
}
