//! Encrypted IP in IP between the nodes, without a device: IPsec's ESP in tunnel mode. The kernel's policies say
//! that packets between the prefixes of two nodes' pods have to be wrapped on the one node and to have been
//! wrapped on the other.
//!
//! Policies on pods' prefixes with a tunnel between the nodes' own addresses are what flannel's backend ipsec makes
//! (`AddXFRMPolicy` in pkg/backend/ipsec/handle_xfrm.go at 1cdb049e), and Cilium's encryption. From Cilium are the key
//! for each pair of nodes and direction, and the window of 1,024 packets (`getNodeIPsecKey` and `ipSecNewState` in
//! pkg/datapath/linux/ipsec/ipsec_linux.go at 00178492). flannel lets strongSwan agree on keys (IKE); here they are
//! given, as they are in Cilium.

use linux::features::Feature;
use linux::{EspTunnel, Route, XfrmDirection, XfrmPolicy, XfrmState};
use plan::{Plan, Step};

use crate::draft::Draft;
use crate::links;
use crate::trace::Traces;
use crate::{Association, Family, NodeSpec, Peer, Prefixes, SocketRole, SpecError, Talk, Trace, Transport};

pub(crate) const IPSEC: IpSec = IpSec;

/// Bytes of an outer IPv4 and an outer IPv6 header.
const OUTER_V4: u32 = 20;
const OUTER_V6: u32 = 40;
/// Bytes of ESP's header (RFC 4303 §2: number and sequence, 8), of the nonce's part that each packet has (RFC 4106
/// §3.1: 8), and of the tag at the end (RFC 4106 §6: 16).
const ESP_BYTES: u32 = 8 + 8 + 16;
/// Bytes of the length of the padding and the protocol, which are encrypted behind the packet (RFC 4303 §2.4, §2.6).
const TRAILER_BYTES: u32 = 2;
/// What is encrypted ends on a multiple of this (RFC 4303 §2.4).
const ALIGN_BYTES: u32 = 4;

/// A tunnel between the nodes' underlay addresses.
pub(crate) struct IpSec;

impl Transport for IpSec {
    fn name(&self) -> &'static str {
        "ipsec"
    }

    fn needs(&self) -> &'static [Feature] {
        &[Feature::IpSec]
    }

    /// As `xfrm_state_mtu` in net/xfrm/xfrm_state.c has it: what an outer packet has room for is used up to a multiple
    /// of [`ALIGN_BYTES`]. Longer packets would be fragmented, or refused.
    fn overhead_bytes(&self, outer: Family, underlay_mtu: u32) -> u32 {
        let outer_bytes = match outer {
            Family::V4 => OUTER_V4,
            Family::V6 => OUTER_V6,
        };
        let fixed = outer_bytes + ESP_BYTES;
        fixed + underlay_mtu.saturating_sub(fixed) % ALIGN_BYTES + TRAILER_BYTES
    }

    fn is_open_tunnel(&self) -> bool {
        false
    }

    /// There is no device that could have the node's address among the pods': loopback has it. What the node itself
    /// sends to pods comes from there, as the policies want it.
    fn node(&self, node: &NodeSpec) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        node.outer_address()?;
        let mut draft = Draft::at(&node.place, node.families());
        draft.addresses(&links::loopback(), node.pods.networks().alone());
        Ok(draft.into_plan())
    }

    /// The routes come last: when they attract packets, there are policies for them, and before these the associations
    /// that they ask for. What has no policy finds no neighbour on the wire, and does not leave unencrypted.
    fn peer(&self, node: &NodeSpec, peer: &Peer) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        let what = || format!("peer {} of node {}", peer.id, node.id);
        let Some(associations) = &peer.associations else {
            let why = "its tunnel is encrypted, and no associations are given for it".to_owned();
            return Err(SpecError { what: what(), why });
        };
        if associations.send.key_file == associations.receive.key_file {
            let why = "both directions of its tunnel have one key, with which a nonce could be used twice"
                .to_owned();
            return Err(SpecError { what: what(), why });
        }
        let (here, there) = (node.outer_address()?, node.outer_address_of(peer)?);
        let reqid = u32::from(node.network.id);
        let out = EspTunnel { src: here, dst: there, reqid };
        let back = EspTunnel { src: there, dst: here, reqid };
        let mut draft = Draft::at(&node.place, node.families());
        draft.association(back, &associations.receive);
        draft.association(out, &associations.send);
        policies(&mut draft, node, peer, [out, back]);
        routes(&mut draft, node, peer);
        Ok(draft.into_plan())
    }

    /// The wire alone. That they were encrypted on it shows in that they arrive: what comes from a node's pods without
    /// having been wrapped is dropped.
    fn traces(&self, node: &NodeSpec, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&node.place, &node.wire, talk);
        traces.into_list()
    }

    /// As [`super::vxlan::VXLAN`]: a node calls pods from its address among the pods', and is not itself
    /// called by the tunnel.
    fn refuses_nodes(&self, part: SocketRole) -> Option<&'static str> {
        super::vxlan::VXLAN.refuses_nodes(part)
    }
}

impl Draft<'_> {
    fn association(&mut self, tunnel: EspTunnel, Association { spi, key_file }: &Association) {
        let state = XfrmState { tunnel, spi: *spi };
        self.step(Step::AddXfrmState { state, key_file: key_file.clone() });
    }
}

/// What goes to a peer's pods is wrapped, whoever sent it. What comes from them must have been wrapped, be it for pods
/// or for the node itself; what else comes out of the tunnel has no policy that lets it pass, and is dropped.
fn policies(draft: &mut Draft<'_>, node: &NodeSpec, peer: &Peer, [out, back]: [EspTunnel; 2]) {
    for theirs in node.reachable(peer).iter() {
        let family = Family::of(theirs.addr());
        let mut policy = |direction, src, dst, tunnel| {
            draft.step(Step::AddXfrmPolicy(XfrmPolicy { direction, src, dst, tunnel }));
        };
        for own in node.pods.of(family) {
            policy(XfrmDirection::In, theirs, own, back);
            policy(XfrmDirection::Forward, theirs, own, back);
        }
        for anywhere in Prefixes::everywhere(&[family]).iter() {
            policy(XfrmDirection::Out, anywhere, theirs, out);
        }
    }
}

/// The outer packets find their way by themselves; these lead to the link by which they leave, and to the
/// source that the node itself is to have. The hop of IPv6, which no packet takes, is there for the same
/// reason as in [`super::wireguard::WireGuard::peer`].
fn routes(draft: &mut Draft<'_>, node: &NodeSpec, peer: &Peer) {
    let reachable = node.reachable(peer);
    let (own, hops) = (node.pods.networks(), links::tunnel_hops(peer, &reachable));
    for dst in reachable.iter() {
        let family = Family::of(dst.addr());
        let via = if family == Family::V6 { hops.of(family) } else { None };
        let route = Route::on_link(dst, node.wire.clone());
        draft.step(Step::AddRoute(Route { via, onlink: via.is_some(), src: own.of(family), ..route }));
    }
}
