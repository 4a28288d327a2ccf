//! Settings of a card, on a veth pair of two queues, which has queues and offloads as a card does.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use linux::ethtool::{Ethtool, NicFeature, NicParameter};
use linux::napi::{NapiNumber, Napis};
use linux::sysfs::{LinkAttribute, NetSysfs};
use linux::{IfName, IpvlanMode, Link, LinkKind, Netlink, NetnsName};
use plan::{
    ApplyError, Fault, Journal, Kernel, Place, Plan, Queue, RssHash, SetGsoMaxSegs, SetIndirection,
    SetLinkAttribute, SetLinkMtu, SetLinkUp, SetNic, SetQueueCpus, SetQueueFlows, SetRssHash, Step, Undone,
    apply, preview, undo,
};
use testkit::{Dump, World, dump, require_root, shell, skip};

use crate::sample::ifname;

/// A namespace with the link, and an administrator's settings of its queues.
struct Ground {
    world: World,
    directory: tempfile::TempDir,
}

impl Ground {
    /// `None`, with the skip recorded, without root.
    fn new() -> Option<Ground> {
        if !require_root() {
            return None;
        }
        let ground = Ground { world: World::new(), directory: tempfile::tempdir().unwrap() };
        let (home, away) = (ground.home(), ground.world.name("away"));
        shell(&format!(
            "ip netns add {home}; ip netns add {away}
ip -n {home} link add own0 numrxqueues 2 numtxqueues 2 type veth peer name own0 numrxqueues 2 numtxqueues 2 netns {away}
ip -n {home} link set own0 up; ip -n {away} link set own0 up"
        ));
        let netns = ground.world.open("home");
        Ethtool::open_in(&netns).unwrap().write(&own(), NicParameter::Channels, 2).unwrap();
        let sysfs = NetSysfs::open(&netns).unwrap();
        let cpu = "0".parse().unwrap();
        sysfs.write_queue_cpus(&own(), Queue::Rx(1), &cpu).unwrap();
        sysfs.write_queue_cpus(&own(), Queue::Tx(1), &cpu).unwrap();
        sysfs.write_queue_flows(&own(), 1, 64).unwrap();
        Some(ground)
    }

    fn home(&self) -> NetnsName {
        self.world.name("home")
    }

    fn dump(&self) -> Dump {
        dump(&self.world.open("home"))
    }

    fn plan(&self, steps: Vec<Step>) -> Plan {
        let mut plan = Plan::new();
        steps.into_iter().for_each(|step| plan.push(&Place::Netns(self.home()), step));
        plan
    }

    fn apply(&self, plan: &Plan, fault: Fault) -> Result<(), ApplyError> {
        let path = self.directory.path().join("journal");
        let _ = std::fs::remove_file(&path);
        let mut kernel = Kernel::new().unwrap();
        kernel.inject(fault);
        apply(plan, &mut Journal::create(&path).unwrap(), &mut kernel).map(drop)
    }

    fn undo(&self) -> Vec<Undone> {
        let mut journal = Journal::open(&self.directory.path().join("journal")).unwrap();
        let results = undo(&mut journal, &mut Kernel::new().unwrap());
        results.into_iter().map(|(_, outcome)| outcome).collect()
    }
}

fn own() -> IfName {
    ifname("own0")
}

fn set(parameter: NicParameter, value: u32) -> Step {
    Step::from(SetNic { link: own(), parameter, value })
}

fn hash(text: &str) -> Step {
    let fields = RssHash::fields_of(text).map(|mut all| all.remove(0));
    Step::from(SetRssHash { link: own(), hash: fields.or_else(|| RssHash::key_of(text)).unwrap() })
}

fn attribute(attribute: LinkAttribute, value: u64) -> Step {
    Step::from(SetLinkAttribute { link: own(), attribute, value })
}

fn everything() -> Vec<Step> {
    vec![
        set(NicParameter::Channels, 1),
        Step::from(SetQueueFlows { link: own(), rx: 0, flows: 128 }),
        attribute(LinkAttribute::GroFlushTimeout, 20_000),
        attribute(LinkAttribute::NapiDeferHardIrqs, 2),
        attribute(LinkAttribute::TxQueueLen, 77),
        set(NicParameter::Feature(NicFeature::Gso), 0),
        set(NicParameter::Feature(NicFeature::TsoIpv4), 0),
        set(NicParameter::Feature(NicFeature::TsoIpv6), 0),
        set(NicParameter::Feature(NicFeature::RxChecksum), 0),
    ]
}

