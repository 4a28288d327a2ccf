//! Without root, a command that needs it says so before anything else, and the others work.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use crate::sandbox::{HOSTGAP, check, sandbox, stdout, text};

fn without_root(args: &[&str]) -> Output {
    // A copy that every user may run, wherever the build directory is.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("hostgap");
    // Copied by another process. A file that this process writes would stay busy while a program that another
    // test just started still holds its descriptor.
    text(Command::new("cp").arg(HOSTGAP).arg(&copy));
    text(Command::new("chmod").arg("-R").arg("a+rX").arg(dir.path()));
    Command::new(&copy).args(args).uid(65534).gid(65534).output().unwrap()
}

#[test]
fn it_says_what_is_needed_and_why() {
    let needing: [&[&str]; 8] = [
        &["race", "--out", "/nonexistent/results"],
        &["race", "--nginx", "/nonexistent/nginx"],
        &["paths"],
        &["clean"],
        &["lab", "up", "docker"],
        &["lab", "down"],
        &["tune", "plan", "latency"],
        &["tune", "apply", "latency"],
    ];
    for args in needing {
        let text = check(&without_root(args), 4, "could not change the network: this process lacks CAP_");
        assert!(text.contains("run it as root"), "{args:?}: {text}");
    }
}

/// Who decides about root by the hint is not misled: what changes this machine does not say that it changes nothing.
#[test]
fn only_what_stays_in_its_own_namespaces_says_so() {
    const OWN: &str = "it works only in network namespaces of its own, and removes them at the end";
    let apart: [&[&str]; 3] = [&["race"], &["paths"], &["cni", "conformance", "/nonexistent/plugin"]];
    for args in apart {
        let text = check(&without_root(args), 4, "hint: run it as root (sudo)");
        assert!(text.contains(OWN), "{args:?}: {text}");
    }
    let here: [&[&str]; 7] = [
        &["race", "--server", "ssh://b"],
        &["cni", "install", "--attach", "bridge", "--name", "x", "--subnet", "10.1.0.0/24"],
        &["cni", "uninstall"],
        &["agent", "down"],
        &["bpf", "counters"],
        &["clean"],
        &["lab", "up", "docker"],
    ];
    for args in here {
        let text = check(&without_root(args), 4, "hint: run it as root (sudo)");
        assert!(!text.contains("of its own"), "{args:?}: {text}");
    }
}

#[test]
fn the_capability_that_root_lacks_is_named() {
    let sandbox = sandbox();
    let mut command = sandbox.command("setpriv");
    let output = command.args(["--bounding-set=-sys_admin", HOSTGAP, "race"]).output().unwrap();
    let text = check(&output, 4, "this process lacks CAP_SYS_ADMIN");
    assert!(!text.contains("CAP_NET_ADMIN"), "{text}");
}

#[test]
fn what_needs_none_works() {
    let shown = without_root(&["race", "--paths", "bridge+vxlan", "--show-commands"]);
    check(&shown, 0, "");
    let text = stdout(&shown);
    assert!(text.contains("ip netns add hg-bridge-vxlan-n1"), "{text}");
    assert!(text.contains("type vxlan id 1"), "{text}");
    check(&without_root(&["lab", "list"]), 0, "");
    check(&without_root(&["doctor", "--for", "200ms"]), 0, "");
    check(&without_root(&["completions", "bash"]), 0, "");
    check(&without_root(&["report", "/nonexistent/race.jsonl"]), 2, "/nonexistent/race.jsonl: No such file");
}
