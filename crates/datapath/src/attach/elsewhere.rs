//! The attach of pods that another program connects, such as a CNI plugin: the node only forwards for them.

use linux::features::Feature;
use plan::Plan;

use crate::draft::Draft;
use crate::trace::{PacketCounter, Traces};
use crate::{Attach, NodeSpec, Pod, SocketRole, SpecError, Talk, Trace};

pub(crate) const ELSEWHERE: Elsewhere = Elsewhere;

/// What a node agent does before any plugin is called, and nothing of a pod's own.
///
/// Links that a plugin makes take their settings from `default`: without duplicate address detection, as with every
/// other attach ([`Draft::up`]), since each prefix is one node's alone.
pub(crate) struct Elsewhere;

impl Attach for Elsewhere {
    fn name(&self) -> &'static str {
        "elsewhere"
    }

    fn needs(&self) -> &'static [Feature] {
        &[]
    }

    fn node(&self, node: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        let mut draft = Draft::at(&node.place, node.families());
        draft.forwarding();
        draft.later_links_without_detection();
        Ok(draft.into_plan())
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, _mtu: u32) -> Result<Plan, SpecError> {
        let mut draft = Draft::at(&pod.place, node.families());
        draft.later_links_without_detection();
        Ok(draft.into_plan())
    }

    /// How the node is passed is the plugin's to choose.
    fn traces(&self, _node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.count(&pod.place, PacketCounter::Sent(pod.ifname.clone()), talk.sent());
        traces.into_list()
    }

    fn refuses_nodes(&self, _part: SocketRole) -> Option<&'static str> {
        Some("CNI plugins join the pods of both sides")
    }
}