#[test]
fn all_is_as_before_wherever_apply_or_undo_stopped() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    let plan = ground.plan(everything());
    ground.apply(&plan, Fault::None).unwrap();
    assert!(!before.diff(&ground.dump()).is_empty());
    let lines = Journal::open(&ground.directory.path().join("journal")).unwrap().entries().len();
    ground.undo();
    before.assert_same(&ground.dump(), "after undo");
    let steps = (0..plan.steps.len()).map(Fault::AfterStep);
    for fault in steps.chain((1..lines).map(Fault::DeadAfterLine)) {
        ground.apply(&plan, fault).unwrap_err();
        let outcomes = ground.undo();
        let regular = |outcome: &Undone| matches!(outcome, Undone::Restored | Undone::AlreadySo);
        assert!(outcomes.iter().all(regular), "{fault:?}: {outcomes:?}");
        before.assert_same(&ground.dump(), &format!("after {fault:?}"));
    }
    ground.apply(&plan, Fault::None).unwrap();
    let mut dead = Kernel::new().unwrap();
    dead.inject(Fault::DeadAfterLine(lines + 3));
    undo(&mut Journal::open(&ground.directory.path().join("journal")).unwrap(), &mut dead);
    ground.undo();
    before.assert_same(&ground.dump(), "after an undo that was cut short");
}

/// A value that another program has set meanwhile stays, even if it is set for a single queue.
#[test]
fn what_somebody_else_has_set_stays() {
    let Some(ground) = Ground::new() else { return };
    let netns = ground.world.open("home");
    ground.apply(&ground.plan(everything()), Fault::None).unwrap();
    shell(&format!("ip -n {} link set own0 txqueuelen 99", ground.home()));
    NetSysfs::open(&netns).unwrap().write_queue_cpus(&own(), Queue::Rx(0), &"0".parse().unwrap()).unwrap();
    let outcomes = ground.undo();
    assert_eq!(outcomes[4], Undone::ChangedByOther { found: "99".to_owned() }, "{outcomes:?}");
    let sysfs = NetSysfs::open(&netns).unwrap();
    assert_eq!(sysfs.read_attribute(&own(), LinkAttribute::TxQueueLen).unwrap(), 99);
    let cpus = |queue| sysfs.read_queue_cpus(&own(), queue).unwrap().to_string();
    assert_eq!((cpus(Queue::Rx(0)), cpus(Queue::Rx(1))), ("0".to_owned(), "0".to_owned()));
}

/// Numbers that a program has given to a NAPI of its own, before the step and after it.
#[test]
fn what_a_napi_has_for_itself_comes_back() {
    let Some(ground) = Ground::new() else { return };
    let netns = ground.world.open("home");
    // A veth is polled only where it puts segments together.
    Ethtool::open_in(&netns).unwrap().write(&own(), NicParameter::Feature(NicFeature::Gro), 1).unwrap();
    let index = Netlink::open_in(&netns).unwrap().link(&own()).unwrap().unwrap().index;
    let napis = Napis::open_in(&netns).unwrap();
    let ids = |napis: &Napis| napis.read(index, NapiNumber::DeferHardIrqs).unwrap().into_keys().collect();
    let ids: Vec<u32> = napis.as_ref().map(ids).unwrap_or_default();
    let (Some(napis), [first, second]) = (napis, ids.as_slice()) else {
        return skip("before Linux 6.13 no NAPI has a number of its own");
    };
    for (number, link) in [
        (NapiNumber::GroFlushTimeout, LinkAttribute::GroFlushTimeout),
        (NapiNumber::DeferHardIrqs, LinkAttribute::NapiDeferHardIrqs),
    ] {
        let values = || napis.read(index, number).unwrap().into_values().collect::<Vec<_>>();
        napis.write(*first, number, 7).unwrap();
        for fault in [Fault::None, Fault::AfterStep(0)] {
            let applied = ground.apply(&ground.plan(vec![attribute(link, 5)]), fault);
            assert_eq!(applied.is_ok(), fault == Fault::None);
            assert_eq!(values(), [5, 5]);
            assert_eq!(ground.undo(), [Undone::Restored]);
            assert_eq!(values(), [7, 0]);
        }
        ground.apply(&ground.plan(vec![attribute(link, 5)]), Fault::None).unwrap();
        napis.write(*second, number, 9).unwrap();
        assert_eq!(ground.undo(), [Undone::Restored]);
        assert_eq!(values(), [7, 9]);
    }
}

#[test]
fn what_a_card_cannot_do_is_said_before_anything_is_done() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    for (step, why) in [
        (set(NicParameter::Channels, 3), "the number of queues of own0 can be 2 at most"),
        (set(NicParameter::RingRx, 512), "own0 does not have the receive ring"),
        (Step::from(SetIndirection { link: own(), queues: 1 }), "own0 has no table of flows"),
        (hash("udp4 sdfn"), "own0 has no hash fields of udp4"),
        (hash("01:02"), "own0 has no hash key"),
        (hash("symmetric"), "own0 has no hash key"),
        (
            Step::from(SetNic { link: ifname("gone"), parameter: NicParameter::Channels, value: 1 }),
            "there is no link gone",
        ),
    ] {
        let plan = ground.plan(vec![step]);
        let seen = preview(&plan.steps[0], &mut Kernel::new().unwrap()).unwrap_err().to_string();
        let refused = ground.apply(&plan, Fault::None).unwrap_err().to_string();
        assert!(
            seen.contains(why) && refused.contains(why),
            "{why:?} is neither in {seen:?} nor in {refused:?}"
        );
    }
    before.assert_same(&ground.dump(), "after refusals");
}

