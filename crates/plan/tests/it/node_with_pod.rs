//! A node and a pod for steps of programs that have an entry for each pod: what holds for all of them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use linux::features::{Feature, probe};
use linux::{Netns, NetnsName};
use plan::{ApplyError, Fault, Journal, Kernel, Plan, StepError, Undone, apply, undo};
use testkit::{World, require_root, shell};

/// The namespaces `node` and `pod`, with a directory for journals.
pub(crate) struct NodeWithPod {
    pub(crate) world: World,
    directory: tempfile::TempDir,
}

impl NodeWithPod {
    /// `None`, with the skip recorded, if this kernel lacks one of the features.
    pub(crate) fn new(features: &[Feature]) -> Option<NodeWithPod> {
        if !require_root() {
            return None;
        }
        if let Some(unmet) = probe().unwrap().unmet(features).first() {
            testkit::skip(&unmet.to_string());
            return None;
        }
        let world = World::new();
        shell(&format!("ip netns add {}; ip netns add {}", world.name("node"), world.name("pod")));
        Some(NodeWithPod { world, directory: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn name(&self) -> NetnsName {
        self.world.name("node")
    }

    pub(crate) fn place(&self) -> Netns {
        self.world.open("node")
    }

    pub(crate) fn remove_pod(&self) {
        shell(&format!("ip netns del {}", self.world.name("pod")));
    }

    /// With a journal in place of the last one.
    pub(crate) fn apply(&self, plan: &Plan, fault: Fault) -> (Result<(), ApplyError>, Journal) {
        let path = self.directory.path().join("journal");
        let _ = std::fs::remove_file(&path);
        let mut journal = Journal::create(&path).unwrap();
        let mut kernel = Kernel::new().unwrap();
        kernel.inject(fault);
        (apply(plan, &mut journal, &mut kernel).map(drop), journal)
    }

    /// Nothing is there after undo wherever apply died.
    #[track_caller]
    pub(crate) fn assert_undone_after_any_death(&self, plan: &Plan, assert_nothing: impl Fn(&str)) {
        // The lines are the header, then an intent and a result for each step.
        for line in 2..=1 + 2 * plan.steps.len() {
            let (result, mut journal) = self.apply(plan, Fault::DeadAfterLine(line));
            assert!(matches!(result, Err(ApplyError::Injected { .. })), "{line}: {result:?}");
            for outcome in outcomes(&mut journal) {
                assert!(matches!(outcome, Undone::Restored | Undone::AlreadySo), "{line}: {outcome:?}");
            }
            assert_nothing(&format!("dead after line {line}"));
        }
    }

    /// What a plan has made cannot be made once more, and goes.
    #[track_caller]
    pub(crate) fn assert_made_once(&self, plan: &Plan) {
        let (result, mut first) = self.apply(plan, Fault::None);
        result.unwrap();
        for step in &plan.steps {
            let error = plan::by_hand(step, &mut Kernel::new().unwrap()).unwrap_err();
            assert!(matches!(error, ApplyError::Step { why: StepError::Exists { .. }, .. }), "{error}");
        }
        assert_eq!(outcomes(&mut first), vec![Undone::Restored; plan.steps.len()]);
    }
}

pub(crate) fn outcomes(journal: &mut Journal) -> Vec<Undone> {
    undo(journal, &mut Kernel::new().unwrap()).into_iter().map(|(_, outcome)| outcome).collect()
}
