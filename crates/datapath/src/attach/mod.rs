//! Attaches: how a pod's interface reaches its node, one file each.

mod bridge;
mod docker;
mod ebpf;
mod elsewhere;
mod guard;
mod host;
mod host_device;
mod host_link;
mod ipvlan;
mod macvlan;
mod ovs;
mod ptp;
mod user_net;
mod veth;

pub(crate) use bridge::BRIDGE;
pub(crate) use docker::DOCKER;
pub(crate) use ebpf::{EBPF, EBPF_POLICIES, EBPF_ROUTED, EBPF_SOCKMAP, EBPF_TUNNEL, NETKIT};
pub(crate) use elsewhere::ELSEWHERE;
pub(crate) use host::HOST;
pub(crate) use host_device::HOST_DEVICE;
pub(crate) use ipvlan::{IPVLAN_L2, IPVLAN_L3, IPVLAN_L3S};
pub(crate) use macvlan::MACVLAN;
pub(crate) use ovs::{OVS, OVS_AF_XDP, OVS_DPDK, OVS_TUNNEL};
pub(crate) use ptp::PTP;
pub(crate) use user_net::{PASTA, SLIRP4NETNS};
