//! Programs beside those of others: other programs at the link, a mount that others touched, a namespace that
//! is gone.

use std::path::{Path, PathBuf};

use bpf::forward::Program;
use bpf::{Attached, pins};
use linux::Netlink;
use plan::forwarding::{ProgramAttachment, Programs, Uplink};
use plan::{
    ApplyError, Fault, Journal, Kernel, Made, Placed, Plan, Step, StepError, Survey, Undone, by_hand,
};
use testkit::{dump, require_root, run, shell};

use crate::sample::ifname;
use crate::scene::Scene;

const LINK: &str = "own0";

/// A scene, the plan of a program at a link that existed before, and the paths of its pins.
struct Stage {
    scene: Scene,
    plan: Plan,
}

impl Stage {
    fn new() -> Stage {
        let scene = Scene::new();
        let mut plan = Plan::new();
        plan.push(&scene.sample.home(), scene.sample.load_programs());
        plan.push(&scene.sample.home(), scene.sample.attach(Program::FromWire, LINK));
        Stage { scene, plan }
    }

    fn folder(&self) -> PathBuf {
        pins::folder(&self.scene.sample.node())
    }

    fn program(&self) -> PathBuf {
        Program::FromWire.pin(&self.folder())
    }

    fn link_pin(&self) -> PathBuf {
        Program::FromWire.link_pin(&self.folder(), &ifname(LINK))
    }

    fn index(&self) -> u32 {
        let home = self.scene.world.open("home");
        Netlink::open_in(&home)
            .and_then(|netlink| netlink.index_of(&ifname(LINK)))
            .expect("the link is there")
    }

    /// Runs the closure in the namespace `home`.
    fn at_home<T>(&self, work: impl FnOnce() -> T) -> T {
        self.scene.world.open("home").run(work).expect("the namespace is there")
    }

    fn attach_filter(&self) {
        let (program, index) = (self.program(), self.index());
        self.at_home(|| bpf::attach_filter(&program, index)).expect("there is no filter yet");
    }

    fn tc(&self, arguments: &str) -> String {
        run(&self.scene.world.open("home"), "tc", &arguments.split(' ').collect::<Vec<_>>())
    }

    /// Adds a foreign filter to the link. Its program, in classic BPF, matches nothing.
    fn add_foreign_filter(&self, direction: &str) {
        let filter = format!("dev own0 {direction} prio 7 protocol all bpf bytecode '1,6 0 0 0'");
        shell(&format!("ip netns exec {} tc filter add {filter}", self.scene.sample.home));
    }

    fn outcomes(&self) -> Vec<Undone> {
        self.scene.undo().0.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Lets apply die once the program is loaded and its attachment recorded. Then does what the step would
    /// have done on a kernel without tcx.
    fn apply_by_filter(&self) {
        let dead = Fault::DeadAfterLine(4);
        assert!(matches!(self.scene.apply(&self.plan, dead), Err(ApplyError::Injected { .. })));
        self.attach_filter();
    }
}

fn how_attached(stage: &Stage) -> Option<Attached> {
    let (program, index, pin) = (stage.program(), stage.index(), stage.link_pin());
    stage.at_home(|| bpf::attached(&program, index, &pin)).expect("its state can be read")
}

#[test]
fn a_dump_shows_what_hangs_on_a_link() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let home = stage.scene.world.open("home");
    let before = dump(&home);
    stage.scene.apply(&stage.plan, Fault::None).unwrap();
    let with = before.diff(&dump(&home));
    // By tcx, or by a filter on a kernel without it.
    match how_attached(&stage).expect("it was attached") {
        Attached::Link => assert_eq!(with, ["+ program own0 tcx ingress from_wire"]),
        Attached::Filter => assert!(with.iter().any(|line| line.contains("from_wire")), "{with:?}"),
    }
    assert_eq!(stage.outcomes(), [Undone::Restored, Undone::Restored]);
    stage.scene.assert_as_before("after undo");

