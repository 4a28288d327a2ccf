//! Bad input gets one clear message and the documented exit code, and touches nothing.

use std::os::unix::process::CommandExt;

use crate::run::{assert_nothing_left, hostgap, stderr, turn};

#[track_caller]
fn check(args: &[&str], code: i32, says: &str) {
    let turn = turn();
    let output = turn.run_race(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
    assert!(stderr(&output).contains(says), "{args:?} said: {}", stderr(&output));
    assert_nothing_left();
}

#[test]
fn the_command_line() {
    check(&["--paths", "brigde+vxlan"], 2, "did you mean \"bridge+vxlan\"?");
    check(&["--rate", "0"], 2, "rate");
    check(&["--rate", "-5"], 2, "");
    check(&["--rate", "900M"], 2, "rate");
    check(&["--rate", "150%"], 2, "");
    check(&["--rounds", "0"], 2, "1..");
    check(&["--body", "0x"], 2, "0x");
    check(&["--duration", "soon"], 2, "soon");
    check(&["--cpus", "900"], 2, "CPU 900");
    check(&["--nginx", "/nonexistent/nginx"], 4, "--server hostgap");
    check(&["--out", "/proc/nowhere"], 1, "/proc/nowhere");
}

#[track_caller]
fn check_file(text: &str, says: &[&str]) {
    let turn = turn();
    let file = turn.out().join("experiment.toml");
    std::fs::write(&file, text).unwrap();
    let output = turn.hostgap(&["race", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    for part in says {
        assert!(stderr(&output).contains(part), "{part:?} is not in: {}", stderr(&output));
    }
    assert_nothing_left();
}

#[test]
fn the_experiment_file() {
    check_file("schema = 1\nname = \"x\"\nrates = [\n", &["experiment.toml", "line 3"]);
    check_file("schema = 1\nname = \"x\"\nruonds = 3\n", &["line 3", "ruonds", "rounds"]);
    check_file("schema = 9\nname = \"x\"\n", &["schema"]);
    check_file("schema = 1\nname = \"x\"\nrounds = 0\n", &["rounds"]);
    check_file("schema = 1\nname = \"x\"\n[[candidates]]\npath = \"dokcer\"\n", &["docker"]);
}

#[test]
fn without_privilege_it_says_what_is_needed() {
    let output = hostgap(&["race", "--out", "/tmp"]).uid(65534).gid(65534).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("CAP_"), "{}", stderr(&output));
    assert!(stderr(&output).contains("root"), "{}", stderr(&output));
}

#[test]
fn a_named_path_that_cannot_run_is_an_error() {
    let turn = turn();
    if linux::features::probe().unwrap().missing.contains_key(&linux::features::Feature::Ipvlan) {
        let output = turn.run_race(&["--paths", "ipvlan-l2"]);
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        assert!(stderr(&output).contains("ipvlan-l2 cannot run here"), "{}", stderr(&output));
    } else {
        let output = turn.run_race(&["--paths", "ipvlan-l2", "--rounds", "1", "--rate", "1k"]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert_nothing_left();
}
