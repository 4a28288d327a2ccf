//! The list of data paths: a new one is a line here.

use super::{Between, DataPath, Enters, Reach};
use crate::attach::{
    BRIDGE, DOCKER as DOCKER_BRIDGE, EBPF, EBPF_POLICIES, EBPF_ROUTED, EBPF_SOCKMAP, EBPF_TUNNEL, ELSEWHERE,
};
use crate::attach::{
    HOST as NODE_ITSELF, HOST_DEVICE, IPVLAN_L2, IPVLAN_L3, IPVLAN_L3S, MACVLAN as MACVLAN_LINK, NETKIT, OVS,
    OVS_AF_XDP, OVS_DPDK, OVS_TUNNEL, PASTA, PTP, SLIRP4NETNS,
};
use crate::transport::vxlan::VXLAN;
use crate::transport::{DIRECT, IPSEC, ONLINK, OVS_GENEVE, OVS_VXLAN, VPC, VXLAN_METADATA, WIREGUARD};
use crate::{Attach, Transport};

/// Every data path, in display order.
pub const ALL: &[DataPath] = &[
    DataPath {
        name: "host",
        stands_for: "`--net=host`, the reference",
        attach: &NODE_ITSELF,
        transport: &ONLINK,
        reach: Reach::Node,
        between: Between::Wire,
        enters: Enters::Always,
    },
    DataPath {
        name: "docker",
        stands_for: "Docker's default: a bridge with NAT and published ports",
        attach: &DOCKER_BRIDGE,
        transport: &ONLINK,
        reach: Reach::PublishedPort,
        between: Between::Wire,
        enters: Enters::Always,
    },
    DataPath {
        reach: Reach::PublishedPort,
        enters: Enters::Named,
        ..routed(
            "pasta",
            "rootless Podman since 5.0: a pod's connections by sockets of pasta",
            &PASTA,
            &ONLINK,
        )
    },
    DataPath {
        reach: Reach::PublishedPort,
        enters: Enters::Named,
        ..routed(
            "slirp4netns",
            "rootless Podman before 5.0, rootless Docker: a pod's connections by the TCP of slirp4netns",
            &SLIRP4NETNS,
            &ONLINK,
        )
    },
    routed("bridge+direct", "flannel host-gw", &BRIDGE, &DIRECT),
    DataPath {
        between: Between::Router,
        ..routed("bridge+vpc", "flannel aws-vpc: the route table of a cloud", &BRIDGE, &VPC)
    },
    routed("bridge+vxlan", "flannel vxlan", &BRIDGE, &VXLAN),
    DataPath {
        enters: Enters::Named,
        ..routed("bridge+wireguard", "flannel wireguard", &BRIDGE, &WIREGUARD)
    },
    DataPath { enters: Enters::Named, ..routed("bridge+ipsec", "flannel ipsec", &BRIDGE, &IPSEC) },
    routed("ptp+direct", "Calico's routed veth pairs, without its netfilter rules", &PTP, &DIRECT),
    routed("ptp+vxlan", "Calico's veth pairs and VXLAN, without its netfilter rules", &PTP, &VXLAN),
    DataPath {
        enters: Enters::Named,
        ..routed(
            "ptp+wireguard",
            "Calico's veth pairs and WireGuard, without its netfilter rules",
            &PTP,
            &WIREGUARD,
        )
    },
    DataPath {
        enters: Enters::Named,
        ..routed("ptp+ipsec", "routed veth pairs with flannel ipsec", &PTP, &IPSEC)
    },
    routed("ebpf+direct", "Cilium with native routing", &EBPF, &DIRECT),
    routed("ebpf+vxlan", "Cilium with VXLAN", &EBPF_TUNNEL, &VXLAN_METADATA),
    DataPath {
        enters: Enters::Named,
        ..routed("ebpf+wireguard", "Cilium with WireGuard and legacy host routing", &EBPF_ROUTED, &WIREGUARD)
    },
    DataPath {
        enters: Enters::Named,
        ..routed("ebpf+ipsec", "Cilium with IPsec and legacy host routing", &EBPF_POLICIES, &IPSEC)
    },
    DataPath {
        enters: Enters::Named,
        ..routed(
            "ebpf+sockmap",
            "ebpf+direct with TCP cut short between pods of one node",
            &EBPF_SOCKMAP,
            &DIRECT,
        )
    },
    routed("netkit+direct", "Cilium with netkit and native routing", &NETKIT, &DIRECT),
    routed("macvlan", "macvlan on the node's wire", &MACVLAN_LINK, &ONLINK),
    routed("ipvlan-l2", "ipvlan on the node's wire, switched", &IPVLAN_L2, &ONLINK),
    routed("ipvlan-l3", "ipvlan routed, past the node's netfilter on the way in", &IPVLAN_L3, &DIRECT),
    routed("ipvlan-l3s", "ipvlan routed, through the node's netfilter", &IPVLAN_L3S, &DIRECT),
    DataPath {
        enters: Enters::Named,
        ..routed("ovs+direct", "Open vSwitch in each node, and routes between them", &OVS, &DIRECT)
    },
    DataPath {
        enters: Enters::Named,
        ..routed("ovs+vxlan", "Open vSwitch with VXLAN tunnels as ports", &OVS_TUNNEL, &OVS_VXLAN)
    },
    DataPath {
        enters: Enters::Named,
        ..routed("ovs+geneve", "Open vSwitch with GENEVE tunnels as ports", &OVS_TUNNEL, &OVS_GENEVE)
    },
    DataPath {
        enters: Enters::Named,
        ..routed(
            "ovs-afxdp+direct",
            "Open vSwitch in user space with ports of AF_XDP, and routes between nodes",
            &OVS_AF_XDP,
            &DIRECT,
        )
    },
    DataPath {
        enters: Enters::Named,
        ..routed(
            "ovs-dpdk+direct",
            "Open vSwitch with DPDK, whose threads poll, and routes between nodes",
            &OVS_DPDK,
            &DIRECT,
        )
    },
];

