//! The guest lanes: the tests that need namespaces, on Debian kernels that have all the modules.
//!
//! One boot a lane for all its binaries. Each is announced and closed by a mark on stdout, so that a guest that died or
//! ran out of time still leaves the results of those before.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use vm::deb;
use vm::{Cache, Error, Flavour, Limits, Nic, Vm};

use crate::ledger::{Ledger, Verdict};
use crate::libtest;
use crate::native::show;
use crate::root;
use crate::suite::{Kind, Suite};

/// A kernel to boot, and what runs on it.
pub(crate) struct Guest {
    /// Where the kernel comes from.
    kernel: deb::Suite,
    /// And which build of it.
    flavour: Flavour,
    /// How its lane is called in what we print.
    pub(crate) lane: &'static str,
    /// The crates whose integration tests run on it; one that does not exist has none.
    packages: &'static [&'static str],
    /// Those of them whose tests always do: what packets do and which programs the verifier takes differs between
    /// kernels. Of the others it is those that could not run natively.
    always: &'static [&'static str],
    /// Of these crates only some tests.
    parts: &'static [(&'static str, &'static str)],
    /// Tests that stay out.
    out: &'static [(&'static str, &'static str)],
}

/// Every guest, in the order in which they boot: the longest first, so that none is left alone at the end.
pub(crate) static ALL: [Guest; 3] = [
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        lane: "paths",
        packages: &["datapath", "bpf"],
        always: &["datapath", "bpf"],
        parts: &[],
        // Thousands of random packets are the same on every kernel, but for those through our own programs.
        out: &[
            ("bpf", "odd::"),
            ("datapath", "attack::bridge"),
            ("datapath", "attack::docker"),
            ("datapath", "attack::macvlan"),
            ("datapath", "attack::ptp"),
        ],
    },
    Guest {
        kernel: deb::Suite::Backports,
        flavour: Flavour::Full,
        lane: "guest",
        packages: &["linux", "plan", "tune", "doctor", "lab", "hostgap"],
        always: &[],
        // The binary's races and endings are the same on every kernel, but the commands that it shows are another list
        // for each data path, and only a guest is a machine with cards that may be tuned.
        parts: &[("hostgap", "commands::"), ("hostgap", "tune::machine::"), ("hostgap", "tune::cards::")],
        // Faults at every step of a plan, and dozens of kills, look at the same code on every kernel, take minutes
        // natively, and so half an hour here.
        out: &[("plan", "faults::"), ("plan", "killed::")],
    },
    // The kernel that Debian 12's users have. A test of what 6.1 lacks (netkit, tcx) skips here and runs in the other lane.
    Guest {
        kernel: deb::Suite::Stable,
        flavour: Flavour::Cloud,
        lane: "old",
        packages: &["tune", "datapath", "doctor", "bpf"],
        always: &["tune", "datapath", "bpf"],
        // What the table of knobs says of kernels is to be so on each, and drivers of cards differ: what resets what.
        parts: &[("datapath", "traffic::"), ("tune", "defaults::"), ("tune", "card::")],
        out: &[("bpf", "odd::")],
    },
];
/// For one binary; emulation is about ten times slower than the machine.
const BINARY_TIME_MAX: Duration = Duration::from_secs(1800);
/// For all of them.
const TIME_MAX: Duration = Duration::from_secs(3000);
const MEMORY_MIB: u32 = 3072;
/// For the tests of what only a card has: queues, rings, interrupts. Each is the best at something.
const NICS: [Nic; 3] = [Nic::Virtio { queues: 4 }, Nic::Igb, Nic::Vmxnet3];
/// Their drivers, which udev loads elsewhere, in the order in which their links are to be numbered: the first is `eth0`.
/// One that a kernel has not is left out.
const DRIVERS: [&str; 3] = ["virtio_net", "igb", "vmxnet3"];
/// Loaded before any test. `br_netfilter` is built into many hosts' kernels and loaded by Docker on the others; nothing
/// loads it by itself. `nf_conntrack` is loaded by the first rule that needs it, and its parameters then appear in every
/// namespace: between the two looks of a test, that would be a difference.
const MODULES: [&str; 2] = ["br_netfilter", "nf_conntrack"];
/// Starts a line that is ours and no test's.
const MARK: &str = "@@hostgap";
/// Variables of ours that tests look at, handed on.
const VARIABLES: [&str; 3] = ["CI", "HOSTGAP_KILLS", "HOSTGAP_NGINX"];

