//! Steps that use what is there already: it stays when they are undone, and what others add to theirs is not cut off.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use linux::Netlink;
use linux::netlink::LinkInfo;
use plan::{Fault, Journal, Kernel, Plan, SetLinkMaster, SetLinkUp, Step, Undone, in_use};
use testkit::{require_root, shell};

use crate::sample::{ensured_address, ensured_bridge, ifname};
use crate::scene::Scene;

impl Scene {
    fn link(&self, name: &str) -> Option<LinkInfo> {
        Netlink::open_in(&self.world.open("home")).unwrap().link(&ifname(name)).unwrap()
    }

    fn at_home(&self, command: &str) {
        let _ = shell(&command.replace("HOME", self.sample.home.as_str()));
    }

    /// What undo says of each step, last first.
    fn undone(&self) -> Vec<Undone> {
        self.undo().0.into_iter().map(|(_, outcome)| outcome).collect()
    }

    fn plan_at_home(&self, steps: impl IntoIterator<Item = Step>) -> Plan {
        let mut plan = Plan::new();
        for step in steps {
            plan.push(&self.sample.home(), step);
        }
        plan
    }

    /// Why a step at home cannot be done. Nothing is changed by the attempt.
    fn refusal(&self, step: Step) -> String {
        let refused = self.apply(&self.plan_at_home([step]), Fault::None).unwrap_err().to_string();
        assert_eq!(self.undone(), []);
        self.assert_as_before("after a refusal");
        refused
    }
}

/// A bridge of the name, its gateway address, and a port of it.
fn joined(bridge: &str) -> [Step; 4] {
    [
        ensured_bridge(bridge),
        SetLinkUp { link: ifname(bridge) }.into(),
        ensured_address(bridge, "10.244.7.1/24"),
        SetLinkMaster { link: ifname("free0"), master: ifname(bridge) }.into(),
    ]
}

#[test]
fn what_is_there_is_used_as_it_is_and_stays() {
    if !require_root() {
        return;
    }
    let scene = Scene::with("ip -n HOME address add 10.244.7.1/24 dev ownbr");
    let before = scene.link("ownbr").unwrap();
    let plan = scene.plan_at_home(joined("ownbr"));
    scene.apply(&plan, Fault::None).unwrap();
    let now = scene.link("ownbr").unwrap();
    assert_eq!((now.index, now.mtu, now.mac), (before.index, before.mtu, before.mac));
    let so = Undone::AlreadySo;
    assert_eq!(scene.undone(), [Undone::Restored, so.clone(), so.clone(), so]);
    scene.assert_as_before("after undo");
    // Whenever the process dies.
    for line in 2..=1 + 2 * plan.steps.len() {
        scene.apply(&plan, Fault::DeadAfterLine(line)).unwrap_err();
        scene.undo();
        scene.assert_as_before_quick(&format!("dead after line {line}"));
    }
}

#[test]
fn an_address_that_was_not_there_goes() {
    if !require_root() {
        return;
    }
    let scene = Scene::with("ip -n HOME address add 10.244.8.1/24 dev ownbr");
    scene.apply(&scene.plan_at_home(joined("ownbr")), Fault::None).unwrap();
    assert!(scene.is_changed());
    let so = Undone::AlreadySo;
    assert_eq!(scene.undone(), [Undone::Restored, Undone::Restored, so.clone(), so]);
    scene.assert_as_before("after undo");
}

#[test]
fn another_kind_of_link_and_another_address_of_the_subnet_are_named() {
    if !require_root() {
        return;
    }
    let scene = Scene::with("ip -n HOME address add 10.244.7.9/16 dev ownbr");
    let refused = scene.refusal(ensured_bridge("own0"));
    assert!(refused.contains("own0 is veth and no bridge"), "{refused}");
    let refused = scene.refusal(ensured_address("ownbr", "10.244.7.1/24"));
    assert!(refused.contains("ownbr has the address 10.244.7.9/16"), "{refused}");
    assert!(refused.contains("overlaps with that of 10.244.7.1/24"), "{refused}");
}

/// The bridge is ours, and another program has given it a port since: all of it stays until the port is gone.
#[test]
fn a_port_of_another_program_keeps_what_it_needs() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let plan = scene.plan_at_home(joined("hgbe0").into_iter().take(3));
    scene.apply(&plan, Fault::None).unwrap();
    scene.at_home("ip -n HOME link set free0 master hgbe0");
    let used = || in_use(&Journal::open(&scene.path()).unwrap(), &mut Kernel::new().unwrap()).unwrap();
    assert_eq!(used().unwrap(), "link hgbe0 has ports of another program: free0");
    let outcomes = scene.undone();
    let is_failed = |undone: &Undone| matches!(undone, Undone::Failed { why } if why.contains("free0"));
    assert!(outcomes.len() == 3 && outcomes.iter().all(is_failed), "{outcomes:?}");
    assert!(scene.link("hgbe0").unwrap().up, "it still carries frames");
    scene.at_home(
        "ip -n HOME address show dev hgbe0 | grep -q 10.244.7.1/24; ip -n HOME link set free0 nomaster",
    );
    assert_eq!(used(), None);
    assert_eq!(scene.undone(), [Undone::Restored, Undone::Restored, Undone::Restored]);
    scene.assert_as_before("after undo");
}
