//! What is switched off at tunnels whose packets a card breaks, and the tunnels that are still to be tried.

use std::collections::BTreeMap;

use datapath::{Family, Prefixes};
use linux::ethtool::{NicFeature, NicParameter};
use linux::{IfName, Link, LinkKind};

use plan::{Place, Plan, Set, SetNic, Step};

use super::DesiredPeer;
use crate::backend::VXLAN;
use crate::offload::{Offload, OffloadFault, Tunnel};

/// Adds to the node's plan what switches off the faults: those that were found, and those for which something is
/// switched off as the node stands, as long as the tunnel is the same. Whether that is still necessary could be found
/// out only by sending broken packets again.
///
/// A tunnel of which nothing is known has the fault of the other one, behind which is the same card. With IPv6 it
/// cannot be tried while the other nodes' cards break packets, too: their kernels leave the checksum of a reset to the
/// card, and over IPv4 they do not.
pub(super) fn switch_off(
    plan: &mut Plan,
    found: &BTreeMap<IfName, Offload>,
    standing: Option<&Plan>,
) -> BTreeMap<IfName, OffloadFault> {
    let own_fault = |link: &Link| match found.get(&link.name) {
        Some(Offload::Faulty(fault)) => Some(*fault),
        Some(Offload::Whole) | None => standing_fault(link, standing?),
    };
    let of_any = tunnels_of(plan).find_map(own_fault);
    let fault = |link: &Link| {
        let of_other = of_any.filter(|_| !found.contains_key(&link.name));
        Some((link.name.clone(), own_fault(link).or(of_other)?))
    };
    let faults: BTreeMap<IfName, OffloadFault> = tunnels_of(plan).filter_map(fault).collect();
    for (link, fault) in &faults {
        for feature in features(*fault) {
            let parameter = NicParameter::Feature(*feature);
            let set = SetNic { link: link.clone(), parameter, value: 0 };
            plan.push(&Place::Host, Step::Set(Set::Nic(set)));
        }
    }
    faults
}

/// Whom to ask through each tunnel of a plan.
pub(super) fn to_try(
    plan: &Plan,
    faults: &BTreeMap<IfName, OffloadFault>,
    own: &Prefixes,
    peers: &BTreeMap<String, DesiredPeer>,
) -> BTreeMap<IfName, Tunnel> {
    let tunnel = |link: &Link| {
        let LinkKind::Vxlan(vxlan) = &link.kind else { return None };
        let family = Family::of(vxlan.local);
        let ends = |pods: &Prefixes| pods.only(&[family]).networks();
        let behind = |peer: &DesiredPeer| match peer {
            DesiredPeer::Reached { lease, by, .. } if by.get(&family) == Some(&VXLAN) => {
                ends(&lease.pods).iter().next()
            }
            DesiredPeer::Reached { .. } | DesiredPeer::Refused(_) => None,
        };
        let to = peers.values().filter_map(behind).collect();
        let from = ends(own).iter().next()?;
        Some((link.name.clone(), Tunnel { kind: link.kind.clone(), from, to }))
    };
    let is_whole = |link: &&Link| !faults.contains_key(&link.name);
    tunnels_of(plan).filter(is_whole).filter_map(tunnel).filter(|(_, tunnel)| !tunnel.to.is_empty()).collect()
}

/// Large packets are cut by the kernel, too, where it fills in the checksums.
fn features(fault: OffloadFault) -> &'static [NicFeature] {
    match fault {
        OffloadFault::Checksums => &[NicFeature::TxChecksum],
        OffloadFault::Segmentation => &[NicFeature::TsoIpv4, NicFeature::TsoIpv6],
    }
}

fn standing_fault(link: &Link, standing: &Plan) -> Option<OffloadFault> {
    let is_same = tunnels_of(standing).any(|other| other.name == link.name && other.kind == link.kind);
    let is_off = |feature: NicFeature| {
        standing.steps.iter().any(|placed| match &placed.step {
            Step::Set(Set::Nic(set)) => {
                set.link == link.name && set.parameter == NicParameter::Feature(feature) && set.value == 0
            }
            _ => false,
        })
    };
    let all = [OffloadFault::Checksums, OffloadFault::Segmentation];
    all.into_iter().find(|fault| is_same && features(*fault).iter().all(|feature| is_off(*feature)))
}

/// The tunnels that a plan makes, or has found.
pub(super) fn tunnels_of(plan: &Plan) -> impl Iterator<Item = &Link> {
    let links = plan.steps.iter().filter_map(|placed| placed.step.link());
    links.filter(|link| matches!(link.kind, LinkKind::Vxlan(_)))
}
