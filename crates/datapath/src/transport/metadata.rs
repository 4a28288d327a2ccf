//! One tunnel device for all peers, which gets the other end with each packet: from our programs, or, for what they
//! leave to the kernel, from the route. It goes with the `ebpf-tunnel` attach, whose programs it uses.

use bpf::forward::Program;
use linux::features::Feature;
use linux::{Encap, LinkKind, Route};
use plan::forwarding::Tunnel;
use plan::{Plan, Step};

use super::vxlan;
use crate::draft::{Draft, with_hops};
use crate::links;
use crate::rules::tunnel;
use crate::trace::Traces;
use crate::{Family, NodeSpec, Peer, SpecError, Talk, Trace, Transport};

pub(crate) const VXLAN_METADATA: Metadata = Metadata;

/// A vxlan device in metadata mode (`external`).
///
/// What pods send keeps its Ethernet header, which has the gateway's address: that is the same on all nodes, and the
/// program at the device's end takes such a frame for the node's. What the node itself sends goes from tunnel end to
/// tunnel end; these have addresses of their own, since the device drops frames that come from its own.
pub(crate) struct Metadata;

impl Transport for Metadata {
    fn name(&self) -> &'static str {
        "vxlan-metadata"
    }

    fn needs(&self) -> &'static [Feature] {
        &[Feature::VxlanExternal, Feature::BpfTc, Feature::Nftables]
    }

    fn overhead_bytes(&self, outer: Family, underlay_mtu: u32) -> u32 {
        vxlan::VXLAN.overhead_bytes(outer, underlay_mtu)
    }

    fn is_open_tunnel(&self) -> bool {
        true
    }

    fn node(&self, node: &NodeSpec) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        let device = links::vxlan(&node.network);
        let mtu = node.wire_mtu - self.overhead_bytes(node.outer, node.wire_mtu);
        let mut draft = Draft::at(&node.place, node.families());
        // The device opens its port in both families.
        draft.tables(Family::BOTH.map(|outer| tunnel::table(node, outer)));
        let kind = LinkKind::VxlanExternal { port: node.network.port };
        draft.link(&device, kind, mtu, Some(links::own_tunnel_end_mac(node)));
        draft.program(node, Program::FromTunnel, &device);
        draft.up(&device);
        draft.addresses(&device, node.pods.networks().alone());
        Ok(draft.into_plan())
    }

    fn peer(&self, node: &NodeSpec, peer: &Peer) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        let device = links::vxlan(&node.network);
        let reachable = node.reachable(peer);
        let (hops, remote) = (links::tunnel_hops(peer, &reachable), node.outer_address_of(peer)?);
        let mut draft = Draft::at(&node.place, node.families());
        draft.neighbours(&device, hops.iter(), links::tunnel_end_mac(peer));
        for (prefix, via) in with_hops(&reachable, &hops) {
            let encap = Some(Encap { id: node.network.vni, remote });
            draft.step(Step::AddRoute(Route {
                onlink: true,
                encap,
                ..Route::via(prefix, via, device.clone())
            }));
            draft.step(Step::AddTunnel(Tunnel {
                node: node.programs(),
                prefix,
                device: device.clone(),
                remote,
            }));
        }
        Ok(draft.into_plan())
    }

    /// The wire alone. Programs wrap and unwrap what they can themselves, past the device; what the kernel's own path
    /// would wrap instead shows in the node's routing.
    fn traces(&self, node: &NodeSpec, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&node.place, &node.wire, talk);
        traces.into_list()
    }
}