/// The verdicts on each suite that came to its end, and why not all did.
pub(crate) struct Ran {
    pub(crate) verdicts: Vec<(String, BTreeMap<String, Verdict>)>,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) time: Duration,
}

/// Why not every suite came to its end in the guest.
pub(crate) enum Trouble {
    /// There is no guest: no packages, no Debian 12. Fails in CI alone, where everything needed is there.
    NoGuest(String),
    /// The guest died or hung under a test, which may well be the test's doing. Fails everywhere.
    Died(String),
}

impl Guest {
    /// Whether a suite belongs into the guest.
    fn wants(&self, suite: &Suite) -> bool {
        suite.kind == Kind::Integration && self.packages.contains(&suite.package.as_str())
    }

    /// What a binary is told: the user's filters; of what ran natively the tests that could not; or what stays out. `None`:
    /// nothing is left to run.
    fn arguments(&self, suite: &Suite, filters: &[String], natively: Option<&Ledger>) -> Option<Vec<String>> {
        if !filters.is_empty() {
            return Some(filters.to_vec());
        }
        let Some(ledger) = natively.filter(|_| !self.always.contains(&suite.package.as_str())) else {
            return Some(self.own(suite));
        };
        let skipped = ledger.skipped_of(&suite.name());
        (!skipped.is_empty()).then(|| std::iter::once("--exact".to_owned()).chain(skipped).collect())
    }

    /// What a binary is told where nothing else decides.
    fn own(&self, suite: &Suite) -> Vec<String> {
        let parts: Vec<String> = of_package(self.parts, suite).collect();
        if !parts.is_empty() {
            return parts;
        }
        of_package(self.out, suite).flat_map(|name| ["--skip".to_owned(), name]).collect()
    }
}

/// The names of tests that are listed for a suite's package.
fn of_package(list: &[(&str, &str)], suite: &Suite) -> impl Iterator<Item = String> {
    list.iter().filter(|(package, _)| *package == suite.package).map(|(_, name)| (*name).to_owned())
}

/// Boots `guest` and runs those of `suites` in it that belong there; nothing if none do. `natively` is what has become of
/// the tests on this machine's own kernel, if they ran there.
pub(crate) fn run(
    guest: &Guest,
    suites: &[Suite],
    filters: &[String],
    natively: Option<&Ledger>,
) -> Result<Ran> {
    let start = Instant::now();
    let chosen = suites.iter().filter(|suite| guest.wants(suite));
    let (suites, arguments): (Vec<Suite>, Vec<Vec<String>>) =
        chosen.filter_map(|suite| Some((suite.clone(), guest.arguments(suite, filters, natively)?))).unzip();
    if suites.is_empty() {
        return Ok(Ran { verdicts: Vec::new(), trouble: None, time: Duration::ZERO });
    }
    let suites = suites.as_slice();
    let vm = match Cache::open().and_then(|cache| Vm::fetch(&cache, guest.kernel, guest.flavour)) {
        Ok(vm) => vm,
        Err(error) => {
            let trouble = Some(Trouble::NoGuest(error.to_string()));
            return Ok(Ran { verdicts: Vec::new(), trouble, time: start.elapsed() });
        }
    };
    let (release, time) = (&vm.kernel().release, start.elapsed().as_secs_f64());
    println!("{:<7} Linux {release} ({time:.1} s to prepare)", guest.lane);
    let lists = suites.iter().zip(&arguments).map(|(suite, arguments)| libtest::list(suite, arguments));
    let mut log = Log::new(guest.lane, suites, lists.collect::<Result<Vec<_>>>()?);
    let limits = Limits { time: TIME_MAX, memory_mib: MEMORY_MIB, nics: NICS.to_vec(), ..Limits::default() };
    let outcome = vm.run_watched(&command(suites, &arguments), &limits, &mut |bytes: &[u8]| log.feed(bytes));
    let trouble = match outcome {
        Ok(output) if output.status == 0 => log.unfinished().map(Trouble::Died),
        Ok(output) => Some(Trouble::Died(format!("its script ended with {}", output.status))),
        Err(error @ (Error::Died { .. } | Error::TimedOut { .. } | Error::TooMuchOutput { .. })) => {
            Some(Trouble::Died(format!("{error}\n{}", log.unfinished().unwrap_or_default())))
        }
        Err(error) => return Err(anyhow!(error).context("could not run the guest")),
    };
    Ok(Ran { verdicts: log.verdicts, trouble, time: start.elapsed() })
}

