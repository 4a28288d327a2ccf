//! However a race ends, nothing of it is left.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::race::pid;
use crate::run::{assert_nothing_left, namespaces, servers, stderr, turn, until};

const LONG: &[&str] = &["--paths", "docker,bridge+vxlan", "--rounds", "1000", "--rate", "1k"];

#[test]
fn after_an_interrupt_finished_rounds_are_kept() {
    for signal in [Signal::INT, Signal::TERM] {
        let turn = turn();
        let race = turn.start_race(LONG);
        until("a round is written down", || {
            race_record(turn.out()).is_some_and(|record| record.contains("{\"round\":"))
        });
        kill_process(pid(&race), signal).unwrap();
        let output = race.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        assert!(stderr(&output).contains("finished rounds are kept"), "{}", stderr(&output));
        assert!(turn.hostgap(&["report", turn.record().to_str().unwrap()]).status.success());
        assert_nothing_left();
    }
}

#[test]
fn after_sigkill_clean_removes_everything() {
    let turn = turn();
    // Spread over building, capacity search and rounds.
    for after_ms in [5, 40, 90, 150, 250, 400, 700, 1200] {
        let mut race = turn.start_race(LONG);
        std::thread::sleep(Duration::from_millis(after_ms));
        race.kill().unwrap();
        race.wait().unwrap();
        let output = turn.hostgap(&["clean"]);
        assert!(output.status.success(), "after {after_ms} ms: {}", stderr(&output));
        assert_nothing_left();
    }
}

#[test]
fn after_sigkill_no_server_lives_on_even_before_clean() {
    let turn = turn();
    let mut race = turn.start_race(LONG);
    until("servers run", || servers().len() >= 3);
    race.kill().unwrap();
    race.wait().unwrap();
    until("the kernel has ended the servers", || servers().is_empty());
    assert!(!namespaces().is_empty());
    // The next start cleans up too, and says so.
    let output = turn.run_race(&["--paths", "macvlan", "--rounds", "1", "--rate", "1k"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("removed the remains"), "{}", stderr(&output));
    assert_nothing_left();
}

#[test]
fn a_server_that_dies_ends_the_race_with_its_name() {
    let turn = turn();
    let race = turn.start_race(LONG);
    until("a round is written down", || {
        race_record(turn.out()).is_some_and(|record| record.contains("{\"round\":"))
    });
    let docker = namespaces().into_iter().find(|name| name.ends_with("docker-server")).unwrap();
    for pid in text(Command::new("ip").args(["netns", "pids", &docker])).split_whitespace() {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        // Its workers may be gone by then.
        let _ = kill_process(pid, Signal::KILL);
    }
    let output = race.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the server of docker"), "{}", stderr(&output));
    assert!(stderr(&output).contains("finished rounds are kept"), "{}", stderr(&output));
    assert_nothing_left();
}

#[test]
fn a_path_that_breaks_ends_the_race_with_its_name() {
    let turn = turn();
    let race = turn.start_race(LONG);
    until("a round is written down", || {
        race_record(turn.out()).is_some_and(|record| record.contains("{\"round\":"))
    });
    let node = namespaces().into_iter().find(|name| name.ends_with("bridge-vxlan-n2")).unwrap();
    text(Command::new("ip").args(["-n", &node, "link", "del", "hgvx1"]));
    let output = race.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("data path bridge+vxlan broke"), "{}", stderr(&output));
    assert_nothing_left();
}

#[test]
fn a_full_disk_is_told_and_cleaned_up_after() {
    let turn = turn();
    // A file system of 24 KiB, in a mount namespace of its own.
    let script = format!(
        "mount -t tmpfs -o size=24k none {out} && exec {exe} race --out {out} --paths macvlan --rounds 200 --rate 1k",
        out = turn.out().display(),
        exe = env!("CARGO_BIN_EXE_hostgap"),
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
    assert_nothing_left();
}

#[test]
fn other_namespaces_are_never_touched() {
    let turn = turn();
    let other = format!("hg-{:04x}-not-ours", std::process::id() as u16);
    text(Command::new("ip").args(["netns", "add", &other]));
    let output = turn.hostgap(&["clean"]);
    let still = std::path::Path::new("/run/netns").join(&other).exists();
    text(Command::new("ip").args(["netns", "del", &other]));
    assert!(output.status.success() && still, "{}", stderr(&output));
}

fn race_record(out: &std::path::Path) -> Option<String> {
    let dir = std::fs::read_dir(out).ok()?.next()?.ok()?.path();
    std::fs::read_to_string(dir.join("race.jsonl")).ok()
}

#[track_caller]
fn text(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let _ = std::io::stderr().write_all(&output.stderr);
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}
