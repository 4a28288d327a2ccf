//! Whether what a tunnel leaves to the card comes out right: checksums, and the cutting of large packets. Some
//! cards and hypervisors promise both for packets in a tunnel and send them broken, and the pods' connections hang.
//! That is found out with real packets to the other nodes, and what is broken is switched off at the tunnel, so
//! that the kernel does it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use linux::tcp_probe::{LeftToLink, TcpProbe};
use linux::{IfName, LinkKind};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::latest::send_if_new;

/// The tunnels to try, by their links.
pub(crate) type Tunnels = BTreeMap<IfName, Tunnel>;

/// What trying tunnels has come to, by their links.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Offloads {
    /// The tunnels that were tried, with the result.
    pub(crate) found: BTreeMap<IfName, Offload>,
    /// Why those could not be tried of which nothing is known: no node could be asked.
    pub(crate) failed: BTreeMap<IfName, String>,
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(200);
/// What has no answer so often does not arrive.
const ATTEMPTS: usize = 5;
/// So often it is tried at most to see that many times: a way that loses other packets, too, says nothing of a card.
const TRIES_MAX: usize = 2 * ATTEMPTS;
/// So many nodes are asked at a time, and the next ones the next time.
const NODES: usize = 4;

/// A tunnel, and whom to ask through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// What it is: also the link to other nodes on which it rests, and the port by which cards know a tunnel.
    pub kind: LinkKind,
    /// The node's own address there.
    pub from: IpAddr,
    /// The other nodes' addresses there.
    pub to: Vec<IpAddr>,
}

/// What was found of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// Nothing that was left to the card was lost.
    Whole,
    /// Something arrives only if it is not left to the card.
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

/// Tries the tunnels whenever there are others, and every `period` those of which nothing is known yet. The packets are
/// those of the calling thread's network namespace.
pub(crate) fn start(tunnels: watch::Receiver<Tunnels>, period: Duration) -> watch::Receiver<Offloads> {
    let (found, results) = watch::channel(Offloads::default());
    tokio::spawn(async move {
        let mut tunnels = tunnels;
        let mut tried = Tunnels::new();
        let mut turn = 0;
        loop {
            let wanted = tunnels.borrow_and_update().clone();
            let known = still_known(&found.borrow().found, &tried, &wanted);
            tried = wanted.clone();
            let agent = tunnels.clone();
            let trying = tokio::task::spawn_blocking(move || {
                try_out(&wanted, known, turn, || agent.has_changed().is_err())
            });
            turn += 1;
            let Ok(offloads) = trying.await else { return };
            send_if_new(&found, offloads);
            tokio::select! {
                changed = tunnels.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(period) => {}
            }
        }
    });
    results
}

/// What was found of tunnels that are the same as when they were tried. What is switched off is no longer to be tried,
/// and is known by what stands.
fn still_known(
    found: &BTreeMap<IfName, Offload>,
    tried: &Tunnels,
    wanted: &Tunnels,
) -> BTreeMap<IfName, Offload> {
    let is_same = |link: &IfName| {
        let kinds = [tried, wanted].map(|tunnels| tunnels.get(link).map(|tunnel| &tunnel.kind));
        kinds[1].is_some() && kinds[0] == kinds[1]
    };
    found.iter().filter(|(link, _)| is_same(link)).map(|(link, found)| (link.clone(), *found)).collect()
}

/// Tries the tunnels of which nothing is known, with the nodes whose turn it is.
fn try_out(
    tunnels: &Tunnels,
    known: BTreeMap<IfName, Offload>,
    turn: usize,
    is_unwanted: impl Fn() -> bool,
) -> Offloads {
    let mut offloads = Offloads { found: known, failed: BTreeMap::new() };
    for (link, tunnel) in tunnels {
        if offloads.found.contains_key(link) {
            continue;
        }
        let is_answered = |to, left| {
            if is_unwanted() {
                return Err("no receiver is left".to_owned());
            }
            let probe = TcpProbe { link: link.clone(), from: tunnel.from, to };
            // The nodes change with the turns, and the reason is to be said once.
            probe.is_answered(left, PATIENCE).map_err(|error| error.reason())
        };
        match examine(whose_turn(&tunnel.to, turn), is_answered) {
            Ok(found) => offloads.found.extend(found.map(|found| (link.clone(), found))),
            Err(why) => drop(offloads.failed.insert(link.clone(), why)),
        }
    }
    offloads
}

