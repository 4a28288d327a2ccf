//! The guest lanes: the tests that need another kernel, on Debian kernels that have all the modules.
//!
//! A lane boots once for all its tests. Each test is announced and closed by a mark on stdout, so that a guest that died
//! or ran out of time still leaves the results of those before.

mod script;

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, anyhow};
use vm::deb;
use vm::{Cache, Error, Flavour, Limits, Nic, Vm};

use crate::guest::script::GuestOutput;
use crate::lane::Lane;
use crate::libtest::Test;
use crate::root;
use crate::suite::TestKind;

/// A kernel to boot, and what runs on it.
pub(crate) struct Guest {
    /// Where the kernel comes from.
    kernel: deb::Suite,
    /// The build of that kernel.
    flavour: Flavour,
    /// What the kernel is booted with beside what every guest is.
    arguments: &'static str,
    /// How its lane is called in what we print.
    pub(crate) lane: &'static str,
    /// The integration tests that it runs: the first matching line decides, and a test without one stays out.
    tests: &'static [(Package, Prefix, When)],
}

/// The name of a workspace crate.
type Package = &'static str;
/// How the path of a test inside its binary begins.
type Prefix = &'static str;

/// When a guest runs a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Always: the treatment of packets and the verifier's decisions differ between kernels.
    Always,
    /// Only if it could not run natively, or no test runs natively.
    Skipped,
    Never,
}
use When::{Always, Never, Skipped};

/// Every guest, in the order in which they boot; those that wait for the native lane's skips come last.
pub(crate) static ALL: [Guest; 5] = [
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        arguments: "",
        lane: "paths",
        tests: &[
            // Natively they run on this machine's kernel, and the verifier's oldest decisions are the old lane's.
            ("bpf", "", Skipped),
            // Thousands of random packets are the same on every kernel, but for those through our own programs.
            ("datapath", "attack::ebpf", Always),
            ("datapath", "splice::", Always),
            // One family alone is less than both; IPv4 has a kernel of its own below.
            ("datapath", "traffic::ipv4_alone", Never),
            ("datapath", "traffic::ipv6_alone", Skipped),
            ("datapath", "traffic::", Always),
            ("datapath", "", Skipped),
        ],
    },
    // The kernel that Debian 12's users have. A test of what 6.1 lacks (netkit, tcx) skips here and runs in another lane.
    Guest {
        kernel: deb::Suite::Stable,
        flavour: Flavour::Cloud,
        arguments: "",
        lane: "old",
        tests: &[
            // Thousands of random packets are the same on every kernel.
            ("bpf", "odd::", Never),
            // Without tcx both would be the same test.
            ("bpf", "replace::no_packet_is_lost_where", Never),
            ("bpf", "", Always),
            ("datapath", "traffic::ipv4_alone", Never),
            ("datapath", "traffic::ipv6_alone", Never),
            ("datapath", "traffic::", Always),
            // What the table of knobs states about kernels must hold on each, and drivers of cards differ in what
            // resets what.
            ("tune", "defaults::", Always),
            ("tune", "card::", Always),
        ],
    },
    // A kernel without IPv6 has no socket, route, parameter or counter of it.
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        arguments: "ipv6.disable=1",
        lane: "ipv4",
        tests: &[
            ("datapath", "traffic::ipv4_alone", Always),
            ("lab", "standing::the_families_of_the_kernel", Always),
        ],
    },
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        arguments: "",
        lane: "races",
        tests: &[("lab", "", Skipped)],
    },
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        arguments: "",
        lane: "guest",
        tests: &[
            ("doctor", "", Skipped),
            ("linux", "", Skipped),
            // Faults at every step of a plan, and dozens of kills, test the same code on every kernel. They take
            // minutes natively, and so half an hour here.
            ("plan", "faults::", Never),
            ("plan", "killed::", Never),
            ("plan", "", Skipped),
            ("tune", "", Skipped),
            // The binary's races and endings are equal on every kernel. But its commands differ for each data path,
            // and only a guest has cards that may be tuned.
            ("hostgap", "commands::", Skipped),
            ("hostgap", "tune::found::", Skipped),
            ("hostgap", "tune::machine::", Skipped),
            ("hostgap", "tune::cards::", Skipped),
        ],
    },
];