    stage.apply_by_filter();
    let with = before.diff(&dump(&home));
    assert!(
        with.iter().any(|line| line.starts_with("+ filter own0 ingress") && line.contains("bpf")),
        "{with:?}"
    );
    assert!(with.iter().any(|line| line.contains("clsact")), "{with:?}");
    assert_eq!(stage.outcomes(), [Undone::Restored, Undone::Restored]);
    stage.scene.assert_as_before("after undo of a filter");
}

#[test]
fn undo_finds_a_filter_as_well() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    // The journal has the result of the step too.
    stage.scene.apply(&stage.plan, Fault::None).unwrap();
    if how_attached(&stage) == Some(Attached::Link) {
        std::fs::remove_file(stage.link_pin()).unwrap();
        stage.attach_filter();
    }
    assert_eq!(how_attached(&stage), Some(Attached::Filter));
    assert_eq!(stage.outcomes(), [Undone::Restored, Undone::Restored]);
    stage.scene.assert_as_before("after undo");
}

#[test]
fn a_qdisc_without_its_filter_is_undone() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    assert!(stage.scene.apply(&stage.plan, Fault::DeadAfterLine(4)).is_err());
    // As if power had failed between the two halves of attaching.
    stage.tc("qdisc add dev own0 clsact");
    assert_eq!(stage.outcomes(), [Undone::Restored, Undone::Restored]);
    stage.scene.assert_as_before("after undo");
}

#[test]
fn a_qdisc_of_others_stays() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    stage.tc("qdisc add dev own0 clsact");
    stage.add_foreign_filter("ingress");
    let home = stage.scene.world.open("home");
    let before = dump(&home);
    stage.apply_by_filter();
    assert_eq!(stage.outcomes(), [Undone::Restored, Undone::Restored]);
    before.assert_same(&dump(&home), "after undo beside a filter that was there before");
}

#[test]
fn a_filter_that_came_to_our_qdisc_stays() {
    if !require_root() {
        return;
    }
    for direction in ["ingress", "egress"] {
        let stage = Stage::new();
        stage.apply_by_filter();
        stage.add_foreign_filter(direction);
        assert_eq!(stage.outcomes(), [Undone::Restored, Undone::Restored]);
        let left = stage.tc(&format!("filter show dev own0 {direction}"));
        assert!(left.contains("pref 7") && !left.contains("from_wire"), "{direction}: {left}");
        assert_eq!(stage.scene.world.pinned(), [] as [String; 0]);
    }
}

