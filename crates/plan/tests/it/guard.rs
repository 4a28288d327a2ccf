//! Steps of a guard: its program, its place at a link, and a pod that is gone before its entry.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use bpf::forward::Program;
use bpf::guard::{self, Guarded as Entry};
use bpf::pins;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use linux::features::Feature;
use linux::{Mac, Netlink};
use plan::forwarding::{Guard, Guarded, ProgramAttachment};
use plan::{Fault, Kernel, Place, Plan, Step, StepState, Undone, by_hand, look, mend, replace_guard};
use testkit::shell;

use crate::node_with_pod::{NodeWithPod, outcomes};
use crate::sample::{ifname, ip};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// A node with a link to a pod.
struct Node(NodeWithPod);

impl Node {
    fn new() -> Option<Node> {
        let node = NodeWithPod::new(&[Feature::Veth, Feature::BpfTc])?;
        let (own, pod) = (node.name(), node.world.name("pod"));
        shell(&format!("ip -n {own} link add hgp1 type veth peer name eth0 netns {pod}"));
        Some(Node(node))
    }

    fn name(&self) -> String {
        self.0.name().to_string()
    }

    fn plan(&self, at_once: bool) -> Plan {
        let (place, node, link) = (Place::Netns(self.0.world.name("node")), self.name(), ifname("hgp1"));
        let mut plan = Plan::new();
        plan.push(&place, Step::LoadGuard(Guard { node: node.clone() }));
        let program = Program::Guard;
        let attachment = ProgramAttachment { node: node.clone(), program, link: link.clone(), at_once };
        plan.push(&place, Step::AttachProgram(attachment));
        let pod = Place::Netns(self.0.world.name("pod"));
        let addresses = vec![ip("10.244.1.2"), ip("fd00:244::2")];
        plan.push(&place, Step::AddGuarded(Guarded { node, link, pod, mac: MAC, addresses }));
        plan
    }

    /// The entry as the plan writes it, of a container with another cookie if `more` is not 0.
    fn entry(&self, more: u64) -> Entry {
        let link = Netlink::open_in(&self.0.place()).unwrap().index_of(&ifname("hgp1")).unwrap();
        let container = self.0.world.open("pod").cookie().unwrap() + more;
        Entry { link, container, mac: MAC, addresses: vec![ip("10.244.1.2"), ip("fd00:244::2")] }
    }

    #[track_caller]
    fn assert_nothing(&self, before: &testkit::Dump, when: &str) {
        assert!(!pins::exists(&pins::folder(&self.name())), "{when}: there are pins");
        before.assert_same(&testkit::dump(&self.0.place()), when);
    }
}

#[test]
fn it_comes_back_from_death_after_any_line() {
    let Some(node) = Node::new() else { return };
    let before = testkit::dump(&node.0.place());
    for at_once in [true, false] {
        let plan = node.plan(at_once);
        node.0.assert_undone_after_any_death(&plan, |when| node.assert_nothing(&before, when));
    }
}

#[test]
fn a_pod_may_go_before_its_entry() {
    let Some(node) = Node::new() else { return };
    let (result, mut journal) = node.0.apply(&node.plan(true), Fault::None);
    result.unwrap();
    let (folder, entry) = (pins::folder(&node.name()), node.entry(0));
    assert_eq!(guard::has(&folder, &entry).unwrap(), Some(true));
    assert_eq!(guard::has(&folder, &node.entry(1)).unwrap(), Some(false), "another namespace's");
    node.0.remove_pod();
    let outcomes = outcomes(&mut journal);
    assert_eq!([&outcomes[0], &outcomes[2]], [&Undone::Restored; 2]);
    // The kernel takes the link, and the filter with it, some time after the name of the namespace.
    assert!([Undone::Restored, Undone::Gone].contains(&outcomes[1]), "{outcomes:?}");
    assert!(!pins::exists(&folder));
}

#[test]
fn what_is_there_is_refused() {
    let Some(node) = Node::new() else { return };
    node.0.assert_made_once(&node.plan(true));
}

/// Others' programs may stand beside it: it takes no packet from them. What is gone is noticed.
#[test]
fn it_is_looked_at() {
    let Some(node) = Node::new() else { return };
    for at_once in [true, false] {
        looked_at(&node, &node.plan(at_once));
    }
}

