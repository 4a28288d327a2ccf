//! A routed link to each pod, as [`super::ptp`] makes it, with our programs on it: packets between pods and the wire
//! pass by routing, netfilter and the CPU's backlog. The routed path stays whole under them, for what they leave to it.

use bpf::forward::{Program, TunnelEnd};
use linux::features::Feature;
use plan::forwarding::{Endpoint, Member, ProgramAttachment, Programs, Splice};
use plan::{Plan, Step};

use super::ptp::{self, GATEWAY, GATEWAY_V4};
use super::veth::Pair;
use crate::draft::Draft;
use crate::links;
use crate::rules::border;
use crate::trace::{PacketCounter, PacketDirection, Traces};
use crate::{
    Addresses, AntiSpoofing, Attach, Network, NodeSpec, Pod, Protocol, ReceiveLimit, SocketRole, SpecError,
    Talk, Trace, With,
};

/// Veth pairs, to nodes on the same wire.
pub(crate) const EBPF: Ebpf = Ebpf { name: "ebpf", pair: Pair::Veth, beside: Beside::Nothing };
/// Veth pairs, to nodes at the other end of a tunnel.
pub(crate) const EBPF_TUNNEL: Ebpf = Ebpf { name: "ebpf-tunnel", pair: Pair::Veth, beside: Beside::Tunnel };
/// Veth pairs, to nodes behind a device that wraps what the kernel's own path leads to it.
pub(crate) const EBPF_ROUTED: Ebpf = Ebpf { name: "ebpf-routed", pair: Pair::Veth, beside: Beside::Device };
/// Veth pairs, to nodes for which the kernel's policies wrap what its own path leads there.
pub(crate) const EBPF_POLICIES: Ebpf =
    Ebpf { name: "ebpf-policies", pair: Pair::Veth, beside: Beside::Policies };
/// Veth pairs, and a short cut for TCP between pods of one node, to nodes on the same wire.
pub(crate) const EBPF_SOCKMAP: Ebpf = Ebpf { name: "ebpf-sockmap", pair: Pair::Veth, beside: Beside::Splice };
/// Netkit pairs, which hand a packet to the program while the pod sends it.
pub(crate) const NETKIT: Ebpf = Ebpf { name: "netkit", pair: Pair::Netkit, beside: Beside::Nothing };

/// Routed links with programs. Pods of several such attaches can be on one node, where one has made the node.
pub(crate) struct Ebpf {
    name: &'static str,
    pair: Pair,
    beside: Beside,
}

/// What a node has beside the programs at its links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// A tunnel's end, which the programs use too.
    Tunnel,
    /// A tunnel's end that is the kernel's alone. The programs find that a route leads there, and leave the packet to
    /// it: they redirect to the wire, or to a tunnel of their own, and nothing past a device that encrypts. So what a
    /// pod exchanges with pods of its node goes past the kernel's path, and all that it sends is checked.
    Device,
    /// The kernel's policies of IPsec, which wrap without a device. What was unwrapped enters by the wire once more. A
    /// program there would hand it to its pod past the policy that asks whether it was wrapped, and a bare packet
    /// likewise. So none hangs there, and the programs of pods are given the loopback for a wire: no route to another
    /// node leads there, and all that goes to one is left to the kernel.
    Policies,
    /// Programs at sockets, by which two pods of the node speak past TCP. The sockets are those that are opened by
    /// tasks in a control group of the node.
    Splice,
}

