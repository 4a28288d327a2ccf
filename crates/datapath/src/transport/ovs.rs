//! Tunnels as ports of the nodes' Open vSwitch: all pods of the network are on one Ethernet, and no node routes for
//! them. The switch learns behind which tunnel a pod is, and what comes in by a tunnel goes out by none.

use linux::features::Feature;
use plan::switching::{OvsDatapathType, OvsPort, OvsTunnel, OvsTunnelKind};
use plan::{Plan, Step};

use crate::draft::Draft;
use crate::links;
use crate::trace::Traces;
use crate::{Family, NodeSpec, Peer, SocketRole, SpecError, Talk, Trace, Transport};

pub(crate) const OVS_VXLAN: Tunnels = Tunnels { kind: OvsTunnelKind::Vxlan };
pub(crate) const OVS_GENEVE: Tunnels = Tunnels { kind: OvsTunnelKind::Geneve };

/// Bytes of the outer IPv4 (20), UDP (8), VXLAN or GENEVE without options (8) and inner Ethernet (14) headers.
const OVERHEAD_V4: u32 = 50;
/// The same with an outer IPv6 header of 40 bytes.
const OVERHEAD_V6: u32 = 70;

/// A tunnel to each peer, with the nodes' underlay addresses as its ends.
pub(crate) struct Tunnels {
    kind: OvsTunnelKind,
}

impl Transport for Tunnels {
    fn name(&self) -> &'static str {
        match self.kind {
            OvsTunnelKind::Vxlan => "ovs-vxlan",
            OvsTunnelKind::Geneve => "ovs-geneve",
        }
    }

    fn needs(&self) -> &'static [Feature] {
        match self.kind {
            OvsTunnelKind::Vxlan => &[Feature::OpenVSwitch, Feature::Vxlan],
            OvsTunnelKind::Geneve => &[Feature::OpenVSwitch, Feature::OpenVSwitchGeneve],
        }
    }

    fn overhead_bytes(&self, outer: Family, _underlay_mtu: u32) -> u32 {
        match outer {
            Family::V4 => OVERHEAD_V4,
            Family::V6 => OVERHEAD_V6,
        }
    }

    fn is_open_tunnel(&self) -> bool {
        true
    }

    /// Those that IANA gave, which Open vSwitch has too.
    fn usual_port(&self) -> u16 {
        match self.kind {
            OvsTunnelKind::Vxlan => 4789,
            OvsTunnelKind::Geneve => 6081,
        }
    }

    fn node(&self, node: &NodeSpec) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        node.outer_address()?;
        Ok(Plan::new())
    }

    fn peer(&self, node: &NodeSpec, peer: &Peer) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        let tunnel = OvsTunnel {
            kind: self.kind,
            vni: node.network.vni,
            port: node.network.port,
            local: node.outer_address()?,
            remote: node.outer_address_of(peer)?,
        };
        let mut draft = Draft::at(&node.place, node.families());
        draft.step(Step::AddOvsPort(OvsPort {
            node: node.programs(),
            bridge: links::bridge(&node.network),
            name: links::tunnel_port(peer),
            datapath: OvsDatapathType::System,
            tunnel: Some(tunnel),
            vhost_user: false,
        }));
        Ok(draft.into_plan())
    }

    fn traces(&self, node: &NodeSpec, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&node.place, &self.kind.device(node.network.port), talk);
        traces.outward(&node.place, &node.wire, talk);
        traces.into_list()
    }

    fn refuses_nodes(&self, part: SocketRole) -> Option<&'static str> {
        Some(match part {
            SocketRole::Client => "packets of a pod to another node's own address do not enter the tunnel",
            SocketRole::Server => "a node without pods has no switch to which a tunnel could lead",
        })
    }
}
