//! Steps of Services: programs, their place at a control group, and Services that are exchanged.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use bpf::forward::Program;
use bpf::{AddressCall, guard, pins, services};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use linux::Cgroup;
use linux::features::Feature;
use plan::forwarding::{Service, ServiceAddress, ServiceAttachment, ServiceEntry, ServicePrograms};
use plan::{
    ApplyError, Fault, Journal, Kernel, Place, Plan, Reconciled, Step, StepState, Undone, look, undo,
};

use crate::node_with_pod::{NodeWithPod, outcomes};
use crate::reconcile::{brought_to, reconciled};

const AT: &str = "10.96.0.10:53/udp";
const OTHER: &str = "[fd00:96::a]:53/tcp";

/// A node and a control group.
struct Node {
    own: NodeWithPod,
    cgroup: Cgroup,
    directory: tempfile::TempDir,
}

impl Node {
    fn new() -> Option<Node> {
        let own = NodeWithPod::new(&[Feature::BpfServices])?;
        let cgroup = Cgroup::named(own.name().as_str()).unwrap();
        cgroup.create().unwrap();
        Some(Node { own, cgroup, directory: tempfile::tempdir().unwrap() })
    }

    fn node(&self) -> String {
        self.own.name().to_string()
    }

    fn folder(&self) -> PathBuf {
        pins::folder(&self.node())
    }

    fn service(&self, at: &str, backends: &[&str]) -> Step {
        let backends = backends.iter().map(|text| text.parse::<SocketAddr>().unwrap()).collect();
        let service = Service { at: at.parse().unwrap(), affinity_s: 0, backends };
        Step::ReplaceService(ServiceEntry { node: self.node(), service })
    }

    fn plan_of(&self, services: impl IntoIterator<Item = Step>) -> Plan {
        let attachment = ServiceAttachment { node: self.node(), cgroup: self.cgroup.path().to_owned() };
        let mut plan = Plan::new();
        plan.push(&Place::Host, Step::LoadServices(ServicePrograms { node: self.node() }));
        plan.push(&Place::Host, Step::AttachServices(attachment));
        for service in services {
            plan.push(&Place::Host, service);
        }
        plan
    }

    fn plan(&self) -> Plan {
        let dns = self.service(AT, &["10.244.1.2:5353", "10.244.2.2:5353"]);
        self.plan_of([dns, self.service(OTHER, &["[fd00:244:1::2]:5353"])])
    }

    /// Where calls are led, in words.
    fn found(&self, at: &str) -> String {
        let found = services::find(&self.folder(), &at.parse::<ServiceAddress>().unwrap()).unwrap();
        found.map_or_else(|| "none".to_owned(), |found| found.to_string())
    }

    #[track_caller]
    fn assert_nothing(&self, when: &str) {
        assert!(!pins::exists(&self.folder()), "{when}: there are pins");
        assert_eq!(services::met(&self.folder(), self.cgroup.path()).unwrap(), [], "{when}");
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("reconciled")
    }

    fn reconciled(&self, plan: &Plan, fault: Fault) -> Result<Reconciled, ApplyError> {
        reconciled(&self.path(), plan, fault)
    }

    #[track_caller]
    fn reconcile(&self, plan: &Plan) -> Reconciled {
        brought_to(&self.path(), plan)
    }

    fn undo(&self) -> Vec<Undone> {
        let mut journal = Journal::open(&self.path()).unwrap();
        undo(&mut journal, &mut Kernel::new().unwrap()).into_iter().map(|(_, undone)| undone).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = pins::remove(&self.folder());
        let _ = self.cgroup.remove();
    }
}

#[test]
fn it_comes_back_from_death_after_any_line() {
    let Some(node) = Node::new() else { return };
    node.own.assert_undone_after_any_death(&node.plan(), |when| node.assert_nothing(when));
}

