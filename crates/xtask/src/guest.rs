//! The guest lanes: tests that need another kernel, on Debian kernels that have all the modules.
//!
//! A lane boots once for all its tests. A mark on stdout announces each test and another closes it, so that a
//! guest that dies or runs out of time still leaves the results of the tests before. If the emulator itself
//! fails, another guest goes on with the test that it interrupted.

mod lanes;
mod script;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use vm::deb;
use vm::{Cache, Error, Flavour, Limits, Nic, Timing, UNGUARDED, Vm};

pub(crate) use crate::guest::lanes::ALL;
use crate::guest::script::GuestOutput;
use crate::lane::Lane;
use crate::libtest::Test;
use crate::root;
use crate::suite::TestKind;

/// A kernel to boot, and the tests that run on it.
pub(crate) struct Guest {
    /// Where the kernel comes from.
    kernel: deb::Suite,
    /// The build of that kernel.
    flavour: Flavour,
    /// Additional arguments of the kernel.
    arguments: &'static str,
    /// The number of its CPUs.
    cpus: u32,
    /// The name of its lane in our output.
    pub(crate) lane: &'static str,
    /// The integration tests that it runs. The first matching line decides, and a test without one does not
    /// run.
    tests: &'static [(Package, Prefix, When)],
}

type Package = &'static str;
/// The beginning of a test's path in its binary.
type Prefix = &'static str;

/// When a guest runs a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Always, because kernels differ in how they treat packets and in what the verifier accepts.
    Always,
    /// Only if it could not run natively, or if no tests run natively.
    Skipped,
    Never,
}
use When::Never;

/// A guest that says nothing for longer than a test may take hangs: each test's mark is a word. All of them together
/// have a limit that no machine reaches.
const SILENCE_MAX: Duration = script::TEST_TIME_MAX.saturating_add(Duration::from_secs(120));
const TIME_MAX: Duration = Duration::from_secs(86_400);
const MEMORY_MIB: u32 = 3072;
/// How often a lane goes on after a failure of the emulator, which says nothing about the program.
const EMULATOR_FAILURES_MAX: u32 = 2;
/// For tests of what only a card has: queues, rings, interrupts. Each model has something that the others
/// lack.
const NICS: [Nic; 3] = [Nic::Virtio { queues: 4 }, Nic::Igb, Nic::Vmxnet3];
/// Environment variables that tests read. They are passed on to the guest.
const VARIABLES: [&str; 5] = ["CI", "HOSTGAP_KILLS", "HOSTGAP_NGINX", "HOSTGAP_OVS", "HOSTGAP_ROOTLESS"];
/// The data paths that could not run natively. Tests in a guest that go through all data paths use only
/// these.
const MISSED: &str = "HOSTGAP_PATHS";

/// Why not every test in the guest came to its end.
pub(crate) enum Trouble {
    /// There is no guest, because packages or Debian 12 are missing. This fails only in CI, which must have
    /// them.
    NoGuest(String),
    /// The guest died or hung in a test, perhaps because of the test. This fails everywhere.
    Died(String),
}

impl Guest {
    /// When this guest runs a test.
    pub(crate) fn when(&self, test: &Test<'_>) -> When {
        if test.suite.kind != TestKind::Integration {
            return Never;
        }
        let mut lines = self.tests.iter();
        let fits = |(package, prefix, _): &&(Package, Prefix, When)| {
            test.suite.package == *package && test.name.starts_with(prefix)
        };
        lines.find(fits).map_or(Never, |(.., when)| *when)
    }
}