#[test]
fn a_program_of_others_at_the_same_hook_stays() {
    if !require_root() {
        return;
    }
    // For this node, these are the programs of another node.
    let (stage, mut other) = (Stage::new(), Plan::new());
    let home = stage.scene.world.open("home");
    let sample = &stage.scene.sample;
    let foreign = stage.scene.world.name("foreign").to_string();
    for placed in &stage.plan.steps {
        let step = match placed.step.clone() {
            Step::LoadPrograms(programs) => {
                Step::LoadPrograms(Programs { node: foreign.clone(), ..programs })
            }
            Step::AttachProgram(attachment) => {
                // Under the same program name they would take the same place among the filters.
                let program = Program::FromPod;
                Step::AttachProgram(ProgramAttachment { node: foreign.clone(), program, ..attachment })
            }
            other => panic!("{other:?} is not in this plan"),
        };
        other.push(&sample.home(), step);
    }
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(&directory.path().join("other")).unwrap();
    plan::apply(&other, &mut journal, &mut Kernel::new().unwrap()).unwrap();
    let before = dump(&home);
    if !before.lines().any(|line| line.contains("tcx")) {
        testkit::skip("two programs at a hook need tcx");
        return;
    }
    stage.scene.apply(&stage.plan, Fault::None).unwrap();
    let both = before.diff(&dump(&home));
    assert_eq!(both, ["+ program own0 tcx ingress from_wire"]);
    assert_eq!(stage.outcomes(), [Undone::Restored, Undone::Restored]);
    before.assert_same(&dump(&home), "after undo beside another's program");
    let results = plan::undo(&mut journal, &mut Kernel::new().unwrap());
    assert!(results.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{results:?}");
    stage.scene.assert_as_before("after both");
}

/// Made again it would stand beside the other as before: each look would take it off and on. A race begins with a
/// program that is alone, or not at all.
#[test]
fn a_program_that_is_not_alone_is_not_made_again() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    stage.scene.apply(&stage.plan, Fault::None).unwrap();
    // On a kernel without tcx the qdisc is ours.
    shell(&format!("tc -n {} qdisc add dev own0 clsact 2>/dev/null || true", stage.scene.sample.home));
    stage.add_foreign_filter("egress");
    let written = std::fs::read(stage.scene.path()).unwrap();
    let mut kernel = Kernel::new().unwrap();
    let (_, found) = Made::of(&stage.plan, &mut kernel).unwrap();
    let [beside] = &found[..] else { panic!("{found:?}") };
    assert!(beside.what.starts_with("program from_wire at link own0 is now one of "), "{beside}");
    assert_eq!(plan::changed(&stage.plan, &mut kernel).unwrap(), None);
    assert_eq!(plan::drift(&stage.plan, &mut kernel).unwrap(), None);
    let mut journal = Journal::open(&stage.scene.path()).unwrap();
    assert_eq!(plan::mend(&mut journal, &mut kernel).unwrap(), []);
    let survey = Survey::of([&stage.plan], &mut kernel).unwrap();
    let done = plan::reconcile(&stage.plan, &mut journal, &mut kernel, &survey).unwrap();
    assert!(done.is_nothing(), "{done:?}");
    drop(journal);
    assert!(std::fs::read(stage.scene.path()).unwrap() == written, "the journal grows");
    assert_eq!(stage.outcomes(), [Undone::Restored, Undone::Restored]);
}

#[test]
fn a_mount_outlives_its_namespace_until_undo() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    stage.scene.apply(&stage.plan, Fault::None).unwrap();
    shell(&format!("ip netns del {}", stage.scene.sample.home));
    assert_eq!(stage.scene.world.pinned(), [stage.scene.sample.node()], "the mount is in no namespace");
    assert_eq!(stage.outcomes(), [Undone::Gone, Undone::Restored]);
    assert!(!stage.folder().exists());
    assert_eq!(stage.scene.world.pinned(), [] as [String; 0]);
}

#[test]
fn what_another_unmounted_is_gone() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let mut plan = stage.plan.clone();
    let (sample, home) = (&stage.scene.sample, stage.scene.sample.home());
    plan.push(&home, sample.endpoint("own0", &["10.244.1.2", "fd00:1::2"]));
    plan.push(&home, sample.tunnel("10.244.4.0/24", "own0", "192.0.2.2"));
    stage.scene.apply(&plan, Fault::None).unwrap();
    pins::remove(&stage.folder()).unwrap();
    assert_eq!(stage.outcomes(), [Undone::Gone, Undone::Gone, Undone::Gone, Undone::Gone]);
    stage.scene.assert_as_before("after undo");
}

/// A filter keeps its program alive, even if its bpffs is unmounted.
#[test]
fn a_filter_outlives_its_mount_until_undo() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    stage.apply_by_filter();
    pins::remove(&stage.folder()).unwrap();
    assert_eq!(how_attached(&stage), Some(Attached::Filter));
    assert_eq!(stage.outcomes(), [Undone::Restored, Undone::Gone]);
    stage.scene.assert_as_before("after undo");
}

