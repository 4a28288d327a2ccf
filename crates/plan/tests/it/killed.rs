//! A process that applies a plan is killed at any moment. Its journal alone is enough to undo the plan.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plan::{Journal, Kernel, Plan, Undone, apply};
use testkit::require_root;

use crate::faults::JUDGED_EVERY;
use crate::scene::Scene;

/// The variable that names the child's directory, with the plan to read and the journal to write.
const DIRECTORY: &str = "HOSTGAP_TEST_APPLY_IN";
const REPETITIONS: u32 = 40;
const SEED: u64 = 0x5eed_0b57_ac1e;

#[test]
#[ignore = "this is the child process of a_killed_apply_is_undone"]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let plan: Plan = serde_json::from_slice(&std::fs::read(directory.join("plan")).unwrap()).unwrap();
    let mut journal = Journal::create(&directory.join("journal")).unwrap();
    apply(&plan, &mut journal, &mut Kernel::new().unwrap()).unwrap();
}

fn start(directory: &Path) -> Child {
    Command::new(std::env::current_exe().expect("a test knows its program"))
        .args(["--exact", "killed::child", "--ignored"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the test's program can be started")
}

/// Undoes what the journal holds, if the child lived to make one. Returns how many steps it had begun.
#[track_caller]
fn undo_all(scene: &Scene, when: &str) -> usize {
    if !scene.path().exists() {
        scene.assert_as_before_quick(when);
        return 0;
    }
    let (results, journal) = scene.undo();
    let odd = |outcome: &Undone| !matches!(outcome, Undone::Restored | Undone::AlreadySo);
    let odd: Vec<_> = results.iter().filter(|(_, outcome)| odd(outcome)).collect();
    assert!(odd.is_empty(), "{when}: {odd:?}");
    journal.remove().expect("the journal can be removed");
    scene.assert_as_before_quick(when);
    results.len()
}

#[test]
fn a_killed_apply_is_undone() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let directory = scene.directory.path();
    let plan = scene.sample.plan();
    std::fs::write(directory.join("plan"), serde_json::to_vec(&plan).unwrap()).unwrap();

    // A child that is not killed shows how long one lives.
    let born = Instant::now();
    assert!(start(directory).wait().unwrap().success());
    let life = born.elapsed();
    assert_eq!(undo_all(&scene, "without a kill"), plan.steps.len());

    let mut random = SEED;
    let mut begun = Vec::new();
    for round in 0..REPETITIONS {
        // xorshift64 (Marsaglia 2003). The high bits give the age at the kill in thousandths of a life.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let age = life * u32::try_from((random >> 32) % 1000).unwrap() / 1000;
        let mut child = start(directory);
        std::thread::sleep(age.max(Duration::from_millis(1)));
        child.kill().unwrap();
        child.wait().unwrap();
        let when = format!("killed in round {round} at the age of {age:?}");
        begun.push(undo_all(&scene, &when));
        if round % JUDGED_EVERY as u32 == 0 {
            scene.assert_as_before(&when);
        }
    }
    scene.assert_as_before("at the end");
    let in_the_midst = begun.iter().filter(|steps| (1..plan.steps.len()).contains(*steps)).count();
    assert!(in_the_midst > 0, "every kill came too early or too late: {begun:?}");
}
