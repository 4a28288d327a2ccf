//! Steps outside any network namespace: a control group, the programs of a splice, and a pod that is gone
//! before them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use bpf::{pins, splice};
use linux::features::Feature;
use linux::process::Spawn;
use plan::forwarding::{Member, Splice};
use plan::{Fault, Place, Plan, Step, Undone};

use crate::node_with_pod::{NodeWithPod, outcomes};
use crate::sample::ip;

/// A node with its folder of pins, which its forwarding programs would have made, and a pod.
struct Node {
    own: NodeWithPod,
    splice: Splice,
}

impl Node {
    fn new() -> Option<Node> {
        let own = NodeWithPod::new(&[Feature::BpfTc, Feature::BpfSockets])?;
        let splice = Splice { node: own.name().to_string() };
        pins::make(&pins::folder(&splice.node)).unwrap();
        Some(Node { own, splice })
    }

    fn plan(&self) -> Plan {
        let node = Place::Netns(self.own.world.name("node"));
        let mut plan = Plan::new();
        plan.push(&node, Step::AddCgroup(self.splice.clone()));
        plan.push(&node, Step::LoadSplice(self.splice.clone()));
        plan.push(&node, Step::AttachSplice(self.splice.clone()));
        let addresses = vec![ip("10.244.1.2"), ip("fd00:244::2")];
        let member = Member { node: self.splice.node.clone(), addresses };
        plan.push(&Place::Netns(self.own.world.name("pod")), Step::AddMember(member));
        plan
    }

    #[track_caller]
    fn assert_nothing(&self, when: &str) {
        let folder = pins::folder(&self.splice.node);
        assert!(!self.splice.cgroup().unwrap().exists(), "{when}: the control group is there");
        assert!(!splice::is_loaded(&folder), "{when}: there are pins");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = pins::remove(&pins::folder(&self.splice.node));
        let _ = self.splice.cgroup().and_then(|cgroup| cgroup.remove());
    }
}

#[test]
fn it_comes_back_from_death_after_any_line() {
    let Some(node) = Node::new() else { return };
    node.own.assert_undone_after_any_death(&node.plan(), |when| node.assert_nothing(when));
}

#[test]
fn a_pod_may_go_before_its_entry() {
    let Some(node) = Node::new() else { return };
    let (result, mut journal) = node.own.apply(&node.plan(), Fault::None);
    result.unwrap();
    let folder = pins::folder(&node.splice.node);
    let cookie = node.own.world.open("pod").cookie().unwrap();
    let v4 = [ip("10.244.1.2")];
    assert_eq!(splice::has_member(&folder, cookie, &v4).unwrap(), Some(true));
    assert_eq!(splice::has_member(&folder, cookie + 1, &v4).unwrap(), Some(false), "another namespace's");
    node.own.remove_pod();
    assert_eq!(outcomes(&mut journal), vec![Undone::Restored; 4]);
    node.assert_nothing("after undo");
}

#[test]
fn what_is_there_is_refused() {
    let Some(node) = Node::new() else { return };
    node.own.assert_made_once(&node.plan());
}

#[test]
fn a_group_that_is_in_use_is_named_and_can_be_undone_later() {
    let Some(node) = Node::new() else { return };
    let (result, mut journal) = node.own.apply(&node.plan(), Fault::None);
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