/// What nodes do for pods that CNI plugins join to them: flannel host-gw without its bridge. It is in no list: alone it
/// joins nothing, and a pod's address is what the plugins say.
pub const CNI: DataPath = routed("cni", "CNI plugins on routes between nodes", &ELSEWHERE, &DIRECT);

/// Each transport that an agent keeps on its node, alone: CNI plugins join the pods.
pub const BACKENDS: &[DataPath] = &[
    routed("direct", "flannel host-gw", &ELSEWHERE, &DIRECT),
    routed("vxlan", "flannel vxlan", &ELSEWHERE, &VXLAN),
    routed("wireguard", "flannel wireguard", &ELSEWHERE, &WIREGUARD),
];

/// Each attach alone, for nodes on which another program makes the routes to other nodes' pods, or none does.
pub const ATTACHES: &[DataPath] = &[
    routed("bridge", "bridge with flannel's rules", &BRIDGE, &ONLINK),
    routed("ptp", "Calico's routed veth pair", &PTP, &ONLINK),
    routed("ebpf", "Cilium's veth pair with programs", &EBPF, &ONLINK),
    routed("netkit", "Cilium's netkit pair with programs", &NETKIT, &ONLINK),
    routed("macvlan", "macvlan on the node's wire", &MACVLAN_LINK, &ONLINK),
    routed("ipvlan-l2", "ipvlan on the node's wire, switched", &IPVLAN_L2, &ONLINK),
    routed("ipvlan-l3", "ipvlan routed, past the node's netfilter on the way in", &IPVLAN_L3, &ONLINK),
    routed("ipvlan-l3s", "ipvlan routed, through the node's netfilter", &IPVLAN_L3S, &ONLINK),
];

/// A device of the node handed to each pod. It is in no list: which device it is is said for each pod.
pub const DEVICE: DataPath =
    routed("host-device", "a card or a virtual function in the pod", &HOST_DEVICE, &ONLINK);

/// A path on which pods are reached at their own addresses over one wire.
const fn routed(
    name: &'static str,
    stands_for: &'static str,
    attach: &'static dyn Attach,
    transport: &'static dyn Transport,
) -> DataPath {
    let (reach, between, enters) = (Reach::Pod, Between::Wire, Enters::Always);
    DataPath { name, stands_for, attach, transport, reach, between, enters }
}
