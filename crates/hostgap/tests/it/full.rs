//! Full disks and closed pipes: what could not be written is named, and existing files stay.

use std::process::{Output, Stdio};

use crate::sandbox::{HOSTGAP, Sandbox, check, sandbox, stderr};

/// Runs a script with the binary in `$1` and a directory on a nearly full disk in `$2`.
fn on_a_full_disk(sandbox: &Sandbox, script: &str) -> Output {
    let disk = sandbox.out().join("disk");
    std::fs::create_dir_all(&disk).unwrap();
    let fill = "mount -t tmpfs -o size=64k none \"$2\" && head -c 57344 /dev/zero >\"$2/fill\" || exit 99; ";
    let unmounted = "; code=$?; ls -R \"$2\"; umount \"$2\"; exit $code";
    let mut command = sandbox.command("sh");
    command.args(["-c", &format!("{fill}{script}{unmounted}"), "sh", HOSTGAP]).arg(&disk);
    command.output().unwrap()
}

fn search_record(sandbox: &Sandbox) -> String {
    let record = sandbox.out().join("search.json");
    let search = serde_json::json!({
        "schema": 1, "hostgap": "0", "started_unix_s": 1, "seed": 1, "budget_s": 1.0, "wall_s": 1.0,
        "experiment": record::Experiment::default(), "machine": record::Machine::default(),
        "incumbent": "host", "objective": "throughput", "guards": [], "options": [], "blocks": [], "stages": [],
    });
    std::fs::write(&record, search.to_string()).unwrap();
    record.to_str().unwrap().to_owned()
}

#[test]
fn a_page_that_finds_no_room_is_named_and_the_old_one_stays() {
    let sandbox = sandbox();
    let record = search_record(&sandbox);
    let report = format!("echo old >\"$2/page.html\"; \"$1\" report {record} --html \"$2/page.html\"");
    let output = on_a_full_disk(&sandbox, &format!("{report}; code=$?; cat \"$2/page.html\"; (exit $code)"));
    check(&output, 1, "disk/page.html: No space left on device");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("old\n") && !text.contains(".new"), "{text}");
    let fresh = on_a_full_disk(&sandbox, &format!("\"$1\" report {record} --html \"$2/fresh.html\""));
    check(&fresh, 1, "disk/fresh.html: No space left on device");
    assert!(!String::from_utf8(fresh.stdout).unwrap().contains("fresh.html"));
}

#[test]
fn a_tree_that_finds_no_room_is_named_and_removed() {
    let sandbox = sandbox();
    let output = on_a_full_disk(&sandbox, "\"$1\" collect \"$2/tree\" --for 100ms");
    let text = check(&output, 1, "could not collect: write ");
    assert!(text.contains("/disk/tree/before/") && text.contains("no space left on device"), "{text}");
    assert!(!String::from_utf8(output.stdout).unwrap().contains("tree"));
}

#[test]
fn a_record_that_finds_no_room_is_named() {
    let sandbox = sandbox();
    let race = "\"$1\" race --paths macvlan --rounds 1 --rate 1k --server hostgap --out \"$2/out\"";
    let output = on_a_full_disk(&sandbox, &format!("head -c 8192 /dev/zero >>\"$2/fill\"; {race}"));
    let text = check(&output, 1, "No space left on device");
    assert!(text.contains("could not create /") || text.contains("record /"), "{text}");
    sandbox.assert_nothing_left();
}

#[test]
fn a_result_that_cannot_be_written_is_named() {
    let sandbox = sandbox();
    let record = search_record(&sandbox);
    let commands: [&[&str]; 9] = [
        &["doctor", "--for", "100ms"],
        &["doctor", "--for", "100ms", "--json"],
        &["explain", "--json"],
        &["report", &record],
        &["report", &record, "--json"],
        &["paths"],
        &["bpf", "counters", "--json"],
        &["completions", "bash"],
        &["--help"],
    ];
    for args in commands {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = sandbox.command(HOSTGAP).args(args).stdout(full).output().unwrap();
        check(&output, 1, "could not write the result to standard output: No space left on device");
    }
}

/// A reader may close its end once it has seen enough, as in `hostgap paths | head -1`.
#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let sandbox = sandbox();
    for args in [&["explain"][..], &["paths", "--json"], &["--help"], &["completions", "zsh"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = sandbox.command(HOSTGAP).args(args).stdout(writer).output().unwrap();
        check(&output, 0, "");
        assert_eq!(stderr(&output), "", "{args:?}");
    }
    // Closed standard output means that the result is not wanted.
    let mut command = sandbox.command("sh");
    let closed = command.args(["-c", "exec \"$1\" explain >&-", "sh", HOSTGAP]).stdout(Stdio::piped());
    check(&closed.output().unwrap(), 0, "");
    // Messages do not need a reader either.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = sandbox.command(HOSTGAP).args(["explain", "HG999"]).stderr(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
