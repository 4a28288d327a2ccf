//! Nothing is left: neither of a run that ends, nor of one that is killed.

use std::path::Path;
use std::process::{Command, Stdio};

use conformance::find;

use crate::scene::{debians, found, subject, wrapped};

/// What of the machine a plugin could write to.
fn machine() -> Vec<String> {
    let list = |dir: &str| {
        std::fs::read_dir(dir)
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_else(|_| Vec::new())
    };
    let mut paths: Vec<std::path::PathBuf> =
        ["/var/lib", "/var/lib/cni", "/var/log"].iter().flat_map(|dir| list(dir)).collect();
    paths.sort();
    paths.into_iter().map(|path| path.display().to_string()).collect()
}

#[test]
fn plugins_see_their_own_files_and_leave_none() {
    let Some(program) = debians("bridge") else { return };
    let before = machine();
    found(&subject(&program), &[find("add-interface")[0], find("del-node")[0]]);
    assert_eq!(machine(), before);
    // A plugin that writes elsewhere cannot.
    let dir = tempfile::tempdir().unwrap();
    let escape = dir.path().join("escaped");
    let script = format!("echo x >{} || exit 1; exec $REAL", escape.display());
    let found = found(&wrapped(dir.path(), &script), &find("add-interface"));
    assert!(
        format!("{:?}", found.reports[0].outcome).contains("Read-only file system"),
        "{:?}",
        found.reports[0].outcome
    );
    assert!(!escape.exists());
}

/// The role of [`after_sigkill_nothing_runs_and_nothing_is_left`]: a run whose plugin starts a process
/// that does not end.
#[test]
fn role_of_a_run_that_is_killed() {
    let Some(dir) = std::env::var_os("HOSTGAP_KILLED_RUN") else { return };
    let sleep = std::env::var("HOSTGAP_SLEEP").unwrap();
    let subject = wrapped(Path::new(&dir), &format!("setsid {sleep} & {sleep}"));
    found(&subject, &find("add-interface"));
}

#[test]
fn after_sigkill_nothing_runs_and_nothing_is_left() {
    if debians("ptp").is_none() {
        return;
    }
    let before = machine();
    let dir = tempfile::tempdir().unwrap();
    let sleep = format!("sleep {}", 100_000 + std::process::id());
    let role = ["--exact", "trace::role_of_a_run_that_is_killed", "--nocapture"];
    let mut run = Command::new(std::env::current_exe().unwrap());
    run.args(role).env("HOSTGAP_KILLED_RUN", dir.path()).env("HOSTGAP_SLEEP", &sleep);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the plugin is at work", || running(&sleep) == 2);
    run.kill().unwrap();
    run.wait().unwrap();
    until("the kernel has ended the plugin and what it started", || running(&sleep) == 0);
    assert_eq!(machine(), before);
}

/// Waits for an event; a busy machine takes as long as it takes.
fn until(what: &str, happened: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !happened() {
        assert!(begun.elapsed().as_secs() < 60, "waited in vain: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// How many processes have this command line.
fn running(line: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|found| found.trim_end_matches('\0').replace('\0', " ") == line).count()
}