#[test]
fn what_another_took_out_of_the_maps_is_gone() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let mut plan = stage.plan.clone();
    let (sample, home) = (&stage.scene.sample, stage.scene.sample.home());
    plan.push(&home, sample.endpoint("own0", &["10.244.1.2"]));
    plan.push(&home, sample.tunnel("10.244.4.0/24", "own0", "192.0.2.2"));
    stage.scene.apply(&plan, Fault::None).unwrap();
    let (folder, link) = (stage.folder(), stage.index());
    let mac = linux::Mac::from_id(2, 2);
    let addresses = vec!["10.244.1.2".parse().unwrap()];
    let pod = bpf::forward::Endpoint { link, mac, addresses, queued: false };
    bpf::forward::remove_endpoint(&folder, &pod).unwrap();
    let (prefix, remote) = ("10.244.4.0/24".parse().unwrap(), "192.0.2.2".parse().unwrap());
    let tunnel = bpf::forward::Tunnel { prefix, device: link, remote };
    bpf::forward::remove_tunnel(&folder, &tunnel).unwrap();
    assert_eq!(stage.outcomes(), [Undone::Gone, Undone::Gone, Undone::Restored, Undone::Restored]);
    stage.scene.assert_as_before("after undo");
}

#[test]
fn what_is_there_already_is_refused() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let sample = &stage.scene.sample;
    let mut whole = stage.plan.clone();
    whole.push(&sample.home(), sample.endpoint("own0", &["10.244.1.2"]));
    whole.push(&sample.home(), sample.tunnel("10.244.4.0/24", "own0", "192.0.2.2"));
    stage.scene.apply(&whole, Fault::None).unwrap();
    let before = dump(&stage.scene.world.open("home"));
    for (step, words) in [
        (sample.load_programs(), "hostgap bpf unload"),
        (sample.attach(Program::FromWire, LINK), "program from_wire at link own0"),
        (sample.endpoint("own0", &["10.244.1.3"]), "at link own0"),
        (sample.endpoint("free0", &["10.244.1.2"]), "one of the addresses"),
        (sample.tunnel("10.244.4.0/24", "own0", "192.0.2.2"), "the tunnel to 10.244.4.0/24"),
    ] {
        let mut again = Plan::new();
        again.push(&sample.home(), step.clone());
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(&directory.path().join("again")).unwrap();
        let mut kernel = Kernel::new().unwrap();
        let error = plan::apply(&again, &mut journal, &mut kernel).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(matches!(error, ApplyError::Step { why: StepError::Exists { .. }, .. }), "{error:?}");
        assert_eq!(plan::undo(&mut journal, &mut kernel), [], "a refusal has nothing to undo");
    }
    before.assert_same(&dump(&stage.scene.world.open("home")), "after refusals");
    assert!(stage.outcomes().iter().all(|outcome| *outcome == Undone::Restored));
    stage.scene.assert_as_before("after undo");
}

/// The programs read an Ethernet header at the front of what arrives.
#[test]
fn a_link_without_ethernet_headers_is_refused() {
    if !require_root() {
        return;
    }
    if !Path::new("/dev/net/tun").exists() {
        return testkit::skip("no tun");
    }
    let scene = Scene::with("ip -n HOME tuntap add dev tun9 mode tun");
    let (sample, mut kernel) = (&scene.sample, Kernel::new().unwrap());
    let Step::LoadPrograms(programs) = sample.load_programs() else { panic!("it is the step that loads") };
    let by_tun = Step::LoadPrograms(Programs { wire: ifname("tun9"), ..programs });
    let mut refused = |step| {
        let result = by_hand(&Placed { place: sample.home(), step }, &mut kernel);
        let error = result.map_err(|error| error.to_string()).unwrap_err();
        assert!(error.contains("packets of link tun9 have no Ethernet header"), "{error}");
    };
    refused(by_tun);
    scene.assert_as_before("after a refusal");
    let mut loaded = Plan::new();
    loaded.push(&sample.home(), sample.load_programs());
    scene.apply(&loaded, Fault::None).unwrap();
    refused(Step::AddUplink(Uplink { node: sample.node(), link: ifname("tun9") }));
    refused(sample.attach(Program::FromWire, "tun9"));
    assert!(scene.undo().0.iter().all(|(_, outcome)| *outcome == Undone::Restored));
    scene.assert_as_before("after undo");
}
