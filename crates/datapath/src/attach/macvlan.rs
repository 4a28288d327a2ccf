//! An Ethernet address of its own on the node's wire for each pod.

use linux::features::Feature;
use linux::{LinkKind, MacvlanMode};
use plan::{Place, Plan, Step};

use crate::draft::Draft;
use crate::links::{self, MacOf};
use crate::trace::{Packets, Traces};
use crate::{Attach, NodeSpec, Pod, SpecError, Talk, Trace};

pub(crate) const MACVLAN: Macvlan = Macvlan;

/// A macvlan link in bridge mode, moved into the pod. All pods of the cluster are neighbours on one Ethernet, so they
/// have the cluster's prefix length and need no gateway to reach each other.
pub(crate) struct Macvlan;

impl Attach for Macvlan {
    fn name(&self) -> &'static str {
        "macvlan"
    }

    fn needs(&self) -> &'static [Feature] {
        &[Feature::Macvlan, Feature::Ipv6]
    }

    fn node(&self, _node: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let kind = LinkKind::Macvlan { parent: node.wire.clone(), mode: MacvlanMode::Bridge };
        let mut outside = Draft::at(&node.place);
        let (born, mac) = (links::born(pod), links::pod_mac(node, pod, MacOf::Pod));
        outside.link(&born, kind, mtu, Some(mac));

        let place = Place::Netns(pod.netns.clone());
        outside.step(Step::MoveLink { link: born, to: place.clone(), name: pod.ifname.clone() });
        let mut inside = Draft::at(&place);
        inside.up(&pod.ifname);
        inside.addresses(&pod.ifname, pod.addresses.within(node.cluster));

        let mut plan = outside.into_plan();
        plan.extend(inside.into_plan());
        Ok(plan)
    }

    /// The node forwards nothing: the driver hands packets over before the node would.
    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&Place::Netns(pod.netns.clone()), &pod.ifname, talk);
        traces.forwarded(&node.place, Packets::None);
        traces.into_list()
    }

    fn toward_node(&self, pod: &Pod, bare: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(neighbours(pod, bare))
    }
}

/// A pod on the wire and another node as neighbours, though their subnets differ: each finds the other's on its link.
pub(super) fn neighbours(pod: &Pod, bare: &NodeSpec) -> Plan {
    let place = Place::Netns(pod.netns.clone());
    let mut inside = Draft::at(&place);
    inside.routes_on(&pod.ifname, bare.underlay.alone());
    let mut outside = Draft::at(&bare.place);
    outside.routes_on(&bare.wire, bare.cluster.both());
    let mut plan = inside.into_plan();
    plan.extend(outside.into_plan());
    plan
}
