//! Steps of a guard: its program, its place at a link, and a pod that is gone before its entry.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use bpf::forward::Program;
use bpf::guard::{self, Guarded as Entry};
use bpf::pins;
use linux::features::{Feature, probe};
use linux::{Mac, Netlink, Netns};
use plan::forwarding::{Guard, Guarded, ProgramAttachment};
use plan::{
    ApplyError, Fault, Journal, Kernel, Place, Plan, Step, StepError, StepState, Undone, apply, look, undo,
};
use testkit::{World, require_root, shell};

use crate::sample::{ifname, ip};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// A node with a link to a pod.
struct Node {
    world: World,
    directory: tempfile::TempDir,
}

impl Node {
    /// `None`, with the skip recorded, if programs cannot run here.
    fn new() -> Option<Node> {
        if !require_root() {
            return None;
        }
        if let Some(unmet) = probe().unwrap().unmet(&[Feature::Veth, Feature::BpfTc]).first() {
            testkit::skip(&unmet.to_string());
            return None;
        }
        let world = World::new();
        let (node, pod) = (world.name("node"), world.name("pod"));
        shell(&format!(
            "ip netns add {node}; ip netns add {pod}
             ip -n {node} link add hgp1 type veth peer name eth0 netns {pod}"
        ));
        Some(Node { world, directory: tempfile::tempdir().unwrap() })
    }

    fn name(&self) -> String {
        self.world.name("node").to_string()
    }

    fn plan(&self) -> Plan {
        let (place, node, link) = (Place::Netns(self.world.name("node")), self.name(), ifname("hgp1"));
        let mut plan = Plan::new();
        plan.push(&place, Step::LoadGuard(Guard { node: node.clone() }));
        let program = Program::Guard;
        let attachment = ProgramAttachment { node: node.clone(), program, link: link.clone() };
        plan.push(&place, Step::AttachProgram(attachment));
        let pod = Place::Netns(self.world.name("pod"));
        let addresses = vec![ip("10.244.1.2"), ip("fd00:244::2")];
        plan.push(&place, Step::AddGuarded(Guarded { node, link, pod, mac: MAC, addresses }));
        plan
    }

    fn apply(&self, fault: Fault) -> (Result<(), ApplyError>, Journal) {
        let path = self.directory.path().join("journal");
        let _ = std::fs::remove_file(&path);
        let mut journal = Journal::create(&path).unwrap();
        let mut kernel = Kernel::new().unwrap();
        kernel.inject(fault);
        (apply(&self.plan(), &mut journal, &mut kernel).map(drop), journal)
    }

    fn place(&self) -> Netns {
        self.world.open("node")
    }

    /// The entry as the plan writes it, of a container with another cookie if `more` is not 0.
    fn entry(&self, more: u64) -> Entry {
        let link = Netlink::open_in(&self.place()).unwrap().index_of(&ifname("hgp1")).unwrap();
        let container = self.world.open("pod").cookie().unwrap() + more;
        Entry { link, container, mac: MAC, addresses: vec![ip("10.244.1.2"), ip("fd00:244::2")] }
    }

    #[track_caller]
    fn assert_nothing(&self, before: &testkit::Dump, when: &str) {
        assert!(!pins::exists(&pins::folder(&self.name())), "{when}: there are pins");
        before.assert_same(&testkit::dump(&self.place()), when);
    }
}

fn outcomes(journal: &mut Journal) -> Vec<Undone> {
    undo(journal, &mut Kernel::new().unwrap()).into_iter().map(|(_, outcome)| outcome).collect()
}

#[test]
fn it_comes_back_from_death_after_any_line() {
    let Some(node) = Node::new() else { return };
    let before = testkit::dump(&node.place());
    for line in 2..=7 {
        let (result, mut journal) = node.apply(Fault::DeadAfterLine(line));
        assert!(matches!(result, Err(ApplyError::Injected { .. })), "{line}: {result:?}");
        for outcome in outcomes(&mut journal) {
            assert!(matches!(outcome, Undone::Restored | Undone::AlreadySo), "{line}: {outcome:?}");
        }
        node.assert_nothing(&before, &format!("dead after line {line}"));
    }
}

#[test]
fn a_pod_may_go_before_its_entry() {
    let Some(node) = Node::new() else { return };
    let (result, mut journal) = node.apply(Fault::None);
    result.unwrap();
    let (folder, entry) = (pins::folder(&node.name()), node.entry(0));
    assert_eq!(guard::has(&folder, &entry).unwrap(), Some(true));
    assert_eq!(guard::has(&folder, &node.entry(1)).unwrap(), Some(false), "another namespace's");
    shell(&format!("ip netns del {}", node.world.name("pod")));
    assert_eq!(outcomes(&mut journal), vec![Undone::Restored; 3]);
    assert!(!pins::exists(&folder));
}

#[test]
fn what_is_there_is_refused() {
    let Some(node) = Node::new() else { return };
    let (result, mut first) = node.apply(Fault::None);
    result.unwrap();
    for step in node.plan().steps {
        let error = plan::by_hand(&step, &mut Kernel::new().unwrap()).unwrap_err();
        assert!(matches!(error, ApplyError::Step { why: StepError::Exists { .. }, .. }), "{error}");
    }
    assert_eq!(outcomes(&mut first), vec![Undone::Restored; 3]);
}

/// Others' programs may stand beside it: it takes no packet from them. What is gone is noticed.
#[test]
fn it_is_looked_at() {
    let Some(node) = Node::new() else { return };
    let (result, mut journal) = node.apply(Fault::None);
    result.unwrap();
    let mut kernel = Kernel::new().unwrap();
    let plan = node.plan();
    let mut states = || plan.steps.iter().map(|step| look(step, &mut kernel).unwrap()).collect::<Vec<_>>();
    assert_eq!(states(), [StepState::So, StepState::So, StepState::So]);
    // Another program, which happens to be a guard of its own. A kernel without tcx has one place for such a filter.
    let index = node.entry(0).link;
    if !node.place().run(|| bpf::programs_at(index)).unwrap().unwrap().is_empty() {
        let other = pins::folder(node.world.name("other").as_str());
        pins::make(&other).unwrap();
        guard::load(&other).unwrap();
        let (program, pin) = (Program::Guard.pin(&other), other.join("link"));
        let _ = node.place().run(|| bpf::attach(&program, bpf::Hook::Ingress, index, &pin)).unwrap().unwrap();
        assert_eq!(states(), [StepState::So, StepState::So, StepState::So]);
    }
    guard::remove(&pins::folder(&node.name()), &node.entry(0)).unwrap();
    assert_eq!(states(), [StepState::So, StepState::So, StepState::Absent]);
    let _ = outcomes(&mut journal);
}