fn command(suites: &[Suite], arguments: &[Vec<String>]) -> Command {
    let mut command = Command::new("/bin/bash");
    let (drivers, modules) = (DRIVERS.join(" "), MODULES.join(" "));
    let load = format!("for name in {drivers}; do modprobe --quiet $name; done\nmodprobe --all {modules}\n");
    let script = load + &script(suites.len());
    command.arg("-c").arg(script).arg("guest-lane");
    for (suite, arguments) in suites.iter().zip(arguments) {
        command.arg(&suite.folder).arg(&suite.binary).arg(arguments.join(" "));
    }
    environment(&mut command);
    command.env("RUST_BACKTRACE", "1").env("HOSTGAP_VM", "1");
    // Snapshots are found from the top of the workspace, for which insta would ask cargo; the guest has none in PATH.
    command.env("INSTA_WORKSPACE_ROOT", root());
    command
}

/// The variables that the command has.
fn environment(command: &mut Command) {
    command.env("HOME", "/root");
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    for name in VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}

/// Runs the binaries one after the other; arguments are folder, binary and its own arguments in turn.
fn script(suites: usize) -> String {
    let time = BINARY_TIME_MAX.as_secs();
    let mut text = String::from("export HOSTGAP_SKIPS=/tmp/hostgap-skips\n");
    for number in 0..suites {
        write!(
            text,
            ": >$HOSTGAP_SKIPS; echo '{MARK} begin {number}'\n\
             cd \"$1\" && timeout --kill-after=10 {time} \"$2\" --test-threads=1 $3 2>&1; status=$?\n\
             echo; sed 's/^/{MARK} skip /' $HOSTGAP_SKIPS; echo \"{MARK} end {number} $status\"; shift 3\n"
        )
        .expect("a String takes everything");
    }
    text + "exit 0\n"
}

/// The guest's stdout, taken apart while it comes.
struct Log<'a> {
    lane: &'a str,
    suites: &'a [Suite],
    lists: Vec<BTreeMap<String, Verdict>>,
    line: Vec<u8>,
    output: String,
    skips: String,
    since: Instant,
    verdicts: Vec<(String, BTreeMap<String, Verdict>)>,
}