#[test]
fn a_preview_changes_nothing_and_shows_both_values() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    let mut kernel = Kernel::new().unwrap();
    let plan = ground.plan(everything());
    let seen: Vec<_> = plan.steps.iter().map(|step| preview(step, &mut kernel).unwrap().unwrap()).collect();
    let changes: Vec<_> = seen.iter().map(|seen| format!("{} → {}", seen.old, seen.new)).collect();
    assert_eq!(
        changes,
        ["2 → 1", "0 → 128", "0 → 20000", "0 → 2", "1000 → 77", "1 → 0", "1 → 0", "1 → 0", "1 → 0"]
    );
    before.assert_same(&ground.dump(), "after a preview");
}

/// A card outlives a namespace that it was in, and so does what was set at it there.
#[test]
fn a_link_comes_back_from_a_namespace_that_goes_as_it_was() {
    let Some(ground) = Ground::new() else { return };
    let (home, made) = (ground.home(), Place::Netns(ground.world.name("made")));
    // Another than the one that was up: a link that has been has a queueing discipline until it is moved.
    let (card, away) = (ifname("own1"), ground.world.name("away"));
    shell(&format!("ip -n {home} link add own1 type veth peer name own1 netns {away}"));
    let mut plan = Plan::new();
    plan.push(&made, Step::AddNetns);
    let name = ifname("eth0");
    let moved = Step::MoveLink { link: card, to: made.clone(), name: name.clone() };
    plan.push(&Place::Netns(home), moved);
    let inside: [Step; 7] = [
        SetLinkMtu { link: name.clone(), mtu: 1400 }.into(),
        SetGsoMaxSegs { link: name.clone(), segments: 1 }.into(),
        SetQueueCpus { link: name.clone(), queue: Queue::Rx(0), cpus: "0".parse().unwrap() }.into(),
        SetNic { link: name.clone(), parameter: NicParameter::Feature(NicFeature::Gro), value: 1 }.into(),
        SetLinkAttribute { link: name.clone(), attribute: LinkAttribute::TxQueueLen, value: 77 }.into(),
        SetLinkUp { link: name.clone() }.into(),
        Step::AddAddress { link: name, address: "192.0.2.1/24".parse().unwrap() },
    ];
    inside.into_iter().for_each(|step| plan.push(&made, step));
    let before = ground.dump();
    for fault in (0..plan.steps.len()).map(Fault::AfterStep).chain([Fault::None]) {
        let applied = ground.apply(&plan, fault);
        assert_eq!(applied.is_ok(), fault == Fault::None, "{fault:?}: {applied:?}");
        let outcomes = ground.undo();
        assert!(outcomes.iter().all(Undone::is_final), "{fault:?}: {outcomes:?}");
        before.assert_same(&ground.dump(), &format!("after {fault:?}"));
    }
}

/// What stood on a card in namespaces of ours is gone when the card is back, also where somebody holds such a
/// namespace: a card takes no macvlan link while it has an ipvlan link.
#[test]
fn nothing_stands_on_a_link_that_has_come_back() {
    let Some(ground) = Ground::new() else { return };
    let (home, away) = (ground.home(), ground.world.name("away"));
    let [node, pod] = ["node", "pod"].map(|name| Place::Netns(ground.world.name(name)));
    let (wire, name) = (ifname("wire0"), ifname("eth0"));
    shell(&format!("ip -n {home} link add own1 type veth peer name own1 netns {away}"));
    for kind in ["ipvlan", "macvlan"] {
        let tried =
            format!("ip -n {home} link add try0 link own1 type {kind} 2>&1 && ip -n {home} link del try0");
        if !shell(&format!("{tried} || true")).is_empty() {
            return skip(&format!("this kernel has no {kind}"));
        }
    }
    let mut plan = Plan::new();
    plan.push(&node, Step::AddNetns);
    plan.push(&pod, Step::AddNetns);
    let moved = Step::MoveLink { link: ifname("own1"), to: node.clone(), name: wire.clone() };
    plan.push(&Place::Netns(home.clone()), moved);
    let kind = || LinkKind::Ipvlan { parent: wire.clone(), mode: IpvlanMode::L2 };
    let link = |name: &IfName| Link { name: name.clone(), kind: kind(), mtu: None, mac: None };
    plan.push(&pod, Step::AddLinkOn { link: link(&name), parent_in: node.clone() });
    plan.push(&pod, SetLinkUp { link: name });
    plan.push(&node, Step::AddLink(link(&ifname("own0"))));
    let before = ground.dump();
    ground.apply(&plan, Fault::None).unwrap();
    let held = [ground.world.open("node"), ground.world.open("pod")];
    let outcomes = ground.undo();
    assert!(outcomes.iter().all(|outcome| *outcome == Undone::Restored), "{outcomes:?}");
    before.assert_same(&ground.dump(), "after undo");
    shell(&format!("ip -n {home} link add own2 link own1 type macvlan; ip -n {home} link del own2"));
    drop(held);
}
