//! netkit pairs. Many kernels lack this kind of link, so it is not part of the sample.

use linux::features::{Feature, probe};
use linux::{Link, LinkKind, Mac, NetnsName, VethPeer};
use plan::{Fault, Place, Plan, SetLinkUp, Step, Undone};
use testkit::require_root;

use crate::sample::{Sample, address, ifname, veth};
use crate::scene::Scene;

fn netkit(name: &str, peer: &str, netns: Option<&NetnsName>) -> Step {
    let peer = VethPeer {
        name: ifname(peer),
        netns: netns.cloned().map(Into::into),
        mtu: Some(1450),
        mac: Some(Mac::from_id(2, 2)),
    };
    let mac = Some(Mac::from_id(2, 1));
    Step::AddLink(Link { name: ifname(name), kind: LinkKind::Netkit { peer }, mtu: Some(1450), mac })
}

/// A pair into a namespace that the plan makes, two into one that stays, and one within a namespace.
fn plan(sample: &Sample) -> Plan {
    let mut plan = Plan::new();
    plan.push(&sample.made(), Step::AddNetns);
    plan.push(&sample.home(), netkit("hgk0", "eth0", Some(&sample.made)));
    plan.push(&sample.made(), address("eth0", "10.244.1.2/24"));
    plan.push(&sample.made(), SetLinkUp { link: ifname("eth0") });
    plan.push(&sample.made(), netkit("hgk1", "hgk2", Some(&sample.away)));
    plan.push(&sample.home(), netkit("hgk3", "hgk4", None));
    plan.push(&sample.home(), netkit("hgk5", "hgk6", Some(&sample.away)));
    plan
}

/// Whether this kernel lacks netkit. If so, the skip is recorded.
fn is_missing() -> bool {
    let why = probe().expect("a namespace can be made").missing.remove(&Feature::Netkit);
    if let Some(why) = &why {
        testkit::skip(&format!("no netkit: {why}"));
    }
    why.is_some()
}

#[test]
fn a_pair_has_its_command() {
    let name = |short| NetnsName::new(short).expect("a sound name");
    let mut plan = Plan::new();
    plan.push(&Place::Netns(name("home")), netkit("hgk0", "eth0", Some(&name("made"))));
    let expected = "ip -n home link add name hgk0 mtu 1450 address 02:02:00:00:00:01 type netkit mode l2 \
                    peer name eth0 mtu 1450 address 02:02:00:00:00:02 netns made";
    assert_eq!(plan.commands(), [expected]);
}

#[test]
fn undo_takes_both_ends_wherever_apply_stopped() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let plan = plan(&scene.sample);
    scene.assert_undo_takes_all(&plan);
}

#[test]
fn a_taken_name_at_the_other_end_is_refused() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let mut plan = Plan::new();
    plan.push(&scene.sample.home(), netkit("hgk0", "own1", Some(&scene.sample.away)));
    let error = scene.apply(&plan, Fault::None).unwrap_err().to_string();
    assert!(error.contains("veth link own1 with index"), "{error}");
    scene.assert_as_before("after a refusal");
}

/// Both kinds are pairs, and neither is mistaken for the other.
#[test]
fn a_veth_of_the_same_name_is_another_link() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let mut plan = Plan::new();
    plan.push(&scene.sample.home(), netkit("hgk0", "hgk1", None));
    scene.apply(&plan, Fault::None).unwrap();
    let home = scene.world.open("home");
    testkit::run(&home, "ip", &["link", "del", "hgk0"]);
    let netlink = linux::Netlink::open_in(&home).unwrap();
    let Step::AddLink(other) = veth("hgk0", "hgk1", None) else { unreachable!("a link") };
    netlink.link_add(&other).unwrap();
    let (results, _) = scene.undo();
    let outcome = &results[0].1;
    assert!(
        matches!(outcome, Undone::ChangedByOther { found } if found.contains("veth link hgk0")),
        "{outcome:?}"
    );
}
