//! Steps outside any network namespace: a control group, the programs of a splice, and a pod that is gone
//! before them.

use std::net::IpAddr;

use bpf::{pins, splice};
use linux::features::{Feature, probe};
use linux::process::Spawn;
use plan::forwarding::{Member, Splice};
use plan::{ApplyError, Fault, Journal, Kernel, Place, Plan, Step, StepError, Undone, apply, undo};
use testkit::{World, require_root, shell};

/// A node with its folder of pins, which its forwarding programs would have made, and a pod.
struct Node {
    world: World,
    splice: Splice,
    directory: tempfile::TempDir,
}

impl Node {
    fn new() -> Option<Node> {
        if !require_root() {
            return None;
        }
        if let Some(unmet) =
            probe().expect("root can do it").unmet(&[Feature::BpfTc, Feature::BpfSockets]).first()
        {
            testkit::skip(&unmet.to_string());
            return None;
        }
        let world = World::new();
        let node = world.name("node").to_string();
        shell(&format!("ip netns add {node}; ip netns add {}", world.name("pod")));
        pins::make(&pins::folder(&node)).expect("root can do it");
        Some(Node { world, splice: Splice { node }, directory: tempfile::tempdir().expect("root can do it") })
    }

    fn plan(&self) -> Plan {
        let node = Place::Netns(self.world.name("node"));
        let mut plan = Plan::new();
        plan.push(&node, Step::AddCgroup(self.splice.clone()));
        plan.push(&node, Step::LoadSplice(self.splice.clone()));
        plan.push(&node, Step::AttachSplice(self.splice.clone()));
        let addresses: Vec<IpAddr> = vec![
            "10.244.1.2".parse().expect("root can do it"),
            "fd00:244::2".parse().expect("root can do it"),
        ];
        let member = Member { node: self.splice.node.clone(), addresses };
        plan.push(&Place::Netns(self.world.name("pod")), Step::AddMember(member));
        plan
    }

    fn apply(&self, fault: Fault) -> (Result<(), ApplyError>, Journal) {
        let path = self.directory.path().join("journal");
        let _ = std::fs::remove_file(&path);
        let mut journal = Journal::create(&path).expect("root can do it");
        let mut kernel = Kernel::new().expect("root can do it");
        kernel.inject(fault);
        (apply(&self.plan(), &mut journal, &mut kernel).map(drop), journal)
    }

    #[track_caller]
    fn assert_nothing(&self, when: &str) {
        let folder = pins::folder(&self.splice.node);
        assert!(
            !self.splice.cgroup().expect("root can do it").exists(),
            "{when}: the control group is there"
        );
        assert!(!splice::is_loaded(&folder), "{when}: there are pins");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = pins::remove(&pins::folder(&self.splice.node));
        let _ = self.splice.cgroup().and_then(|cgroup| cgroup.remove());
    }
}

fn outcomes(journal: &mut Journal) -> Vec<Undone> {
    undo(journal, &mut Kernel::new().expect("root can do it"))
        .into_iter()
        .map(|(_, outcome)| outcome)
        .collect()
}

#[test]
fn it_comes_back_from_death_after_any_line() {
    let Some(node) = Node::new() else { return };
    for line in 2..=9 {
        let (result, mut journal) = node.apply(Fault::DeadAfterLine(line));
        assert!(matches!(result, Err(ApplyError::Injected { .. })), "{line}: {result:?}");
        let found = outcomes(&mut journal);
        assert!(
            found.iter().all(|outcome| matches!(outcome, Undone::Restored | Undone::AlreadySo)),
            "{found:?}"
        );
        node.assert_nothing(&format!("dead after line {line}"));
    }
}

#[test]
fn a_pod_may_go_before_its_entry() {
    let Some(node) = Node::new() else { return };
    let (result, mut journal) = node.apply(Fault::None);
    result.unwrap();
    let (folder, pod) = (pins::folder(&node.splice.node), node.world.name("pod"));
    let cookie = linux::Netns::open(&pod).unwrap().cookie().unwrap();
    let v4: [IpAddr; 1] = ["10.244.1.2".parse().unwrap()];
    assert_eq!(splice::has_member(&folder, cookie, &v4).unwrap(), Some(true));
    assert_eq!(splice::has_member(&folder, cookie + 1, &v4).unwrap(), Some(false), "another namespace's");
    shell(&format!("ip netns del {pod}"));
    assert_eq!(outcomes(&mut journal), vec![Undone::Restored; 4]);
    node.assert_nothing("after undo");
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
    assert_eq!(outcomes(&mut first), vec![Undone::Restored; 4]);
}

#[test]
fn a_group_that_is_in_use_is_named_and_can_be_undone_later() {
    let Some(node) = Node::new() else { return };
    let (result, mut journal) = node.apply(Fault::None);
    result.unwrap();
    let mut spawn = Spawn::new("sleep");
    spawn.args = vec!["300".to_owned()];
    spawn.cgroup = Some(node.splice.cgroup().unwrap());
    let mut sleeper = spawn.start().unwrap();
    let found = outcomes(&mut journal);
    let Some(Undone::Failed { why }) = found.last() else { panic!("{found:?}") };
    assert!(why.contains(&format!("which holds processes {}", sleeper.pid())), "{why}");
    sleeper.kill().unwrap();
    assert_eq!(outcomes(&mut journal), [Undone::Restored]);
    node.assert_nothing("after the second undo");
}