/// The nodes whose turn it is.
fn whose_turn(to: &[IpAddr], turn: usize) -> impl Iterator<Item = IpAddr> {
    to.iter().copied().cycle().skip(turn * NODES % to.len().max(1)).take(NODES.min(to.len()))
}

/// What nodes say of a tunnel, and why it could not be tried, if none could be asked.
///
/// A fault needs two that say so, if a second one answers at all. It may be at the other end or on the way there, and
/// what comes out right at one of them is no fault of this one's card.
fn examine(
    nodes: impl Iterator<Item = IpAddr>,
    mut is_answered: impl FnMut(IpAddr, LeftToLink) -> Result<bool, String>,
) -> Result<Option<Offload>, String> {
    let (mut suspected, mut is_silent, mut failed) = (None, false, None);
    for node in nodes {
        match (judge(|left| is_answered(node, left)), suspected) {
            (Ok(Some(Offload::Whole)), _) => return Ok(Some(Offload::Whole)),
            (Ok(Some(Offload::Faulty(fault))), Some(other)) => {
                // Where they differ, checksums come out right at one of them.
                let both = if fault == other { fault } else { OffloadFault::Segmentation };
                return Ok(Some(Offload::Faulty(both)));
            }
            (Ok(Some(Offload::Faulty(fault))), None) => suspected = Some(fault),
            (Ok(None), _) => is_silent = true,
            (Err(why), _) => failed = Some(why),
        }
    }
    match (suspected, failed) {
        (None, Some(why)) if !is_silent => Err(why),
        _ => Ok(suspected.map(Offload::Faulty)),
    }
}

/// Judges by what one node answers; `None`: it does not, or not reliably.
fn judge<E>(mut is_answered: impl FnMut(LeftToLink) -> Result<bool, E>) -> Result<Option<Offload>, E> {
    let mut attempts = 0;
    while !is_answered(LeftToLink::Nothing)? {
        attempts += 1;
        if attempts == ATTEMPTS {
            return Ok(None);
        }
    }
    let tries = [
        (LeftToLink::Checksum, OffloadFault::Checksums),
        (LeftToLink::Segmentation, OffloadFault::Segmentation),
    ];
    for (left, fault) in tries {
        match arrives(left, &mut is_answered)? {
            Some(true) => {}
            Some(false) => return Ok(Some(Offload::Faulty(fault))),
            None => return Ok(None),
        }
    }
    Ok(Some(Offload::Whole))
}

