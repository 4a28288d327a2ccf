//! Offloads of links, as ethtool has them.

use linux::LinkKind;
use linux::ethtool::{Ethtool, NicFeature, NicParameter};
use testkit::require_root;

use crate::world::{TestNetns, ifname};

/// What ethtool calls an offload. For three it has names of its own.
fn shown(feature: NicFeature) -> &'static str {
    match feature {
        NicFeature::Gro => "generic-receive-offload",
        NicFeature::Gso => "generic-segmentation-offload",
        NicFeature::RxChecksum => "rx-checksumming",
        other => other.name(),
    }
}

#[test]
fn what_a_link_can_is_what_ethtool_does_not_call_fixed() {
    if !require_root() {
        return;
    }
    let (here, there) = (TestNetns::new("offloads-a"), TestNetns::new("offloads-b"));
    here.wire(&there, "hgo0", "192.0.2.1/24", "192.0.2.2/24");
    here.add("hgo1", LinkKind::Bridge);
    let ethtool = Ethtool::open_in(&here.netns).expect("a socket");
    let mut met = [false; 2];
    for link in ["lo", "hgo0", "hgo1"] {
        let listed = here.judge("ethtool", &["-k", link]);
        let offloads = ethtool.offloads(&ifname(link));
        for feature in [
            NicFeature::Gro,
            NicFeature::Gso,
            NicFeature::TsoIpv4,
            NicFeature::TsoIpv6,
            NicFeature::GroHw,
            NicFeature::RxChecksum,
            NicFeature::TxChecksum,
        ] {
            let name = shown(feature);
            let line = listed.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
            let line = line.unwrap_or_else(|| panic!("no {name} in {listed}"));
            let is_on = line.starts_with("on");
            let can = is_on || !line.contains("[fixed]");
            let read = ethtool.read(&ifname(link), NicParameter::Feature(feature));
            let read = read.expect("an answer").expect("offloads");
            assert_eq!(
                (read.now, read.max),
                (u32::from(is_on), Some(u32::from(can))),
                "{link} {name}: {line}"
            );
            met[usize::from(can)] = true;
        }
        let tso = listed.lines().filter(|line| line.trim().starts_with("tx-tcp"));
        let can = tso.clone().any(|line| line.contains(": on") || !line.contains("[fixed]"));
        assert_eq!(offloads.contains_key("tso"), can, "{link}: {offloads:?}");
    }
    assert_eq!(met, [true; 2], "some can be switched, and some cannot");
}
