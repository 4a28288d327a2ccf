//! The stage of every test here: a furnished world, how it was, and a place for a journal.

use std::path::PathBuf;

use linux::Netns;
use plan::{ApplyError, Fault, Journal, Kernel, Placed, Plan, Undone, apply, undo};
use tempfile::TempDir;
use testkit::{Dump, World, dump, quick_dump};

use crate::sample::Sample;

/// A furnished world and a directory for its journal.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) sample: Sample,
    pub(crate) directory: TempDir,
    /// How `home` and `away` were before any plan, as outside programs list them and as the process itself does.
    before: [Dump; 2],
    before_quick: [Dump; 2],
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::with("true")
    }

    /// With one more command of somebody else before it is looked at; `HOME` in it is the name of that namespace.
    pub(crate) fn with(command: &str) -> Scene {
        let world = World::new();
        let sample = Sample::of(&world);
        sample.furnish();
        testkit::shell(&command.replace("HOME", sample.home.as_str()));
        let (before, before_quick) = (state(&world, dump), state(&world, quick_dump));
        // A journal is synchronised twice for each step; what a disk takes for that is no matter of these tests.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.expect("a temporary directory can be made");
        Scene { world, sample, directory, before, before_quick }
    }

    /// Where the journal is.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    /// Applies with a new journal, up to a fault; how many lines the journal has then.
    pub(crate) fn apply(&self, plan: &Plan, fault: Fault) -> Result<usize, ApplyError> {
        let _ = std::fs::remove_file(self.path());
        let mut journal = Journal::create(&self.path()).expect("a journal can be made");
        let mut kernel = Kernel::new().expect("the kernel can be opened");
        kernel.inject(fault);
        apply(plan, &mut journal, &mut kernel).map(|_| journal.entries().len())
    }

    /// Undoes from the file, as a later process would; returns the open journal too.
    pub(crate) fn undo(&self) -> (Vec<(Placed, Undone)>, Journal) {
        let mut journal = Journal::open(&self.path()).expect("the journal is sound");
        let results = undo(&mut journal, &mut Kernel::new().expect("the kernel can be opened"));
        (results, journal)
    }

    /// True if something in `home` or `away` is not as it was.
    pub(crate) fn is_changed(&self) -> bool {
        self.before != state(&self.world, dump)
    }

    /// Outside programs judge.
    #[track_caller]
    pub(crate) fn assert_as_before(&self, when: &str) {
        self.assert_same(&self.before, &state(&self.world, dump), when);
    }

    /// As [`Scene::assert_as_before`], without starting programs: for a test that looks again and again, and lets
    /// outside programs judge now and then. What is left in a namespace is there for them, too.
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

/// The state of both namespaces that are there before the plan.
fn state(world: &World, read: fn(&Netns) -> Dump) -> [Dump; 2] {
    ["home", "away"].map(|short| read(&world.open(short)))
}