/// Whether what is left to the card arrives where something has just been answered; `None`: it cannot be said.
///
/// What leaves nothing to the card takes turns with it. So a node or a way that stands still for a while is no broken
/// card: what is lost counts only between two packets that are answered.
fn arrives<E>(
    left: LeftToLink,
    is_answered: &mut impl FnMut(LeftToLink) -> Result<bool, E>,
) -> Result<Option<bool>, E> {
    let (mut lost, mut before) = (0, true);
    for _ in 0..TRIES_MAX {
        if is_answered(left)? {
            return Ok(Some(true));
        }
        let after = is_answered(LeftToLink::Nothing)?;
        lost += usize::from(before && after);
        if lost == ATTEMPTS {
            return Ok(Some(false));
        }
        before = after;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use linux::Vxlan;

    use super::*;

    use LeftToLink::{Checksum, Nothing, Segmentation};

    /// What is judged of a card that fails at what is listed, on a way that loses what `is_lost` says.
    fn judged(fails: &[LeftToLink], is_lost: impl Fn(u32) -> bool) -> Option<Offload> {
        let mut sent = 0;
        let judged = judge::<()>(|left| {
            sent += 1;
            assert!(sent < 50);
            Ok(!fails.contains(&left) && !is_lost(sent))
        });
        judged.unwrap()
    }

    #[test]
    fn a_card_is_judged_by_what_arrives() {
        assert_eq!(judged(&[], |_| false), Some(Offload::Whole));
        assert_eq!(judged(&[Segmentation], |_| false), Some(Offload::Faulty(OffloadFault::Segmentation)));
        assert_eq!(
            judged(&[Checksum, Segmentation], |_| false),
            Some(Offload::Faulty(OffloadFault::Checksums))
        );
        assert_eq!(judged(&[Nothing, Checksum, Segmentation], |_| false), None, "a firewall");
    }

    #[test]
    fn a_way_that_loses_packets_is_no_broken_card() {
        // Four of five are lost.
        assert_eq!(judged(&[], |sent| sent % 5 != 0), Some(Offload::Whole));
        // After the first answers all is lost.
        assert_eq!(judged(&[], |sent| sent > 1), None);
        let lossy = judged(&[Segmentation], |sent| sent % 3 == 0);
        assert_eq!(lossy, None, "too few are lost between two that are answered");
    }

    #[test]
    fn a_node_that_stands_still_is_no_broken_card() {
        // It answers once, not for a second or two, and then to all.
        for lost in 1..19 {
            assert_eq!(judged(&[], |sent| (2..2 + lost).contains(&sent)), Some(Offload::Whole), "{lost}");
        }
    }

    /// What is found with nodes of which each says what it does, or cannot be asked.
    fn examined(nodes: &[Result<&[LeftToLink], &str>]) -> Result<Option<Offload>, String> {
        let address = |at: usize| IpAddr::from([10, 244, at as u8, 0]);
        examine((0..nodes.len()).map(address), |node, left| {
            let at = (0..nodes.len()).find(|at| address(*at) == node).unwrap();
            nodes[at].map(|fails| !fails.contains(&left)).map_err(str::to_owned)
        })
    }

    #[test]
    fn a_fault_needs_two_nodes_that_see_it() {
        let all: &[LeftToLink] = &[Nothing, Checksum, Segmentation];
        let (large, sums, silent) = (Ok(&all[2..]), Ok(&all[1..]), Ok(all));
        let faulty = |fault| Ok(Some(Offload::Faulty(fault)));
        assert_eq!(examined(&[sums, Ok(&[])]), Ok(Some(Offload::Whole)), "the first one's own card");
        assert_eq!(examined(&[sums, silent, sums]), faulty(OffloadFault::Checksums));
        assert_eq!(examined(&[sums, large]), faulty(OffloadFault::Segmentation));
        assert_eq!(examined(&[large, sums]), faulty(OffloadFault::Segmentation));
        assert_eq!(examined(&[silent, sums, silent]), faulty(OffloadFault::Checksums), "there is no other");
    }

    #[test]
    fn why_no_node_can_be_asked_is_kept() {
        let all: &[LeftToLink] = &[Nothing, Checksum, Segmentation];
        let not: Result<&[LeftToLink], &str> = Err("operation not permitted");
        assert_eq!(examined(&[not, not]), Err("operation not permitted".to_owned()));
        assert_eq!(examined(&[not, Ok(all)]), Ok(None), "one was asked, and is silent");
        assert_eq!(examined(&[not, Ok(&[])]), Ok(Some(Offload::Whole)));
        assert_eq!(examined(&[]), Ok(None));
        let refused = judge(|left| if left == Nothing { Ok(true) } else { Err(()) });
        assert_eq!(refused, Err(()), "what cannot be sent is not lost");
    }

    #[test]
    fn all_nodes_have_their_turn() {
        for count in [1, 3, 4, 6, 9] {
            let to: Vec<IpAddr> = (0..count).map(|at| IpAddr::from([10, 244, at, 0])).collect();
            let mut asked: Vec<IpAddr> = Vec::new();
            for turn in 0..=usize::from(count) / NODES {
                let now: Vec<IpAddr> = whose_turn(&to, turn).collect();
                assert_eq!(now.len(), NODES.min(to.len()));
                asked.extend(now);
            }
            assert!(to.iter().all(|node| asked.contains(node)), "{count}: {asked:?}");
        }
        assert_eq!(whose_turn(&[], 7).count(), 0);
    }

    #[test]
    fn another_tunnel_of_the_same_name_is_tried_again() {
        let vxlan = |parent: &str, vni, port| {
            let kind = LinkKind::Vxlan(Vxlan {
                vni,
                parent: IfName::new(parent).unwrap(),
                local: IpAddr::from([192, 0, 2, 1]),
                port,
                learning: false,
            });
            let tunnel = Tunnel { kind, from: IpAddr::from([10, 244, 1, 0]), to: Vec::new() };
            Tunnels::from([(IfName::new("hgvx7").unwrap(), tunnel)])
        };
        let found = BTreeMap::from([(IfName::new("hgvx7").unwrap(), Offload::Whole)]);
        let tried = vxlan("eth0", 1, 8472);
        assert_eq!(still_known(&found, &tried, &tried), found);
        let others = [vxlan("eth1", 1, 8472), vxlan("eth0", 2, 8472), vxlan("eth0", 1, 4789), Tunnels::new()];
        for other in others {
            assert!(still_known(&found, &tried, &other).is_empty(), "{other:?}");
        }
    }
}
