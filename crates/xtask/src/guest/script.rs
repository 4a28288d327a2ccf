//! The script that a guest runs, and the parser of its output.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::lane::{FinishedTest, Lane};
use crate::libtest::{self, Test};

/// For one test, as natively; the emulator is about ten times slower than the machine.
pub(super) const TEST_TIME_MAX: Duration = crate::native::TEST_TIME_MAX;
/// The drivers of the cards, which udev would load. Their order determines the numbers of the links: the
/// first is `eth0`. A driver that a kernel lacks is skipped.
const DRIVERS: [&str; 3] = ["virtio_net", "igb", "vmxnet3"];
/// Loaded before any test. `br_netfilter` is built into many hosts' kernels, and Docker loads it on others,
/// but here it must be loaded explicitly. `nf_conntrack` would be loaded by the first rule that needs it. Its
/// parameters would then appear in every namespace, and differ between the two dumps of a test.
const MODULES: [&str; 2] = ["br_netfilter", "nf_conntrack"];
/// Moves the programs that tests start most often, with their libraries and files, into the guest's memory.
/// The guest asks the host for each file that it opens below its root, which takes longer in emulation than
/// the program itself. Setting a file's times moves it to the upper layer of the overlay.
const COPY_UP: &str = r#"
programs=$(command -v bash bridge ip nft sed sh tc timeout)
libraries=$(ldd $programs | grep -o '/[^ ]*[^ :]')
files="/bin /sbin /lib /lib64 $programs $libraries $(echo /etc/ld.so.cache /etc/iproute2/* /etc/protocols)"
touch --no-dereference $files
touch $files
"#;
/// Programs that this machine does not have installed are in a directory of their own.
const FETCHED: &str = "PATH=$PATH${HOSTGAP_OVS:+:$HOSTGAP_OVS}${HOSTGAP_ROOTLESS:+:$HOSTGAP_ROOTLESS}\n";
/// The beginning of lines that come from the script and not from a test.
const MARK: &str = "@@hostgap";
/// Runs the tests one after the other. Its arguments are the folder, binary and name of each.
const RUN: &str = r#"
export HOSTGAP_SKIPS=/tmp/hostgap-skips
while [ $# -gt 0 ]; do
	: >$HOSTGAP_SKIPS; echo "MARK begin"
	cd "$1" && timeout --kill-after=10 LIMIT "$2" --exact "$3" 2>&1; status=$?
	echo; sed 's/^/MARK skip /' $HOSTGAP_SKIPS; echo "MARK end $status"
	shift 3
done
exit 0
"#;

/// The command that runs `tests` in a guest.
pub(super) fn command(tests: &[Test<'_>]) -> Command {
    let (drivers, modules) = (DRIVERS.join(" "), MODULES.join(" "));
    let load = format!("for name in {drivers}; do modprobe --quiet $name; done\nmodprobe --all {modules}\n");
    let mut command = Command::new("/bin/bash");
    command.arg("-c").arg(load + FETCHED + COPY_UP + &run()).arg("guest-lane");
    for Test { suite, name } in tests {
        command.arg(&suite.folder).arg(&suite.binary).arg(name);
    }
    command
}

fn run() -> String {
    RUN.replace("MARK", MARK).replace("LIMIT", &TEST_TIME_MAX.as_secs().to_string())
}

/// Parses the guest's stdout while it arrives.
pub(super) struct GuestOutput<'a> {
    /// The tests that have not ended. The first of them is running.
    tests: std::slice::Iter<'a, Test<'a>>,
    lane: &'a Lane<'a>,
    line: Vec<u8>,
    output: String,
    skips: String,
    since: Instant,
}

impl<'a> GuestOutput<'a> {
    pub(super) fn new(tests: &'a [Test<'a>], lane: &'a Lane<'a>) -> Self {
        let (output, skips) = (String::new(), String::new());
        Self { tests: tests.iter(), lane, line: Vec::new(), output, skips, since: Instant::now() }
    }

    /// The tests without a result.
    pub(super) fn rest(&self) -> &'a [Test<'a>] {
        self.tests.as_slice()
    }

    /// Forgets what the interrupted test wrote: another guest runs it anew.
    pub(super) fn resume(&mut self) {
        self.line.clear();
        self.output.clear();
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
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
        let Some(mark) = line.strip_prefix(MARK).map(str::trim_start) else {
            self.output.push_str(line);
            self.output.push('\n');
            return;
        };
        match mark.split_once(' ').unwrap_or((mark, "")) {
            ("begin", _) => {
                self.output.clear();
                self.skips.clear();
                self.since = Instant::now();
            }
            ("skip", line) => {
                self.skips.push_str(line);
                self.skips.push('\n');
            }
            ("end", status) => self.close(status.trim().parse().ok()),
            _ => {}
        }
    }

    fn close(&mut self, status: Option<i32>) {
        let Some(test) = self.tests.next() else { return };
        let verdict = libtest::verdict(status, &self.output, &self.skips);
        let time = self.since.elapsed();
        let output = format!("{}{}", self.output, libtest::ending(status, time, TEST_TIME_MAX));
        self.lane.enter(test, FinishedTest { verdict, time, output });
    }

    /// The test that was running when the guest ended, and its last line. `None` if all have ended.
    pub(super) fn unfinished(&self) -> Option<String> {
        let (running, last) =
            (self.tests.as_slice().first()?, self.output.lines().last().unwrap_or_default());
        let more = self.tests.len() - 1;
        Some(format!("not finished: {} and {more} after it; last line: {last}", running.full_name()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::ledger::{Counts, Ledger};
    use crate::suite::{Suite, TestKind};

    fn suite(package: &str, binary: &str) -> Suite {
        Suite {
            package: package.into(),
            kind: TestKind::Integration,
            binary: binary.into(),
            folder: "/".into(),
        }
    }

    /// A shell runs the script with substitutes for the test binaries, and the parser reads its output.
    #[test]
    fn what_the_script_writes_is_understood() {
        let folder = tempfile::tempdir().unwrap();
        let suites =
            [("one", "exit 0"), ("two", "echo SKIPPED a: why not >>$HOSTGAP_SKIPS"), ("three", "exit 3")];
        let suites = suites.map(|(name, action)| {
            let path = folder.path().join(name);
            let text = format!(
                "#!/bin/sh\n[ \"$*\" = '--exact a::b' ] || exit 9\nprintf '\\ntest result: ok. 1 passed'\n{action}\n"
            );
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            suite(name, path.to_str().unwrap())
        });
        let tests: Vec<_> = suites.iter().map(|suite| Test { suite, name: "a::b".into() }).collect();
        let text = run().replace("/tmp/hostgap-skips", folder.path().join("skips").to_str().unwrap());
        let mut shell = Command::new("/bin/bash");
        shell.arg("-c").arg(text).args(command(&tests).get_args().skip(2));
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{output:?}");

        let ledger = Mutex::new(Ledger::default());
        let lane = Lane::new("guest", &tests, &ledger);
        let mut log = GuestOutput::new(&tests, &lane);
        for piece in output.stdout.chunks(7) {
            log.feed(piece);
        }
        assert_eq!(log.unfinished(), None);
        let ledger = ledger.lock().unwrap();
        assert_eq!(ledger.counts(), Counts { passed: 1, failed: 1, skipped: 1 });
        assert_eq!(
            (ledger.failed(), ledger.skipped()),
            (vec!["three three a::b".to_owned()], vec!["two two a::b: why not".to_owned()])
        );
    }

    #[test]
    fn the_test_under_which_a_guest_died_is_named() {
        let (plan, lab) = (suite("plan", "/t/it-1"), suite("lab", "/t/it-2"));
        let tests =
            [(&plan, "a"), (&lab, "b"), (&lab, "c")].map(|(suite, name)| Test { suite, name: name.into() });
        let ledger = Mutex::new(Ledger::default());
        let lane = Lane::new("guest", &tests, &ledger);
        let mut log = GuestOutput::new(&tests, &lane);
        log.feed(format!("{MARK} begin\n\ntest result: ok. 1 passed\n{MARK} end 0\n").as_bytes());
        log.feed(format!("{MARK} begin\nrunning 1 test\ntest b ...\n").as_bytes());
        let message = log.unfinished().unwrap();
        assert_eq!(message, "not finished: lab it b and 1 after it; last line: test b ...");

        // What the interrupted test wrote counts neither as its result nor as a part of the next line.
        log.feed(b"\ntest result: ok. 1 passed\ntorn");
        log.resume();
        assert_eq!(log.unfinished().unwrap(), "not finished: lab it b and 1 after it; last line: ");
        assert_eq!(log.rest().iter().map(|test| test.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
        for _ in 0..2 {
            log.feed(format!("{MARK} begin\n\ntest result: ok. 1 passed\n{MARK} end 0\n").as_bytes());
        }
        assert_eq!(log.unfinished(), None);
        assert_eq!(ledger.lock().unwrap().counts(), Counts { passed: 3, failed: 0, skipped: 0 });
    }
}
