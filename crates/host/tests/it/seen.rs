//! A tuning's journal, compared with the machine.

use host::JournalStatus;
use linux::sysctl::Key;
use linux::{IfName, Link, LinkKind};
use plan::{Kernel, Plan, SetSysctl, Step, StepState, Store};
use testkit::{World, require_root, shell};

/// A link is not a value that a step sets, so its existence needs a check of its own.
#[test]
fn what_was_made_and_is_gone_does_not_count_as_so() {
    if !require_root() {
        return;
    }
    let world = World::new();
    world.add("home");
    let (place, name) = (world.place("home"), world.name("home"));
    let mut plan = Plan::new();
    let link = Link { name: IfName::new("hgbr0").unwrap(), kind: LinkKind::Bridge, mtu: None, mac: None };
    plan.push(&place, Step::AddLink(link));
    let key = Key::new("net/ipv4/tcp_syn_retries").unwrap();
    plan.push(&place, SetSysctl { key, value: "5".to_owned() });

    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path().join("tune"));
    let held = store.hold().unwrap();
    let (standing, journal) = held.begin(&plan, None, serde_json::json!({})).unwrap();
    held.apply(&standing, &plan, journal, &mut Kernel::new().unwrap()).unwrap();
    let standing = held.await_confirmation(standing, None).unwrap();
    let found = || -> Vec<(StepState, Option<String>)> {
        let seen = JournalStatus::of(&store, Some(&standing)).unwrap();
        seen.steps.into_iter().map(|step| (step.look.unwrap(), step.now)).collect()
    };
    assert_eq!(found(), [(StepState::So, None), (StepState::So, Some("5".to_owned()))]);

    shell(&format!(
        "ip -n {name} link del hgbr0; ip netns exec {name} sysctl -qw net.ipv4.tcp_syn_retries=4"
    ));
    let changed = StepState::Otherwise { found: "4".to_owned() };
    assert_eq!(found(), [(StepState::Absent, None), (changed, Some("4".to_owned()))]);
}
