//! The probe's result matches what `ip` can do on this machine.

use linux::features::{Facts, Feature, probe, probe_some, tcx};
use linux::sysctl;

use crate::world::TestNetns;

/// Whether `ip` can make a link of this kind.
fn ip_can(kind: &str, rest: &[&str]) -> bool {
    let place = TestNetns::new("probe");
    place.judge("ip", &["link", "add", "p0", "type", "veth", "peer", "name", "p1"]);
    let mut args = vec!["link", "add", "x0"];
    if kind.ends_with("vlan") && kind != "vxlan" {
        args.extend(["link", "p0"]);
    }
    args.extend(["type", kind]);
    args.extend(rest);
    let run = || std::process::Command::new("ip").args(&args).output();
    place.netns.run(run).expect("the namespace is there").expect("ip is installed").status.success()
}

#[test]
fn links_are_probed_as_ip_finds_them() {
    let facts = probe().unwrap();
    for (feature, kind, rest) in [
        (Feature::Veth, "veth", &[][..]),
        // In L3 mode, because this `ip` may be too old for L2. The test is about the kernel's link kind.
        (Feature::Netkit, "netkit", &[]),
        (Feature::Bridge, "bridge", &[]),
        (Feature::Vxlan, "vxlan", &["id", "1", "dev", "p0", "dstport", "4789"]),
        // The tests of tunnels cover the other half, a route into a tunnel.
        (Feature::VxlanExternal, "vxlan", &["external", "dstport", "4789"]),
        (Feature::WireGuard, "wireguard", &[]),
        (Feature::Macvlan, "macvlan", &["mode", "bridge"]),
        (Feature::Ipvlan, "ipvlan", &["mode", "l2"]),
        (Feature::IpvlanL3s, "ipvlan", &["mode", "l3s"]),
    ] {
        let why = facts.missing.get(&feature);
        assert_eq!(why.is_none(), ip_can(kind, rest), "{feature}: {why:?}");
        assert!(why.is_none_or(|why| !why.is_empty()));
    }
}

#[test]
fn queueing_disciplines_are_probed_as_tc_finds_them() {
    let missing = probe().unwrap().missing;
    let tbf = "tbf rate 8mbit burst 3000 limit 3000";
    let kinds =
        [(Feature::Netem, "netem"), (Feature::Fq, "fq"), (Feature::FqCodel, "fq_codel"), (Feature::Tbf, tbf)];
    for (feature, kind) in kinds {
        let place = TestNetns::new("qdiscs");
        place.judge("ip", &["link", "add", "p0", "type", "veth", "peer", "name", "p1"]);
        let run = || {
            std::process::Command::new("tc")
                .args(["qdisc", "add", "dev", "p0", "root"])
                .args(kind.split(' '))
                .output()
        };
        let added = place.netns.run(run).unwrap().expect("tc is installed").status.success();
        assert_eq!(!missing.contains_key(&feature), added, "{feature}: {missing:?}");
    }
}

#[test]
fn the_rest_is_probed_as_the_files_say() {
    let facts = probe().unwrap();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(facts.kernel, release.trim_end());
    let has = |feature| !facts.missing.contains_key(&feature);
    let place = TestNetns::new("files");
    let file = |key: &str| {
        let key = sysctl::Key::new(key).unwrap();
        place.netns.run(|| sysctl::read(&key)).unwrap().unwrap().is_some()
    };
    assert_eq!(has(Feature::BridgeNetfilter), file("net/bridge/bridge-nf-call-iptables"));
    assert_eq!(has(Feature::Ipv6), file("net/ipv6/conf/all/disable_ipv6"));
    let run = || std::process::Command::new("nft").args(["add", "table", "ip", "x"]).status();
    let nft = place.netns.run(run).unwrap().is_ok_and(|status| status.success());
    assert_eq!(has(Feature::Nftables), nft);
    let association = "xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 256 mode tunnel aead";
    let key = format!("0x{}", "01".repeat(20));
    let run = || {
        std::process::Command::new("ip")
            .args(association.split(' '))
            .args(["rfc4106(gcm(aes))", &key, "128"])
            .status()
    };
    let esp = place.netns.run(run).unwrap().expect("ip is installed").success();
    assert_eq!(has(Feature::IpSec), esp, "{:?}", facts.missing.get(&Feature::IpSec));
}