#[test]
fn programs_are_loaded_once_and_a_service_gives_way() {
    let Some(node) = Node::new() else { return };
    let (result, mut journal) = node.own.apply(&node.plan(), Fault::None);
    result.unwrap();
    let mut kernel = Kernel::new().unwrap();
    for step in &node.plan().steps[..2] {
        let error = plan::by_hand(step, &mut kernel).unwrap_err().to_string();
        assert!(error.contains("is there already; if ") && error.contains("hostgap bpf unload"), "{error}");
    }
    let states = node.plan().steps.iter().map(|step| look(step, &mut kernel).unwrap()).collect::<Vec<_>>();
    assert_eq!(states, vec![StepState::So; 4]);
    // Another unit's step displaces the Service, and puts it back.
    let path = node.directory.path().join("other");
    let mut plan = Plan::new();
    plan.push(&Place::Host, node.service(AT, &[]));
    let mut other = Journal::create(&path).unwrap();
    plan::apply(&plan, &mut other, &mut kernel).unwrap();
    assert_eq!(node.found(AT), format!("{AT} with no backend"));
    assert_eq!(outcomes(&mut other), [Undone::Restored]);
    assert_eq!(node.found(AT), format!("{AT} with 10.244.1.2:5353, 10.244.2.2:5353"));
    assert_eq!(outcomes(&mut journal), vec![Undone::Restored; 4]);
    node.assert_nothing("after undo");
}

#[test]
fn what_a_stranger_changes_is_named_and_mended() {
    let Some(node) = Node::new() else { return };
    let plan = node.plan();
    assert_eq!(node.reconcile(&plan).made.len(), 4);
    let at: ServiceAddress = AT.parse().unwrap();
    let set = |backend: &str| {
        let service =
            Service { at, affinity_s: 7, backends: [backend.parse().unwrap()].into_iter().collect() };
        services::set(&node.folder(), &service).unwrap();
    };
    let harms: [(&dyn Fn(), &str); 5] = [
        (&|| services::remove(&node.folder(), &at).unwrap(), "service 10.96.0.10:53/udp of NODE is gone"),
        (
            &|| set("10.244.9.9:53"),
            "service 10.96.0.10:53/udp of NODE is now 10.96.0.10:53/udp with 10.244.9.9:53 and an affinity of 7 s",
        ),
        (
            &|| services::detach(&node.folder()).unwrap(),
            "the services of NODE are no longer at control group",
        ),
        (&|| std::fs::remove_file(node.folder().join("link_sendmsg6")).unwrap(), "are now without sendmsg6"),
        (&|| pins::remove(&node.folder()).unwrap(), "the bpffs with the services of NODE is gone"),
    ];
    for (harm, says) in harms {
        harm();
        // The kernel ends a bpf link without a holder some time later.
        let says = says.replace("NODE", &node.node());
        let repaired = loop {
            let repaired = node.reconciled(&plan, Fault::None).unwrap().repaired;
            if !repaired.is_empty() {
                break repaired;
            }
        };
        node.reconcile(&plan);
        let words: Vec<String> = repaired.iter().map(ToString::to_string).collect();
        assert!(words.iter().any(|words| words.contains(&says)), "{says}: {words:?}");
    }
    assert!(node.undo().iter().all(|undone| matches!(undone, Undone::Restored | Undone::Gone)));
    node.assert_nothing("after undo");
}

#[test]
fn backends_change_in_their_place_and_services_go() {
    let Some(node) = Node::new() else { return };
    node.reconcile(&node.plan());
    let plan = node.plan_of([node.service(AT, &["10.244.2.2:5353", "10.244.3.2:5353"])]);
    let done = node.reconcile(&plan);
    assert_eq!((done.made.len(), done.repaired.len(), done.removed.len()), (1, 0, 1), "{done:?}");
    assert_eq!(node.found(AT), format!("{AT} with 10.244.2.2:5353, 10.244.3.2:5353"));
    assert_eq!(node.found(OTHER), "none");
    // Undo knows of what it was in between that it was its own.
    assert_eq!(node.undo(), vec![Undone::Restored; 3]);
    node.assert_nothing("after undo");
}