impl Attach for Ebpf {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> &'static [Feature] {
        match self.pair {
            Pair::Veth if self.beside == Beside::Splice => {
                &[Feature::Veth, Feature::Nftables, Feature::BpfTc, Feature::BpfSockets]
            }
            Pair::Veth => &[Feature::Veth, Feature::Nftables, Feature::BpfTc],
            Pair::Netkit => &[Feature::Netkit, Feature::Nftables, Feature::BpfTc],
        }
    }

    fn masquerades(&self) -> bool {
        true
    }

    fn receive_limit(&self) -> ReceiveLimit {
        match self.beside {
            Beside::Splice => {
                ReceiveLimit::Nowhere("a neighbour's bytes come to its sockets past every link")
            }
            Beside::Nothing | Beside::Tunnel | Beside::Device | Beside::Policies => ReceiveLimit::NodeEnd,
        }
    }

    fn binds_pods(&self) -> bool {
        true
    }

    fn anti_spoofing(&self) -> AntiSpoofing {
        AntiSpoofing::Always
    }

    fn node(&self, node: &NodeSpec, mtu: u32) -> Result<Plan, SpecError> {
        let mut draft = Draft::at(&node.place, node.families());
        draft.forwarding();
        draft.tables(border::tables(node));
        let (local, Network { vni, port, .. }) = (node.outer_address(), &node.network);
        let tunnel = match self.beside {
            Beside::Tunnel => Some(TunnelEnd { local: local?, vni: *vni, port: *port }),
            Beside::Nothing | Beside::Device | Beside::Policies | Beside::Splice => None,
        };
        let by_policy = self.beside == Beside::Policies;
        draft.step(Step::LoadPrograms(Programs {
            node: node.programs(),
            wire: if by_policy { links::loopback() } else { node.wire.clone() },
            mtu,
            gateway: GATEWAY_V4,
            gateway_mac: links::gateway_mac(),
            pods: node.pods.iter().collect(),
            cluster: node.network.prefixes.iter().collect(),
            tunnel,
        }));
        if !by_policy {
            draft.program(node, Program::FromWire, &node.wire);
        }
        if self.beside == Beside::Splice {
            let splice = Splice { node: node.programs() };
            draft.step(Step::LoadSplice(splice.clone()));
            draft.step(Step::AddCgroup(splice.clone()));
            draft.step(Step::AttachSplice(splice));
        }
        Ok(draft.into_plan())
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let (mut outside, link) = ptp::link(node, pod, mtu, self.pair, links::gateway_mac());
        outside.up(&link);
        // The kernel answers neighbour solicitations for an address that a link has; for IPv4 the program does.
        outside.addresses(&link, Addresses { v4: None, ..GATEWAY }.only(node.families()).alone());
        // Before the pod can send: it is bound to its addresses from its first packet.
        let program = match self.pair {
            Pair::Veth => Program::FromPod,
            Pair::Netkit => Program::FromNetkit,
        };
        outside.program(node, program, &link);
        outside.step(Step::AddEndpoint(Endpoint {
            node: node.programs(),
            link: link.clone(),
            mac: links::pod_mac(node, pod),
            addresses: pod.addresses.iter().collect(),
            queued: pod.limits.receive.is_some(),
        }));

        let mut plan = outside.into_plan();
        plan.extend(ptp::inside(node, pod, links::gateway_mac()));
        plan.extend(ptp::routes(node, pod, &link));
        if self.beside == Beside::Splice {
            let member = Member { node: node.programs(), addresses: pod.addresses.iter().collect() };
            plan.push(&pod.place, Step::AddMember(member));
        }
        Ok(plan)
    }

    /// The programs do what the node's routing would. What a pod receives is not counted, unless its link has a queue:
    /// before Linux 6.7 a link does not count what a program hands to it.
    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        if matches!(self.beside, Beside::Device | Beside::Policies) && talk.with == With::Remote {
            return ptp::PTP.traces(node, pod, talk);
        }
        let mut traces = Traces::default();
        traces.forwarded(&node.place, PacketDirection::None);
        let is_spliced =
            self.beside == Beside::Splice && talk.with == With::Neighbour && talk.protocol == Protocol::Tcp;
        if is_spliced {
            let splice = Splice { node: node.programs() };
            traces.count(&node.place, PacketCounter::Spliced(splice), PacketDirection::Both);
            return traces.into_list();
        }
        traces.count(&pod.place, PacketCounter::Sent(pod.ifname.clone()), talk.sent());
        if self.pair == Pair::Veth {
            // The kernel's own path sends by the node's end of the pair, the programs only to a pod
            // whose queue is there.
            let packets = if pod.limits.receive.is_some() { talk.received() } else { PacketDirection::None };
            traces.count(&node.place, PacketCounter::Sent(links::node_end(pod)), packets);
        }
        traces.into_list()
    }

    /// Traffic that leaves or enters the cluster may be translated, so the programs leave it to the kernel's own
    /// path. A node that sends through a tunnel uses an address within the cluster, and its packets go as those
    /// of its pods do.
    fn refuses_nodes(&self, part: SocketRole) -> Option<&'static str> {
        let has_tunnel = matches!(self.beside, Beside::Tunnel | Beside::Device | Beside::Policies);
        let is_inside = has_tunnel && part == SocketRole::Server;
        (!is_inside).then_some(
            "its programs forward only traffic between pods; traffic between a pod and another node's own address \
            takes the kernel's path",
        )
    }

    /// The tunnel's end of a node is its programs' too.
    fn toward_node(&self, _pod: &Pod, bare: &NodeSpec, mtu: u32) -> Result<Plan, SpecError> {
        match self.beside {
            Beside::Tunnel => self.node(bare, mtu),
            Beside::Nothing | Beside::Device | Beside::Policies | Beside::Splice => Ok(Plan::new()),
        }
    }
}

impl Draft<'_> {
    /// Attaches a program of the node.
    pub(crate) fn program(&mut self, node: &NodeSpec, program: Program, link: &linux::IfName) {
        self.step(Step::AttachProgram(ProgramAttachment {
            node: node.programs(),
            program,
            link: link.clone(),
            at_once: false,
        }));
    }
}