#[test]
fn of_some_features_the_others_are_untried_and_count_as_missing() {
    let (all, some) = (probe().unwrap(), probe_some(&[Feature::Macvlan, Feature::IpvlanL3s]).unwrap());
    let untried = |feature: &&Feature| some.missing.get(feature).is_some_and(|why| why == "it was not tried");
    for feature in Feature::ALL.iter().filter(|feature| !untried(feature)) {
        assert_eq!(some.missing.get(feature), all.missing.get(feature), "{feature}");
    }
    let tried: Vec<&Feature> = Feature::ALL.iter().filter(|feature| !untried(feature)).collect();
    // The parent of the two, and what one is a part of.
    assert_eq!(tried, [&Feature::Veth, &Feature::Macvlan, &Feature::Ipvlan, &Feature::IpvlanL3s]);
}

#[test]
fn probing_leaves_nothing() {
    let links = || linux::Netlink::open().unwrap().links().unwrap();
    let before = links().len();
    probe().unwrap();
    tcx().unwrap();
    assert_eq!(links().len(), before);
}

/// The list of functions that the kernel was built with decides: programs load and attach exactly where these
/// exist.
#[test]
fn programs_are_probed_as_the_kernel_was_built() {
    let Ok(symbols) = std::fs::read_to_string("/proc/kallsyms") else {
        return testkit::skip("this kernel does not list its functions");
    };
    let has = |function: &str| symbols.lines().any(|line| line.split(' ').nth(2) == Some(function));
    let mut missing = probe().unwrap().missing;
    let why = missing.remove(&Feature::BpfTc);
    assert_eq!(why.is_none(), has("bpf_prog_load") && has("bpf_redirect_peer"), "{why:?}");
    assert_eq!(tcx().unwrap(), has("tcx_link_attach"));
    let grouped = std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(" - cgroup2 ");
    let typed = std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    let has_cookie = has("bpf_get_netns_cookie_sock_ops") && has("bpf_get_netns_cookie_sk_msg");
    let why = missing.remove(&Feature::BpfSockets);
    // Splicing is trusted from Linux 6.12 on.
    let release = linux::features::release();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    let trusted = version >= (6, 12);
    assert_eq!(why.is_none(), trusted && grouped && typed && has_cookie && has("sock_hash_alloc"), "{why:?}");
    let why = missing.remove(&Feature::BpfServices);
    // A helper that there was before is for these programs from Linux 6.1 on.
    let called = has("__cgroup_bpf_run_filter_sock_addr") && version >= (6, 1);
    assert_eq!(why.is_none(), called && grouped, "{why:?}");
    assert_eq!(linux::features::services().is_ok(), why.is_none());
}

#[test]
fn a_module_that_two_features_lack_is_named_once() {
    let unmet = |missing: &[(Feature, &str)]| {
        let missing = missing.iter().map(|(feature, why)| (*feature, (*why).to_owned())).collect();
        let facts = Facts { missing, ..Facts::default() };
        let unmet = facts.unmet(&[Feature::OpenVSwitch, Feature::OpenVSwitchGeneve]);
        unmet.into_iter().map(|unmet| unmet.feature).collect::<Vec<_>>()
    };
    let [whole, part] = [Feature::OpenVSwitch, Feature::OpenVSwitchGeneve];
    assert_eq!(unmet(&[(whole, "no module"), (part, "no module")]), [whole]);
    assert_eq!(unmet(&[(whole, "no programs"), (part, "no GENEVE")]), [whole, part]);
    assert_eq!(unmet(&[(part, "no GENEVE")]), [part]);
    assert_eq!(unmet(&[]), []);
}
