//! The scene of every test here: a prepared world, its earlier state, and a place for a journal.

use std::path::PathBuf;

use linux::Netns;
use plan::{ApplyError, Fault, Journal, Kernel, Placed, Plan, Undone, apply, undo};
use tempfile::TempDir;
use testkit::{Dump, World, dump, quick_dump};

use crate::sample::Sample;

/// A prepared world and a directory for its journal.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) sample: Sample,
    pub(crate) directory: TempDir,
    /// The state of `home` and `away` before any plan: as outside programs list it, and as the process itself
    /// reads it.
    before: [Dump; 2],
    before_quick: [Dump; 2],
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::with("true")
    }

    /// The same after one more command, in which `HOME` stands for that namespace.
    pub(crate) fn with(command: &str) -> Scene {
        let world = World::new();
        let sample = Sample::of(&world);
        sample.furnish();
        testkit::shell(&command.replace("HOME", sample.home.as_str()));
        let (before, before_quick) = (state(&world, dump), state(&world, quick_dump));
        // A journal is synchronised twice for each step, and the time of a disk does not belong to these tests. `/run`
        // is a test's own, in memory.
        let directory = tempfile::tempdir_in("/run").or_else(|_| tempfile::tempdir());
        let directory = directory.expect("a temporary directory can be made");
        Scene { world, sample, directory, before, before_quick }
    }

    /// Where the journal is.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    /// Applies with a new journal, up to a fault. Returns how many lines the journal has then.
    pub(crate) fn apply(&self, plan: &Plan, fault: Fault) -> Result<usize, ApplyError> {
        let _ = std::fs::remove_file(self.path());
        let mut journal = Journal::create(&self.path()).expect("a journal can be made");
        let mut kernel = Kernel::new().expect("the kernel can be opened");
        kernel.inject(fault);
        apply(plan, &mut journal, &mut kernel).map(|_| journal.entries().len())
    }

    /// Undoes from the file, as a later process would. Returns the open journal too.
    pub(crate) fn undo(&self) -> (Vec<(Placed, Undone)>, Journal) {
        let mut journal = Journal::open(&self.path()).expect("the journal is sound");
        let results = undo(&mut journal, &mut Kernel::new().expect("the kernel can be opened"));
        (results, journal)
    }

    /// Undo of a plan takes all of it, of the whole and wherever apply stopped. Returns how many lines the journal
    /// of the whole has.
    #[track_caller]
    pub(crate) fn assert_undo_takes_all(&self, plan: &Plan) -> usize {
        let lines = self.apply(plan, Fault::None).expect("the plan can be applied");
        assert!(self.is_changed(), "the plan changes something");
        let (results, _) = self.undo();
        assert!(results.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{results:?}");
        self.assert_as_before("after undo");
        self.undo_wherever_apply_stops(plan, lines, |when| self.assert_as_before(when));
        lines
    }

    /// Applies with a fault after each step, and dies after each line of a journal of so many `lines`. Undo of each
    /// must come to its end; `check` looks at what it leaves.
    #[track_caller]
    pub(crate) fn undo_wherever_apply_stops(&self, plan: &Plan, lines: usize, check: impl Fn(&str)) {
        let steps = (0..plan.steps.len()).map(Fault::AfterStep);
        // The lines are the header, then an intent and a result for each step.
        for fault in steps.chain((2..=lines).map(Fault::DeadAfterLine)) {
            assert!(self.apply(plan, fault).is_err(), "{fault:?}");
            let (results, journal) = self.undo();
            assert!(journal.is_undone(), "{fault:?}: {results:?}");
            check(&format!("after {fault:?}"));
        }
    }

    /// Whether anything in `home` or `away` has changed.
    pub(crate) fn is_changed(&self) -> bool {
        self.before != state(&self.world, dump)
    }

    /// Checks with outside programs that everything is as before.
    #[track_caller]
    pub(crate) fn assert_as_before(&self, when: &str) {
        self.assert_same(&self.before, &state(&self.world, dump), when);
    }

    /// Like [`Scene::assert_as_before`] without starting programs, for tests that check often. They use
    /// outside programs now and then, which still find whatever was left in a namespace.
    #[track_caller]
    pub(crate) fn assert_as_before_quick(&self, when: &str) {
        self.assert_same(&self.before_quick, &state(&self.world, quick_dump), when);
    }

    #[track_caller]
    fn assert_same(&self, before: &[Dump; 2], now: &[Dump; 2], when: &str) {
        for (before, now) in before.iter().zip(now) {
            before.assert_same(now, when);
        }
        let existing = self.world.existing();
        assert_eq!(existing.len(), 2, "{when}, there are namespaces {existing:?}");
        let pinned = self.world.pinned();
        assert_eq!(pinned, [] as [String; 0], "{when}, programs are pinned");
    }
}

/// The state of the two namespaces that exist before the plan.
fn state(world: &World, read: fn(&Netns) -> Dump) -> [Dump; 2] {
    ["home", "away"].map(|short| read(&world.open(short)))
}
