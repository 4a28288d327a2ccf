//! The veth pair between a node and a pod, which bridged and routed attaches share.

use linux::{IfName, LinkKind, VethPeer};

use crate::draft::Draft;
use crate::links::{self, MacOf};
use crate::{NodeSpec, Pod};

/// Makes the pair: the pod's end is born in the pod's namespace under its final name, so that nothing in the node can
/// collide with it. Returns the name of the node's end; both ends are still down.
pub(super) fn pair(draft: &mut Draft<'_>, node: &NodeSpec, pod: &Pod, mtu: u32) -> IfName {
    let name = links::node_end(pod);
    let peer = VethPeer {
        name: pod.ifname.clone(),
        netns: Some(pod.netns.clone()),
        mtu: Some(mtu),
        mac: Some(links::pod_mac(node, pod, MacOf::Pod)),
    };
    let mac = links::pod_mac(node, pod, MacOf::NodeEnd);
    draft.link(&name, LinkKind::Veth { peer }, mtu, Some(mac));
    name
}
