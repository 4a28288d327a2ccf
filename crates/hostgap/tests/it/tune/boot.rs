//! The files that `keep` wrote, at a boot with systemd and udev in a guest.

use std::process::Command;
use std::time::Duration;

use vm::{Cache, Flavour, Limits, Vm, deb};

use crate::kernel::is_debian;
use crate::sandbox::{HOSTGAP, sandbox};

const SCRIPT: &str = include_str!("boot.sh");

/// The rest of the last line in a guest's output that begins with `begin`.
#[track_caller]
fn line<'a>(text: &'a str, begin: &str) -> &'a str {
    let found = text.lines().find_map(|line| line.strip_prefix(begin)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("no line {begin:?} in: {text}"))
}

#[test]
fn systemd_makes_it_again_at_a_start_and_for_a_link_that_comes_anew() {
    if !is_debian() {
        return;
    }
    let _sandbox = sandbox();
    let cache = Cache::open().unwrap();
    let wanted = ["systemd", "udev"];
    let (suite, release) = (deb::Suite::Stable, deb::Release::Own);
    let request = deb::PackageRequest { name: "systemd", packages: &wanted, suite, release, keep: &[] };
    let packages = deb::fetch(&cache, &request).unwrap();
    let machine = Vm::fetch(&cache, deb::Suite::Backports, Flavour::Cloud).unwrap();
    let mut command = Command::new("/bin/bash");
    command.args(["-c", SCRIPT, "boot.sh", HOSTGAP]).args(packages.folders());
    let limits = Limits { time: Duration::from_secs(400), memory_mib: 1536, ..Limits::default() };
    let output = machine.run(&command, &limits).unwrap();
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status, 0, "{text}\n{said}");
    let ours = "somaxconn 8192 mtu 1400 txqueuelen 77";
    assert_eq!(line(&text, "kept"), ours);
    assert!(line(&text, "verified").starts_with("systemd "));
    assert_eq!(line(&text, "restarted"), "somaxconn 4096 mtu 1500 txqueuelen 1000");
    assert_eq!(line(&text, "booted"), ours, "{said}");
    assert_eq!(line(&text, "gone"), "inactive");
    assert_eq!(line(&text, "anew"), ours, "{said}");
    assert_eq!(line(&text, "at once"), ours, "{said}");
    let status: serde_json::Value = serde_json::from_str(line(&text, "status")).unwrap();
    let standing = &status["standing"];
    assert_eq!(
        (standing["phase"].as_str(), standing["device"]["name"].as_str()),
        (Some("confirmed"), Some("eth-9"))
    );
    let steps = standing["steps"].as_array().unwrap();
    // systemd-sysctl has already set the parameter, so it is no step, and rollback leaves it.
    assert!(steps.len() == 2 && steps.iter().all(|step| step["as_set"] == true), "{standing}");
    assert_eq!(line(&text, "rolled back"), "somaxconn 8192 mtu 1500 txqueuelen 1000", "{said}");
}
