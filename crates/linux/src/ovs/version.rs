//! Which Open vSwitch a program is, and from which on it does what is asked of it here. Its database takes every key of
//! `other_config`: an older daemon passes over what it does not know, and says nothing.
//!
//! Source: NEWS of Open vSwitch, <https://github.com/openvswitch/ovs/blob/main/NEWS>.

use std::path::Path;
use std::process::{Command, Stdio};

/// What stands before the version in the answer of each of its programs.
const BEFORE: &str = "(Open vSwitch) ";

/// A version from which on a way of forwarding works.
#[derive(Debug, Clone, Copy)]
pub(super) struct Least {
    major: u32,
    minor: u32,
    /// What no earlier one has.
    what: &'static str,
}

/// The kernel forwards. The MTU of a bridge's own link (`mtu_request`) is a version older.
pub(super) const SYSTEM: Least = Least { major: 2, minor: 7, what: "ports that are `protected`" };
/// The daemon forwards, and waits for frames.
pub(super) const AF_XDP: Least = Least { major: 2, minor: 14, what: "ports of type `afxdp-nonpmd`" };
/// Threads of the daemon poll. Those of earlier ones never sleep, and would take their CPUs from all candidates of a
/// race.
pub(super) const DPDK: Least =
    Least { major: 3, minor: 1, what: "threads that poll and can rest (`pmd-maxsleep`)" };

impl Least {
    /// Whether the program is of such a version; else which one it is.
    pub(super) fn check(self, program: &Path) -> Result<(), String> {
        let asked = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        let output = asked
            .map_err(|error| format!("{} cannot be asked for its version: {error}", program.display()))?;
        // What keeps a program from starting is on the other output.
        let said = [output.stdout, output.stderr].concat();
        self.judge(program, &String::from_utf8_lossy(&said))
    }

    fn judge(self, program: &Path, said: &str) -> Result<(), String> {
        let program = program.display();
        let version = version_in(said);
        let Some((version, found)) = version.and_then(|version| Some((version, numbers(version)?))) else {
            let said = said.trim();
            return Err(format!("{program} --version names no version of Open vSwitch: {said:?}"));
        };
        let Least { major, minor, what } = self;
        if found >= (major, minor) {
            return Ok(());
        }
        Err(format!("needs Open vSwitch {major}.{minor} or newer, for {what}, and {program} is {version}"))
    }
}

fn version_in(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.split_once(BEFORE)).and_then(|(_, rest)| rest.split_whitespace().next())
}

/// The first two numbers of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(|sign: char| !sign.is_ascii_digit()).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_programs_say_them() {
        let read = |said| version_in(said).and_then(numbers);
        assert_eq!(read("ovs-vswitchd (Open vSwitch) 3.1.0\n"), Some((3, 1)));
        assert_eq!(read("ovs-vswitchd (Open vSwitch) 2.17.9\nDPDK 21.11.4\n"), Some((2, 17)));
        assert_eq!(read("ovs-vswitchd-dpdk (Open vSwitch) 3.3.90+git2024\nDPDK 23.11.0\n"), Some((3, 3)));
        assert_eq!(read("ovs-vswitchd (Open vSwitch) \n"), None);
        assert_eq!(read("ovs-vswitchd (Open vSwitch) new\n"), None);
        assert_eq!(read("error while loading shared libraries: libunbound.so.8"), None);
    }

    #[track_caller]
    fn check(least: Least, said: &str, expected: &[&str]) {
        match least.judge(Path::new("/usr/sbin/ovs-vswitchd"), said) {
            Ok(()) => assert!(expected.is_empty(), "{said} passed"),
            Err(why) => {
                assert!(!expected.is_empty() && expected.iter().all(|part| why.contains(part)), "{why}");
            }
        }
    }

    #[test]
    fn an_older_one_is_refused_with_both_versions() {
        check(DPDK, "ovs-vswitchd (Open vSwitch) 3.1.0\nDPDK 22.11.4\n", &[]);
        check(DPDK, "ovs-vswitchd (Open vSwitch) 10.0.0\n", &[]);
        let needs = "needs Open vSwitch 3.1 or newer, for threads";
        check(DPDK, "ovs-vswitchd (Open vSwitch) 3.0.5\n", &[needs, "and /usr/sbin/ovs-vswitchd is 3.0.5"]);
        check(DPDK, "ovs-vswitchd (Open vSwitch) 2.17.9\nDPDK 21.11\n", &[needs, " is 2.17.9"]);
        check(AF_XDP, "ovs-vswitchd (Open vSwitch) 2.14.0\n", &[]);
        check(AF_XDP, "ovs-vswitchd (Open vSwitch) 2.9.8\n", &["needs Open vSwitch 2.14 or newer"]);
        check(SYSTEM, "ovs-vswitchd (Open vSwitch) 2.5.12\n", &["needs Open vSwitch 2.7 or newer", "2.5.12"]);
        check(SYSTEM, "it does not start\n", &["names no version of Open vSwitch", "it does not start"]);
        let why = SYSTEM.check(Path::new("/no/such/ovs-vswitchd")).unwrap_err();
        assert!(why.contains("/no/such/ovs-vswitchd cannot be asked for its version"), "{why}");
    }
}
