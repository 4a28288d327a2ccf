//! Open vSwitch in the node with a veth pair to each pod. The node has daemons of its own, and their switch
//! forwards as a bridge that learns: no flows but its one rule `NORMAL`. It does so in the kernel, or in the
//! daemon, with ports of AF_XDP; if that has DPDK, its threads poll them, and a program can have a pod's place.

use linux::ethtool::{NicFeature, NicParameter};
use linux::features::Feature;
use plan::switching::{OvsBridge, OvsDatapathType, OvsDpdk, OvsPort, OvsSwitch};
use plan::{Plan, SetNic, Step};

use super::bridge::{behind_port, inside, port_traces};
use super::macvlan::neighbourhood;
use super::veth::{self, Pair};
use crate::draft::Draft;
use crate::links::{self, MacOf};
use crate::trace::{PacketDirection, Traces};
use crate::{Attach, NodeSpec, Pod, ReceiveLimit, SpecError, Talk, Trace};

pub(crate) const OVS: Ovs = Ovs { beyond: Beyond::Routed, datapath: OvsDatapathType::System };
pub(crate) const OVS_TUNNEL: Ovs = Ovs { beyond: Beyond::Switched, datapath: OvsDatapathType::System };
pub(crate) const OVS_AF_XDP: Ovs = Ovs { beyond: Beyond::Routed, datapath: OvsDatapathType::Netdev };
pub(crate) const OVS_DPDK: Ovs = Ovs { beyond: Beyond::Routed, datapath: OvsDatapathType::Dpdk };

/// The largest MTU of a veth link that has a program at its XDP hook, in bytes: a page less what the kernel keeps
/// before and behind a packet (`veth_xdp_set` in drivers/net/veth.c), and a little for machines that keep more.
const AF_XDP_MTU_MAX: u32 = 3490;

/// A switch that is the pods' gateway.
pub(crate) struct Ovs {
    beyond: Beyond,
    datapath: OvsDatapathType,
}

/// How pods of other nodes are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    /// By the gateway: the node routes.
    Routed,
    /// As neighbours, by tunnels that are ports of the switch.
    Switched,
}

impl Attach for Ovs {
    fn name(&self) -> &'static str {
        match (self.beyond, self.datapath) {
            (Beyond::Routed, OvsDatapathType::System) => "ovs",
            (Beyond::Routed, OvsDatapathType::Netdev) => "ovs-afxdp",
            (Beyond::Routed, OvsDatapathType::Dpdk) => "ovs-dpdk",
            (Beyond::Switched, _) => "ovs-tunnel",
        }
    }

    fn needs(&self) -> &'static [Feature] {
        match self.datapath {
            OvsDatapathType::System => &[Feature::Veth, Feature::OpenVSwitch],
            OvsDatapathType::Netdev => &[Feature::Veth, Feature::AfXdp, Feature::OpenVSwitchAfXdp],
            OvsDatapathType::Dpdk => {
                &[Feature::Veth, Feature::AfXdp, Feature::OpenVSwitchAfXdp, Feature::OpenVSwitchDpdk]
            }
        }
    }

    /// What the daemon sends by AF_XDP enters the driver past the link's queue.
    fn receive_limit(&self) -> ReceiveLimit {
        match self.datapath {
            OvsDatapathType::System => ReceiveLimit::NodeEnd,
            OvsDatapathType::Netdev | OvsDatapathType::Dpdk => ReceiveLimit::Pod,
        }
    }

    fn takes_vhost_user(&self) -> bool {
        self.datapath == OvsDatapathType::Dpdk
    }

    fn needs_wire(&self) -> bool {
        false
    }

    fn has_neighbours(&self) -> bool {
        true
    }

    fn node(&self, node: &NodeSpec, mtu: u32) -> Result<Plan, SpecError> {
        self.check_mtu(node, mtu)?;
        let name = links::bridge(&node.network);
        let mac = links::node_mac(node, MacOf::Bridge);
        let mut draft = Draft::at(&node.place, node.families());
        let datapath = self.datapath;
        let dpdk = (datapath == OvsDatapathType::Dpdk).then(|| OvsDpdk { poll_cpus: node.poll_cpus.clone() });
        draft.step(Step::StartOvs(OvsSwitch { node: node.programs(), dpdk }));
        let bridge = OvsBridge { node: node.programs(), name: name.clone(), mac, mtu, datapath };
        draft.step(Step::AddOvsBridge(bridge));
        draft.up(&name);
        draft.addresses(&name, node.gateways());
        draft.forwarding();
        Ok(draft.into_plan())
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let mut outside = Draft::at(&node.place, node.families());
        if pod.vhost_user {
            outside.step(Step::AddOvsPort(self.port(node, pod)));
            return Ok(outside.into_plan());
        }
        let link = veth::pair(&mut outside, node, pod, mtu, Pair::Veth, links::port_mac(node, pod));
        outside.up(&link);
        outside.step(Step::AddOvsPort(self.port(node, pod)));

        let mut plan = outside.into_plan();
        if self.datapath != OvsDatapathType::System {
            plan.push(&pod.place, whole_checksums(pod));
        }
        plan.extend(match self.beyond {
            Beyond::Routed => inside(node, pod),
            Beyond::Switched => {
                let mut inside = Draft::at(&pod.place, node.families());
                inside.up(&pod.ifname);
                neighbourhood(&mut inside, node, pod, &node.gateways_of(pod), false);
                inside.into_plan()
            }
        });
        Ok(plan)
    }

    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        match self.beyond {
            Beyond::Routed if pod.vhost_user => behind_port(node, talk),
            Beyond::Routed => port_traces(node, pod, talk),
            Beyond::Switched => {
                let mut traces = Traces::default();
                traces.outward(&pod.place, &pod.ifname, talk);
                traces.inward(&node.place, &links::node_end(pod), talk);
                traces.forwarded(&node.place, PacketDirection::None);
                traces.into_list()
            }
        }
    }
}

impl Ovs {
    fn port(&self, node: &NodeSpec, pod: &Pod) -> OvsPort {
        OvsPort {
            node: node.programs(),
            bridge: links::bridge(&node.network),
            name: links::node_end(pod),
            datapath: self.datapath,
            tunnel: None,
            vhost_user: pod.vhost_user,
        }
    }

    fn check_mtu(&self, node: &NodeSpec, mtu: u32) -> Result<(), SpecError> {
        if self.datapath != OvsDatapathType::System && mtu > AF_XDP_MTU_MAX {
            return Err(SpecError {
                what: format!("node {}", node.id),
                why: format!(
                    "its pods' MTU would be {mtu} bytes, and a veth link with a program of AF_XDP has {AF_XDP_MTU_MAX} at most"
                ),
            });
        }
        Ok(())
    }
}

/// A socket leaves checksums to the link, and large packets too. AF_XDP hands frames over without a note of that: what
/// was left would never be done.
fn whole_checksums(pod: &Pod) -> SetNic {
    let parameter = NicParameter::Feature(NicFeature::TxChecksum);
    SetNic { link: pod.ifname.clone(), parameter, value: 0 }
}
