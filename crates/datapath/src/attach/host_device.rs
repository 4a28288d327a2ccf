//! A link of the node handed to a pod: a whole card, or a virtual function of one (SR-IOV).

use linux::features::Feature;
use plan::{Plan, SetLinkMtu, Step};

use super::macvlan::neighbourhood;
use crate::draft::Draft;
use crate::trace::{PacketDirection, Traces};
use crate::{Attach, NodeSpec, Pod, ReceiveLimit, SocketRole, SpecError, Talk, Trace};

pub(crate) const HOST_DEVICE: HostDevice = HostDevice;

/// The device is moved into the pod, and comes back under its name when the pod's plan is undone. Packets meet nothing
/// of the node on their way: where it is a virtual function, the card's own switch is all that checks them.
pub(crate) struct HostDevice;

impl Attach for HostDevice {
    fn name(&self) -> &'static str {
        "host-device"
    }

    fn needs(&self) -> &'static [Feature] {
        &[]
    }

    fn receive_limit(&self) -> ReceiveLimit {
        ReceiveLimit::Pod
    }

    fn needs_wire(&self) -> bool {
        false
    }

    fn leads_out(&self) -> bool {
        false
    }

    /// The device has one, and it stays.
    fn has_own_mac(&self) -> bool {
        false
    }

    fn node(&self, _node: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let mut plan = self.interface(node, pod, mtu)?;
        let mut inside = Draft::at(&pod.place, node.families());
        neighbourhood(&mut inside, node, pod, &pod.gateways, false);
        plan.extend(inside.into_plan());
        Ok(plan)
    }

    fn can_ask_wire(&self) -> bool {
        true
    }

    fn interface(&self, node: &NodeSpec, pod: &Pod, _mtu: u32) -> Result<Plan, SpecError> {
        let device = pod.device.as_ref().ok_or_else(|| SpecError {
            what: format!("pod {} of node {}", pod.id, node.id),
            why: "it has no device that would be moved into it".to_owned(),
        })?;
        let mut outside = Draft::at(&node.place, node.families());
        if let Some(rules) = &device.rules {
            outside.step(rules.clone());
        }
        let (link, to, name) = (device.link.clone(), pod.place.clone(), pod.ifname.clone());
        outside.step(Step::MoveLink { link, to, name });
        let mut inside = Draft::at(&pod.place, node.families());
        // Its own MTU is as good as any that could be guessed.
        if let Some(mtu) = node.network.mtu {
            inside.step(SetLinkMtu { link: pod.ifname.clone(), mtu });
        }
        inside.up(&pod.ifname);
        let mut plan = outside.into_plan();
        plan.extend(inside.into_plan());
        Ok(plan)
    }

    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&pod.place, &pod.ifname, talk);
        traces.forwarded(&node.place, PacketDirection::None);
        traces.into_list()
    }

    fn refuses_nodes(&self, _part: SocketRole) -> Option<&'static str> {
        Some("a device joins its pod to whatever it is plugged into")
    }
}
