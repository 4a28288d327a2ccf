//! Whether what a tunnel leaves to the card comes out right: checksums, and the cutting of large packets. Some cards and
//! hypervisors promise both for packets in a tunnel and send them broken, and the pods' connections hang. That is found out
//! with real packets to the other nodes, and what is broken is switched off at the tunnel, so that the kernel does it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use linux::IfName;
use linux::tcp_probe::{LeftToLink, TcpProbe};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::run::send_if_new;

/// The tunnels to try, by their links.
pub(crate) type Tunnels = BTreeMap<IfName, Tunnel>;
/// What was found of tunnels.
pub(crate) type Offloads = BTreeMap<IfName, Offload>;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(200);
/// What has no answer so often does not arrive.
const ATTEMPTS: usize = 5;
/// So many of as many packets that leave nothing to the card must be answered. Otherwise the way loses packets anyway.
const ENOUGH: usize = 4;
/// So many nodes are asked until one answers at all. A firewall is mostly the same on all.
const NODES: usize = 4;

/// A tunnel, and whom to ask through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// The link to other nodes, on which it rests.
    pub wire: IfName,
    /// The node's own address there.
    pub from: IpAddr,
    /// The other nodes' addresses there.
    pub to: Vec<IpAddr>,
}

/// What was found of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// All arrives.
    Whole,
    /// Something does not.
    Faulty(OffloadFault),
}

/// What does not arrive if it is left to the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffloadFault {
    /// Packets whose checksums the card is to fill in.
    Checksums,
    /// Large packets, which the card is to cut.
    Segmentation,
}

impl OffloadFault {
    /// What is so, in words.
    pub fn words(self) -> &'static str {
        match self {
            OffloadFault::Checksums => {
                "packets whose checksums the card fills in do not arrive through the tunnel, and others do: the kernel fills \
                 them in"
            }
            OffloadFault::Segmentation => {
                "large packets that the card cuts do not arrive through the tunnel, and others do: the kernel cuts them"
            }
        }
    }
}

/// Tries the tunnels whenever there are others, and every `period` those of which nothing is known yet. The packets are those
/// of the calling thread's network namespace.
pub(crate) fn start(tunnels: watch::Receiver<Tunnels>, period: Duration) -> watch::Receiver<Offloads> {
    let (found, results) = watch::channel(Offloads::new());
    tokio::spawn(async move {
        let mut tunnels = tunnels;
        let mut tried = Tunnels::new();
        loop {
            let wanted = tunnels.borrow_and_update().clone();
            let mut known = found.borrow().clone();
            // One on another wire has another card behind it. What is switched off is no longer to be tried, and is known by
            // what stands.
            let resting =
                |tunnels: &Tunnels, link: &IfName| tunnels.get(link).map(|tunnel| tunnel.wire.clone());
            known.retain(|link, _| {
                wanted.contains_key(link) && resting(&tried, link) == resting(&wanted, link)
            });
            tried = wanted.clone();
            let agent = tunnels.clone();
            let trying = tokio::task::spawn_blocking(move || {
                let is_unwanted = || agent.has_changed().is_err();
                for (link, tunnel) in &wanted {
                    if !known.contains_key(link) {
                        known.extend(examine(link, tunnel, &is_unwanted).map(|found| (link.clone(), found)));
                    }
                }
                known
            });
            let Ok(known) = trying.await else { return };
            send_if_new(&found, known);
            tokio::select! {
                changed = tunnels.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(period) => {}
            }
        }
    });
    results
}

/// Asks nodes through a tunnel until one answers; `None`: none does, or not reliably.
fn examine(link: &IfName, tunnel: &Tunnel, is_unwanted: &impl Fn() -> bool) -> Option<Offload> {
    tunnel.to.iter().take(NODES).find_map(|to| {
        let probe = TcpProbe { link: link.clone(), from: tunnel.from, to: *to };
        judge(|left| if is_unwanted() { None } else { probe.is_answered(left, PATIENCE).ok() })
    })
}

/// Judges by what is answered. Where it cannot be asked (`None`), nothing is known.
fn judge(mut is_answered: impl FnMut(LeftToLink) -> Option<bool>) -> Option<Offload> {
    let mut answers = |left, enough: usize| {
        let mut count = 0;
        for _ in 0..ATTEMPTS {
            count += usize::from(is_answered(left)?);
            if count == enough {
                break;
            }
        }
        Some(count)
    };
    if answers(LeftToLink::Nothing, 1)? == 0 {
        return None;
    }
    let tries = [
        (LeftToLink::Checksum, OffloadFault::Checksums),
        (LeftToLink::Segmentation, OffloadFault::Segmentation),
    ];
    for (left, fault) in tries {
        if answers(left, 1)? == 0 {
            let is_sure = answers(LeftToLink::Nothing, ENOUGH)? >= ENOUGH;
            return is_sure.then_some(Offload::Faulty(fault));
        }
    }
    Some(Offload::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is judged of a card that fails at what is listed, on a way that loses what `is_lost` says.
    fn judged(fails: &[LeftToLink], is_lost: impl Fn(u32) -> bool) -> Option<Offload> {
        let mut sent = 0;
        judge(|left| {
            sent += 1;
            assert!(sent < 30);
            Some(!fails.contains(&left) && !is_lost(sent))
        })
    }

    #[test]
    fn a_card_is_judged_by_what_arrives() {
        use LeftToLink::{Checksum, Nothing, Segmentation};
        assert_eq!(judged(&[], |_| false), Some(Offload::Whole));
        assert_eq!(judged(&[Segmentation], |_| false), Some(Offload::Faulty(OffloadFault::Segmentation)));
        assert_eq!(
            judged(&[Checksum, Segmentation], |_| false),
            Some(Offload::Faulty(OffloadFault::Checksums))
        );
        assert_eq!(judged(&[Nothing, Checksum, Segmentation], |_| false), None, "a firewall");
    }

    #[test]
    fn what_cannot_be_asked_is_no_fault() {
        assert_eq!(judge(|left| (left == LeftToLink::Nothing).then_some(true)), None);
    }

    #[test]
    fn a_way_that_loses_packets_is_no_broken_card() {
        // Four of five are lost.
        assert_eq!(judged(&[], |sent| sent % 5 != 0), Some(Offload::Whole));
        // After the first answers all is lost.
        assert_eq!(judged(&[], |sent| sent > 1), None);
        assert_eq!(judged(&[LeftToLink::Segmentation], |sent| sent % 3 == 0), None, "nothing can be said");
    }
}