/// The lines of the lanes that no test fits: one was renamed, and its lane would go without it unnoticed.
pub(crate) fn lines_without_tests(tests: &[Test<'_>]) -> Vec<String> {
    let lines = ALL.iter().flat_map(|guest| guest.tests.iter().map(move |line| (guest.lane, line)));
    let fits = |package: &str, prefix: &str| {
        tests.iter().any(|test| {
            let suite = test.suite;
            let is_candidate = suite.kind == TestKind::Integration && suite.package == package;
            is_candidate && test.name.starts_with(prefix)
        })
    };
    let empty = lines.filter(|(_, (package, prefix, _))| !fits(package, prefix));
    empty.map(|(lane, (package, prefix, _))| format!("{lane}: {package} {prefix}")).collect()
}

/// Boots `guest` and runs `tests` in it, or does nothing if there are none. With `after_native` they have already run
/// natively, on each data path of which this program, `hostgap`, says that it can run there.
pub(crate) fn run(
    guest: &Guest,
    tests: &[Test<'_>],
    lane: &Lane<'_>,
    after_native: Option<&Path>,
) -> Result<Option<Trouble>> {
    if tests.is_empty() {
        return Ok(None);
    }
    let vm = match Cache::open().and_then(|cache| Vm::fetch(&cache, guest.kernel, guest.flavour)) {
        Ok(vm) => vm.with_kernel_arguments(&format!("{UNGUARDED} {}", guest.arguments)),
        Err(error) => return Ok(Some(Trouble::NoGuest(error.to_string()))),
    };
    println!("{:<7} Linux {}, {} tests", guest.lane, vm.kernel().release, tests.len());
    let mut log = GuestOutput::new(tests, lane);
    let outcome = run_all(guest, &vm, &mut log, after_native)?;
    let unfinished = log.unfinished();
    Ok(match outcome {
        Ok(output) if output.status == 0 => unfinished.map(Trouble::Died),
        Ok(output) => Some(Trouble::Died(format!("its script ended with {}", output.status))),
        Err(
            error @ (Error::Died { .. }
            | Error::Emulator { .. }
            | Error::TimedOut { .. }
            | Error::Silent { .. }
            | Error::TooMuchOutput { .. }),
        ) => Some(Trouble::Died(format!("{error}\n{}", unfinished.unwrap_or_default()))),
        Err(error) => return Err(anyhow!(error).context("could not run the guest")),
    })
}

/// Runs the tests that have no result yet, and boots again for the rest if the emulator fails.
fn run_all(
    guest: &Guest,
    vm: &Vm,
    log: &mut GuestOutput<'_>,
    after_native: Option<&Path>,
) -> Result<vm::Result<vm::Output>> {
    let limits = Limits {
        time: TIME_MAX,
        silence: SILENCE_MAX,
        memory_mib: MEMORY_MIB,
        timing: Timing::RealTime { cpus: guest.cpus },
        nics: NICS.to_vec(),
        ..Limits::default()
    };
    let mut failures = 0;
    loop {
        let mut command = command(log.rest());
        if let Some(program) = after_native {
            command.env(MISSED, missed(program)?);
        }
        match vm.run_watched(&command, &limits, &mut |bytes: &[u8]| log.feed(bytes)) {
            Err(error @ Error::Emulator { .. }) if failures < EMULATOR_FAILURES_MAX => {
                failures += 1;
                println!("{:<7} boots again: {error}\n{}", guest.lane, log.unfinished().unwrap_or_default());
                log.resume();
            }
            outcome => return Ok(outcome),
        }
    }
}

/// The data paths that this machine's own kernel cannot run, separated by commas, as the program says.
fn missed(program: &Path) -> Result<String> {
    let output = Command::new(program).args(["paths", "--json"]).output();
    let output = output.with_context(|| format!("could not start {}", program.display()))?;
    if !output.status.success() {
        bail!("`hostgap paths` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed: Value = serde_json::from_slice(&output.stdout).context("`hostgap paths` wrote no JSON")?;
    let paths = listed["paths"].as_array().context("`hostgap paths` lists no paths")?;
    let missed = paths.iter().filter(|path| path["runnable"] == false);
    Ok(missed.filter_map(|path| path["name"].as_str()).collect::<Vec<_>>().join(","))
}

fn command(tests: &[Test<'_>]) -> Command {
    let mut command = script::command(tests);
    command.env("HOME", "/root");
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    for name in VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("RUST_BACKTRACE", "1").env("HOSTGAP_VM", "1");
    // insta looks for snapshots from the top of the workspace, and would ask cargo for it. The guest has no
    // cargo in PATH.
    command.env("INSTA_WORKSPACE_ROOT", root());
    command
}

#[cfg(test)]
mod tests {
    use super::When::{Always, Skipped};
    use super::*;
    use crate::suite::Suite;

    #[test]
    fn the_first_line_that_fits_decides() {
        let guest = Guest {
            kernel: deb::Suite::Stable,
            flavour: Flavour::Cloud,
            arguments: "",
            cpus: 1,
            lane: "old",
            tests: &[("plan", "faults::", Never), ("plan", "", Skipped), ("datapath", "traffic::", Always)],
        };
        let when = |package: &str, kind: TestKind, name: &str| {
            let suite = Suite { package: package.into(), kind, binary: "/t/it-1".into(), folder: "/".into() };
            guest.when(&Test { suite: &suite, name: name.into() })
        };
        assert_eq!(when("plan", TestKind::Integration, "faults::a"), Never);
        assert_eq!(when("plan", TestKind::Integration, "look::a"), Skipped);
        assert_eq!(when("datapath", TestKind::Integration, "traffic::a"), Always);
        assert_eq!(when("datapath", TestKind::Integration, "undo::a"), Never);
        assert_eq!(when("lab", TestKind::Integration, "a"), Never);
        assert_eq!(when("plan", TestKind::Unit, "look::a"), Never);
    }

    /// One list was made two of, by the number of CPUs: whatever one leaves out is in the other.
    #[test]
    fn what_needs_a_second_cpu_has_one() {
        let lanes = |package: &str, name: &str| {
            let (package, kind, name) = (package.to_owned(), TestKind::Integration, name.to_owned());
            let suite = Suite { package, kind, binary: "/t/it-1".into(), folder: "/".into() };
            let test = Test { suite: &suite, name };
            let of = |guest: &&Guest| guest.when(&test) != Never;
            ALL.iter().filter(of).map(|guest| (guest.lane, guest.cpus)).collect::<Vec<_>>()
        };
        assert_eq!(lanes("bpf", "replace::no_packet_is_lost"), [("programs", 2), ("races", 2)]);
        assert_eq!(lanes("datapath", "splice::a"), [("races", 2)]);
        assert_eq!(lanes("lab", "path::a"), [("races", 2)]);
        assert_eq!(lanes("lab", "one_side::a"), [("topologies", 1)]);
        assert_eq!(lanes("linux", "steering::a"), [("cards", 2)]);
        assert_eq!(lanes("plan", "card::a"), [("cards", 2)]);
        assert_eq!(lanes("tune", "card::a"), [("programs", 2), ("cards", 2)]);
        assert_eq!(lanes("hostgap", "tune::found::a"), [("cards", 2)]);
        for module in ["card", "machine", "rhythm"] {
            assert_eq!(lanes("doctor", &format!("live::{module}::a")), [("cards", 2)]);
        }
        assert_eq!(lanes("doctor", "live::wan::a"), [("guest", 1)]);
        assert_eq!(lanes("linux", "xfrm::a"), [("guest", 1)]);
        assert_eq!(lanes("plan", "xfrm::a"), [("guest", 1)]);
    }
}