#[track_caller]
fn looked_at(node: &Node, plan: &Plan) {
    let (result, mut journal) = node.0.apply(plan, Fault::None);
    result.unwrap();
    let mut kernel = Kernel::new().unwrap();
    let mut states = || plan.steps.iter().map(|step| look(step, &mut kernel).unwrap()).collect::<Vec<_>>();
    assert_eq!(states(), [StepState::So, StepState::So, StepState::So]);
    // Another program, which happens to be a guard of its own. A kernel without tcx has one place for such a filter.
    let index = node.entry(0).link;
    if !node.0.place().run(|| bpf::programs_at(index)).unwrap().unwrap().is_empty() {
        let other = pins::folder(node.0.world.name("other").as_str());
        pins::make(&other).unwrap();
        guard::load(&other).unwrap();
        let (program, pin) = (Program::Guard.pin(&other), other.join("link"));
        let _ =
            node.0.place().run(|| bpf::attach(&program, bpf::Hook::Ingress, index, &pin)).unwrap().unwrap();
        assert_eq!(states(), [StepState::So, StepState::So, StepState::So]);
    }
    guard::remove(&pins::folder(&node.name()), &node.entry(0)).unwrap();
    assert_eq!(states(), [StepState::So, StepState::So, StepState::Absent]);
    let _ = outcomes(&mut journal);
}

/// The steps of the version before hold for the program of this one; of maps that it cannot read they say so.
#[test]
fn its_program_is_replaced_and_another_format_is_noticed() {
    let Some(node) = Node::new() else { return };
    for at_once in [true, false] {
        let plan = node.plan(at_once);
        let (result, mut journal) = node.0.apply(&plan, Fault::None);
        result.unwrap();
        let mut kernel = Kernel::new().unwrap();
        let (place, of) = (Place::Netns(node.0.world.name("node")), Guard { node: node.name() });
        let replaced = replace_guard(&mut kernel, &place, &of).unwrap();
        assert_eq!((replaced.from, replaced.links + replaced.filters), (guard::FORMAT, 1));
        let states: Vec<_> = plan.steps.iter().map(|step| look(step, &mut kernel).unwrap()).collect();
        assert_eq!(states, [StepState::So, StepState::So, StepState::So]);
        let folder = pins::folder(&node.name());
        guard::remove(&folder, &node.entry(0)).unwrap();
        let format = MapHandle::from_pinned_path(folder.join("guard_format")).unwrap();
        format.update(&[0; 4], &9_u32.to_ne_bytes(), MapFlags::ANY).unwrap();
        let found = look(&plan.steps[0], &mut kernel).unwrap();
        let another = "that of another version, whose maps this one cannot read";
        assert_eq!(found, StepState::Otherwise { found: another.to_owned() });
        for error in [
            replace_guard(&mut kernel, &place, &of).unwrap_err().to_string(),
            by_hand(&plan.steps[2], &mut kernel).unwrap_err().to_string(),
        ] {
            assert!(error.contains("the maps of its guard are of format 9"), "{error}");
        }
        assert_eq!(guard::has(&folder, &node.entry(0)).unwrap(), None);
        assert_eq!(outcomes(&mut journal), [Undone::Gone, Undone::Restored, Undone::Restored]);
    }
}

/// Other units have entries in the guard's maps, and only their own journals know them.
#[test]
fn what_it_knows_of_other_units_is_kept_where_it_is_mended() {
    let Some(node) = Node::new() else { return };
    for at_once in [true, false] {
        let plan = node.plan(at_once);
        let (result, mut journal) = node.0.apply(&plan, Fault::None);
        result.unwrap();
        let (folder, mut kernel) = (pins::folder(&node.name()), Kernel::new().unwrap());
        let theirs = Entry { link: 77, addresses: vec![ip("10.244.1.3")], ..node.entry(7) };
        guard::add(&folder, &theirs).unwrap();
        std::fs::remove_file(Program::Guard.pin(&folder)).unwrap();
        let mended: Vec<_> =
            mend(&mut journal, &mut kernel).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(mended, [format!("namespace {0}: the guard of {0} is gone", node.name())]);
        let states: Vec<_> = plan.steps.iter().map(|step| look(step, &mut kernel).unwrap()).collect();
        assert_eq!(states, [StepState::So, StepState::So, StepState::So]);
        assert_eq!(guard::has(&folder, &theirs).unwrap(), Some(true));

        let format = MapHandle::from_pinned_path(folder.join("guard_format")).unwrap();
        format.update(&[0; 4], &9_u32.to_ne_bytes(), MapFlags::ANY).unwrap();
        let error = mend(&mut journal, &mut kernel).unwrap_err().to_string();
        assert!(error.contains("the maps of its guard are of format 9"), "{error}");
        assert_eq!(guard::has(&folder, &theirs).unwrap(), Some(true));
        format.update(&[0; 4], &guard::FORMAT.to_ne_bytes(), MapFlags::ANY).unwrap();
        assert_eq!(mend(&mut journal, &mut kernel).unwrap(), []);
        assert_eq!(outcomes(&mut journal), [Undone::Restored, Undone::Restored, Undone::Restored]);
    }
}