/// An agent that moves into a container has the group of before under another path there.
#[test]
fn a_control_group_by_another_path_is_the_same() {
    let Some(node) = Node::new() else { return };
    let plan = node.plan();
    node.reconcile(&plan);
    let links = || {
        let pins = std::fs::read_dir(node.folder()).unwrap().map(|entry| entry.unwrap());
        let links = pins.filter(|pin| pin.file_name().to_string_lossy().starts_with("link_"));
        links.map(|pin| (pin.file_name(), pin.metadata().unwrap().ino())).collect::<BTreeMap<_, _>>()
    };
    let before = links();
    assert_eq!(before.len(), 8);
    let at = |cgroup: PathBuf| {
        let mut moved = plan.clone();
        let attachment = ServiceAttachment { node: node.node(), cgroup };
        moved.steps[1].step = Step::AttachServices(attachment);
        moved
    };
    let moved = at(node.cgroup.path().join("..").join(node.cgroup.path().file_name().unwrap()));
    let done = node.reconcile(&moved);
    assert_eq!((done.made.len(), done.repaired.len(), done.removed.len()), (1, 0, 0), "{done:?}");
    assert_eq!(links(), before);
    // Another group is another thing.
    let other = Cgroup::named(&format!("{}-other", node.node())).unwrap();
    other.create().unwrap();
    let done = node.reconcile(&at(other.path().to_owned()));
    let met = [node.cgroup.path(), other.path()].map(|at| services::met(&node.folder(), at).unwrap().len());
    let undone = node.undo();
    other.remove().unwrap();
    assert_eq!((done.made.len(), met), (1, [0, 8]), "{done:?}");
    assert_eq!(undone, vec![Undone::Restored; 4]);
    node.assert_nothing("after undo");
}

#[test]
fn a_change_can_be_killed_anywhere() {
    let Some(node) = Node::new() else { return };
    let (first, second) = (node.plan(), node.plan_of([node.service(AT, &["10.244.3.2:5353"])]));
    node.reconcile(&first);
    let from = Journal::open(&node.path()).unwrap().entries().len();
    node.reconcile(&second);
    let to = Journal::open(&node.path()).unwrap().entries().len();
    assert!(to >= from + 4);
    node.undo();
    for goes_on in [true, false] {
        for line in from + 1..to {
            std::fs::remove_file(node.path()).unwrap();
            node.reconcile(&first);
            node.reconciled(&second, Fault::DeadAfterLine(line)).unwrap_err();
            if goes_on {
                node.reconcile(&second);
                assert_eq!(node.found(AT), format!("{AT} with 10.244.3.2:5353"));
            }
            let undone = node.undo();
            assert!(undone.iter().all(Undone::is_final), "dead after line {line}: {undone:?}");
            node.assert_nothing(&format!("dead after line {line}"));
        }
    }
}

/// An undo that was killed leaves an entry without backends, by which the rest is found.
#[test]
fn an_undo_can_be_killed_in_the_middle() {
    let Some(node) = Node::new() else { return };
    let (result, mut journal) = node.own.apply(&node.plan(), Fault::None);
    result.unwrap();
    let going = Service { at: AT.parse().unwrap(), affinity_s: 0, backends: Default::default() };
    services::set(&node.folder(), &going).unwrap();
    assert_eq!(outcomes(&mut journal), vec![Undone::Restored; 4]);
    node.assert_nothing("after undo");
}

#[test]
fn maps_of_another_version_are_made_anew() {
    let Some(node) = Node::new() else { return };
    let plan = node.plan();
    node.reconcile(&plan);
    let programs = ServicePrograms { node: node.node() };
    assert_eq!(plan::renew_services(&programs).unwrap(), None, "they are this build's");
    let folder = node.folder();
    guard::load(&folder).unwrap();
    let (other, place) = (Program::Guard.pin(&folder), folder.join(AddressCall::ALL[0].name()));
    std::fs::rename(other, place).unwrap();
    assert_eq!(plan::renew_services(&programs).unwrap().unwrap().links, 8);
    assert_eq!(plan::renew_services(&programs).unwrap(), None);
    let format = MapHandle::from_pinned_path(node.folder().join("service_format")).unwrap();
    format.update(&[0; 4], &9_u32.to_ne_bytes(), MapFlags::ANY).unwrap();
    assert!(plan::renew_services(&programs).unwrap_err().to_string().contains("are of format 9"));
    // A reconciliation that found them so before it began.
    let steps = Plan { steps: plan.steps[..2].to_vec() };
    let repaired = node.reconciled(&steps, Fault::None).unwrap().repaired;
    assert!(repaired[0].what.contains("that of another version"), "{repaired:?}");
    node.reconcile(&plan);
    assert!(node.found(AT).ends_with("10.244.2.2:5353"));
    node.undo();
    node.assert_nothing("after undo");
    assert_eq!(plan::renew_services(&programs).unwrap(), None);
}
