//! The time of a plan's step by the number of steps. The time of each apply, look and undo must not grow with
//! the plan.
//!
//! `cargo bench -p plan`; some minutes, as root. A node in a namespace of its own gets peers by each kind of tunnel, or
//! other objects of which it may have many. What this kernel lacks is named and not measured. The journal lies in
//! memory, because the time of a disk is not measured here. Nothing is asserted: the figures are for readers, and what
//! counts is that a column stays the same.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]

mod cases;
mod forwarding;
mod peers;

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use linux::features::{Feature, probe};
use plan::{Journal, Kernel, Made, Place, Plan, StepState, Undone, apply, look, undo};
use testkit::World;

use cases::CASES;

type Failure = Box<dyn Error>;

/// Plans of one kind, of several sizes.
struct Case {
    name: &'static str,
    needs: &'static [Feature],
    /// How many peers, links or other objects a plan has.
    sizes: &'static [u32],
    /// What exists in the namespace before the plan.
    ground: fn(&Scale<'_>) -> Result<Plan, Failure>,
    plan: fn(&Scale<'_>) -> Result<Plan, Failure>,
    /// Whether the kernel can be asked for one of them. Else a look at each by itself would list all each time.
    is_single: bool,
}

/// Where a plan is made, and how large.
struct Scale<'a> {
    place: &'a Place,
    /// For files that steps read.
    directory: &'a Path,
    size: u32,
}

fn main() -> Result<(), Failure> {
    // Cargo runs this program with the tests too, and then without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    println!("microseconds for each step");
    println!(
        "{:>16} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "plan", "size", "apply", "look", "all", "read", "undo"
    );
    let facts = probe()?;
    for case in CASES {
        if let Some(unmet) = facts.unmet(case.needs).first() {
            println!("{:>16} not on this machine: {unmet}", case.name);
            continue;
        }
        for size in case.sizes {
            let Figures { steps, apply, look, all, read, undo } = measure(case, *size)?;
            let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(steps);
            let look = look.map_or_else(|| "-".to_owned(), |look| format!("{:.1}", each(look)));
            let [apply, all, read, undo] = [apply, all, read, undo].map(each);
            println!("{:>16} {size:>8} {apply:>8.1} {look:>8} {all:>8.1} {read:>8.1} {undo:>8.1}", case.name);
        }
    }
    Ok(())
}

/// The times of one plan.
struct Figures {
    steps: u32,
    apply: Duration,
    /// A look at each step by itself.
    look: Option<Duration>,
    /// Two looks at all steps and everything beside them.
    all: Duration,
    /// Reading the journal from its file.
    read: Duration,
    undo: Duration,
}

fn measure(case: &Case, size: u32) -> Result<Figures, Failure> {
    let world = World::new();
    world.add("node");
    let place = world.place("node");
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let mut kernel = Kernel::new()?.with_claims(directory.path().join("claims"));
    let mut ground = Journal::create(&directory.path().join("ground"))?;
    let scale = Scale { place: &place, directory: directory.path(), size };
    apply(&(case.ground)(&scale)?, &mut ground, &mut kernel)?;

    let (plan, path) = ((case.plan)(&scale)?, directory.path().join("journal"));
    let (apply, applied) =
        timed(|| apply(&plan, &mut Journal::create(&path)?, &mut kernel).map_err(Failure::from));
    applied?;
    let is_so = |step| matches!(look(step, &mut kernel), Ok(StepState::So));
    let (look, so) = timed(|| !case.is_single || plan.steps.iter().all(is_so));
    let look = case.is_single.then_some(look);
    let (all, unchanged) = timed(|| {
        let (made, changes) = Made::of(&plan, &mut kernel)?;
        Ok::<_, Failure>(changes.is_empty() && made.changed(&mut kernel)?.is_none())
    });
    let (read, journal) = timed(|| Journal::open(&path));
    let mut journal = journal?;
    let (took, outcomes) = timed(|| undo(&mut journal, &mut kernel));
    // Links that go with their namespace keep the kernel busy for seconds, and the next plan would wait for it.
    undo(&mut ground, &mut kernel);
    if !so || !unchanged? || !outcomes.iter().all(|(_, outcome)| *outcome == Undone::Restored) {
        return Err("the plan was not done, or not undone".into());
    }
    Ok(Figures { steps: u32::try_from(plan.steps.len())?, apply, look, all, read, undo: took })
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let done = work();
    (start.elapsed(), done)
}