/// For all tests of a guest, on the slowest machine: a limit that a test can exceed is its own, in the script.
const TIME_MAX: Duration = Duration::from_secs(4800);
const MEMORY_MIB: u32 = 3072;
/// For the tests of what only a card has: queues, rings, interrupts. Each is the best at something.
const NICS: [Nic; 3] = [Nic::Virtio { queues: 4 }, Nic::Igb, Nic::Vmxnet3];
/// Our variables that tests read, passed on to the guest.
const VARIABLES: [&str; 3] = ["CI", "HOSTGAP_KILLS", "HOSTGAP_NGINX"];
/// The data paths that could not run natively. In a guest, tests that go through all data paths use only these.
const MISSED: &str = "HOSTGAP_PATHS";

/// Why not every test came to its end in the guest.
pub(crate) enum Trouble {
    /// There is no guest: no packages, no Debian 12. This fails only in CI, which must have all of that.
    NoGuest(String),
    /// The guest died or hung under a test, which may well be the test's doing. Fails everywhere.
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

/// Boots `guest` and runs `tests` in it; does not boot if `tests` is empty. `after_native`: these tests already ran
/// natively, on each data path that can run there.
pub(crate) fn run(
    guest: &Guest,
    tests: &[Test<'_>],
    lane: &Lane<'_>,
    after_native: bool,
) -> Result<Option<Trouble>> {
    if tests.is_empty() {
        return Ok(None);
    }
    let vm = match Cache::open().and_then(|cache| Vm::fetch(&cache, guest.kernel, guest.flavour)) {
        Ok(vm) => vm.with_kernel_arguments(guest.arguments),
        Err(error) => return Ok(Some(Trouble::NoGuest(error.to_string()))),
    };
    println!("{:<7} Linux {}, {} tests", guest.lane, vm.kernel().release, tests.len());
    let mut log = GuestOutput::new(tests, lane);
    let limits = Limits { time: TIME_MAX, memory_mib: MEMORY_MIB, nics: NICS.to_vec(), ..Limits::default() };
    let mut command = command(tests);
    if after_native {
        command.env(MISSED, missed()?);
    }
    let outcome = vm.run_watched(&command, &limits, &mut |bytes: &[u8]| log.feed(bytes));
    let unfinished = log.unfinished();
    Ok(match outcome {
        Ok(output) if output.status == 0 => unfinished.map(Trouble::Died),
        Ok(output) => Some(Trouble::Died(format!("its script ended with {}", output.status))),
        Err(error @ (Error::Died { .. } | Error::TimedOut { .. } | Error::TooMuchOutput { .. })) => {
            Some(Trouble::Died(format!("{error}\n{}", unfinished.unwrap_or_default())))
        }
        Err(error) => return Err(anyhow!(error).context("could not run the guest")),
    })
}

/// The names of the data paths that this machine's own kernel cannot run, with commas between them.
fn missed() -> Result<String> {
    let facts = linux::features::probe()?;
    let missed = datapath::ALL.iter().filter(|path| !path.unmet(&facts).is_empty());
    Ok(missed.map(|path| path.name).collect::<Vec<_>>().join(","))
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
    // Snapshots are found from the top of the workspace, for which insta would ask cargo; the guest has none in PATH.
    command.env("INSTA_WORKSPACE_ROOT", root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Suite;

    #[test]
    fn the_first_line_that_fits_decides() {
        let guest = Guest {
            kernel: deb::Suite::Stable,
            flavour: Flavour::Cloud,
            arguments: "",
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
}