impl<'a> Log<'a> {
    fn new(lane: &'a str, suites: &'a [Suite], lists: Vec<BTreeMap<String, Verdict>>) -> Self {
        let (output, skips) = (String::new(), String::new());
        Self {
            lane,
            suites,
            lists,
            line: Vec::new(),
            output,
            skips,
            since: Instant::now(),
            verdicts: Vec::new(),
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                let line = String::from_utf8_lossy(&self.line).into_owned();
                self.line.clear();
                self.take(&line);
            } else {
                self.line.push(byte);
            }
        }
    }

    fn take(&mut self, line: &str) {
        let Some(mark) = line.strip_prefix(MARK) else {
            self.output.push_str(line);
            self.output.push('\n');
            return;
        };
        let words: Vec<&str> = mark.split_whitespace().collect();
        match words.as_slice() {
            ["begin", _] => {
                self.output.clear();
                self.skips.clear();
                self.since = Instant::now();
            }
            ["skip", ..] => {
                self.skips.push_str(mark.trim_start().trim_start_matches("skip "));
                self.skips.push('\n');
            }
            ["end", number, status] => self.close(number.parse().ok(), status.parse().ok()),
            _ => {}
        }
    }

    fn close(&mut self, number: Option<usize>, status: Option<i32>) {
        let Some(number) = number.filter(|number| *number < self.suites.len()) else { return };
        let name = self.suites[number].name();
        let verdicts = libtest::judge(self.lists[number].clone(), &self.output, &self.skips, status);
        if show(self.lane, &name, &verdicts, self.since.elapsed()).failed > 0 {
            println!("{}exit status {status:?}", self.output);
        }
        self.verdicts.push((name, verdicts));
    }

    /// Which suites did not come to their end.
    fn unfinished(&self) -> Option<String> {
        let done = |suite: &&Suite| !self.verdicts.iter().any(|(name, _)| *name == suite.name());
        let names: Vec<String> = self.suites.iter().filter(done).map(Suite::name).collect();
        let last = self.output.lines().last().unwrap_or_default();
        (!names.is_empty()).then(|| format!("not finished: {}; last line: {last}", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(package: &str, binary: &str) -> Suite {
        Suite { package: package.into(), kind: Kind::Integration, binary: binary.into(), folder: "/".into() }
    }

    #[test]
    fn guest_takes_its_packages_and_of_some_a_part() {
        let guest = Guest {
            kernel: deb::Suite::Stable,
            flavour: Flavour::Cloud,
            lane: "old",
            packages: &["plan", "datapath", "lab"],
            always: &["datapath"],
            parts: &[("datapath", "traffic::")],
            out: &[("plan", "faults::"), ("plan", "killed::")],
        };
        let arguments = |package: &str, filters: &[&str]| {
            let filters: Vec<String> = filters.iter().map(|filter| (*filter).to_owned()).collect();
            guest.arguments(&suite(package, "/t/it-1"), &filters, None).unwrap().join(" ")
        };
        assert!(guest.wants(&suite("lab", "/t/it-1")) && !guest.wants(&suite("linux", "/t/it-2")));
        assert!(!guest.wants(&Suite { kind: Kind::Unit, ..suite("lab", "/t/lab-1") }));
        assert_eq!(arguments("lab", &[]), "");
        assert_eq!(arguments("datapath", &[]), "traffic::");
        assert_eq!(arguments("plan", &[]), "--skip faults:: --skip killed::");
        assert_eq!(arguments("plan", &["undo", "x"]), "undo x");

        let mut ledger = Ledger::default();
        ledger.enter("plan it", "ran", Verdict::Passed);
        ledger.enter("plan it", "a::skipped", Verdict::Skipped("no ipvlan".into()));
        ledger.enter("datapath it", "b::skipped", Verdict::Skipped("no ipvlan".into()));
        ledger.enter("lab it", "ran", Verdict::Passed);
        let after = |package: &str| {
            let told = guest.arguments(&suite(package, "/t/it-1"), &[], Some(&ledger));
            told.map(|words| words.join(" "))
        };
        assert_eq!(after("plan").as_deref(), Some("--exact a::skipped"));
        assert_eq!(after("datapath").as_deref(), Some("traffic::"), "always");
        assert_eq!(after("lab"), None, "all of it ran natively");
    }

    /// The script is run by the shell, over programs that stand for test binaries, and its output is read back.
    #[test]
    fn what_the_script_writes_is_understood() {
        let folder = tempfile::tempdir().unwrap();
        let suites =
            [("one", "exit 0"), ("two", "echo SKIPPED a: why not >>$HOSTGAP_SKIPS"), ("three", "exit 3")];
        let suites = suites.map(|(name, action)| {
            let path = folder.path().join(name);
            let text = format!("#!/bin/sh\n[ $# = 3 ] || exit 9\n{action}\nprintf '\\ntest result: ok. 1'\n");
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            suite(name, path.to_str().unwrap())
        });
        let text =
            script(suites.len()).replace("/tmp/hostgap-skips", folder.path().join("skips").to_str().unwrap());
        let mut shell = Command::new("/bin/bash");
        shell.arg("-c").arg(text).arg("x");
        for suite in &suites {
            shell.arg(&suite.folder).arg(&suite.binary).arg(["--skip", "a::"].join(" "));
        }
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{output:?}");

        let lists = vec![BTreeMap::from([("a".to_owned(), Verdict::Passed)]); 3];
        let mut log = Log::new("guest", &suites, lists);
        for piece in output.stdout.chunks(7) {
            log.feed(piece);
        }
        assert_eq!(log.unfinished(), None);
        let verdicts: Vec<_> =
            log.verdicts.iter().map(|(_, verdicts)| verdicts.values().next().unwrap()).collect();
        let skipped = Verdict::Skipped("why not".into());
        assert_eq!(verdicts, [&Verdict::Failed, &skipped, &Verdict::Failed]);
    }

    #[test]
    fn unfinished_suites_are_named() {
        let suites = [suite("plan", "/t/it-1"), suite("lab", "/t/it-2")];
        let mut log = Log::new("guest", &suites, vec![BTreeMap::new(); 2]);
        log.feed(
            format!("{MARK} begin 0\n\ntest result: ok.\n{MARK} end 0 0\n{MARK} begin 1\ntest x ...\n")
                .as_bytes(),
        );
        let message = log.unfinished().unwrap();
        assert!(
            message.contains("lab it") && message.contains("test x") && !message.contains("plan"),
            "{message}"
        );
    }
}
