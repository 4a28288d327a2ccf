//! One test for each data path and subject, so that a skip names the path it skips.

use datapath::{ALL, DataPath, find};
use linux::features::{self, Feature};

/// Defines a test function for each data path. It calls `$check` if this machine can run the path.
macro_rules! for_each_path {
    ($check:path) => {
        $crate::paths::for_each_path!($check,
            host "host", docker "docker", pasta "pasta", slirp4netns "slirp4netns", bridge_direct "bridge+direct", bridge_vpc "bridge+vpc",
            bridge_vxlan "bridge+vxlan", bridge_wireguard "bridge+wireguard", bridge_ipsec "bridge+ipsec",
            ptp_direct "ptp+direct", ptp_vxlan "ptp+vxlan", ptp_wireguard "ptp+wireguard",
            ptp_ipsec "ptp+ipsec",
            ebpf_direct "ebpf+direct", ebpf_vxlan "ebpf+vxlan", ebpf_wireguard "ebpf+wireguard",
            ebpf_ipsec "ebpf+ipsec",
            ebpf_sockmap "ebpf+sockmap", netkit_direct "netkit+direct", macvlan "macvlan",
            ipvlan_l2 "ipvlan-l2", ipvlan_l3 "ipvlan-l3", ipvlan_l3s "ipvlan-l3s",
            ovs_direct "ovs+direct", ovs_vxlan "ovs+vxlan", ovs_geneve "ovs+geneve",
            ovs_af_xdp "ovs-afxdp+direct", ovs_dpdk "ovs-dpdk+direct");
    };
    ($check:path, $($test:ident $name:literal),+) => {
        $(#[test]
        fn $test() {
            if let Some(path) = $crate::paths::runnable($name) {
                $check(path);
            }
        })+

        #[test]
        fn every_path_has_a_test() {
            assert_eq!([$($name),+].as_slice(), $crate::paths::names());
        }
    };
}
pub(crate) use for_each_path;

/// The named data path. `None`, with the skip recorded, if this machine cannot run it.
pub(crate) fn runnable(name: &str) -> Option<&'static DataPath> {
    runnable_with(name, &[])
}

/// The same if pods of its network are to be checked.
pub(crate) fn runnable_guarded(name: &str) -> Option<&'static DataPath> {
    runnable_with(name, &[Feature::BpfTc])
}

fn runnable_with(name: &str, more: &[Feature]) -> Option<&'static DataPath> {
    let path = find(name).expect("a known path");
    if !testkit::require_root() {
        return None;
    }
    let facts = features::probe().unwrap_or_else(|error| panic!("{error}"));
    let unmet = facts.unmet(&[&path.needs(), more].concat());
    if unmet.is_empty() {
        return Some(path);
    }
    let reasons = unmet.iter().map(ToString::to_string).collect::<Vec<_>>();
    testkit::skip(&format!("{name}: {}", reasons.join("; ")));
    None
}

pub(crate) fn names() -> Vec<&'static str> {
    ALL.iter().map(|path| path.name).collect()
}
