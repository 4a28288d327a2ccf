//! The pair of links between a node and a pod, which bridged and routed attaches share.

use linux::{IfName, LinkKind, Mac, VethPeer};

use crate::draft::Draft;
use crate::links;
use crate::{NodeSpec, Pod};

/// Which kind of pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pair {
    /// What is sent at one end arrives at the other, by way of the CPU's backlog.
    Veth,
    /// The same, but a program at the node's end sees a packet before it gets there.
    Netkit,
}

/// Makes the pair: the pod's end is born in the pod's namespace under its final name, so that nothing in the node can
/// collide with it. Returns the name of the node's end, which has the given Ethernet address; both ends are still down.
pub(super) fn pair(
    draft: &mut Draft<'_>,
    node: &NodeSpec,
    pod: &Pod,
    mtu: u32,
    pair: Pair,
    node_end: Mac,
) -> IfName {
    let name = links::node_end(pod);
    let peer = VethPeer {
        name: pod.ifname.clone(),
        netns: pod.place.netns(),
        mtu: Some(mtu),
        mac: Some(links::pod_mac(node, pod)),
    };
    let kind = match pair {
        Pair::Veth => LinkKind::Veth { peer },
        Pair::Netkit => LinkKind::Netkit { peer },
    };
    draft.link(&name, kind, mtu, Some(node_end));
    name
}
