//! Descriptions of the program: man pages, completions, the list of data paths.

use std::process::Command;

use crate::sandbox::{check, json, sandbox, stdout, text};

#[test]
fn every_command_has_a_man_page_that_man_can_read() {
    let sandbox = sandbox();
    let dir = sandbox.out().join("man1");
    check(&sandbox.hostgap(&["man", dir.to_str().unwrap()]), 0, "");
    for page in
        ["hostgap", "hostgap-race", "hostgap-report", "hostgap-load", "hostgap-serve", "hostgap-lab-up"]
    {
        let path = dir.join(format!("{page}.1"));
        let source = std::fs::read_to_string(&path).unwrap();
        assert!(source.contains(".TH ") && source.contains(".SH "), "{page}");
    }
    let shown = |page: &str| {
        text(Command::new("man").env("MANWIDTH", "72").args(["-E", "utf8", "-l"]).arg(dir.join(page)))
    };
    let main = shown("hostgap.1");
    assert!(main.contains("EXIT STATUS\n") && main.contains("  130  it was interrupted;"), "{main}");
    assert!(main.contains("VERSION\n"), "{main}");
    let load = shown("hostgap-load.1");
    let command = "hostgap load http://10.0.0.1/ http://10.0.0.1/cart --weights 9,1 --rate 5k,10k,20k --arrivals poisson\n";
    assert!(load.contains("EXAMPLES\n") && load.contains(command), "as it can be pasted: {load}");
    check(&sandbox.hostgap(&["man", "/proc/nowhere"]), 1, "could not create /proc/nowhere");
}

#[test]
fn shells_take_the_completions() {
    let sandbox = sandbox();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = sandbox.hostgap(&["completions", shell]);
        check(&output, 0, "");
        assert!(stdout(&output).contains("show-commands"), "{shell}");
    }
    // bash prints its completions of "hostgap lab ".
    let script = format!(
        "{}\nCOMP_WORDS=(hostgap lab ''); COMP_CWORD=2; _hostgap hostgap '' lab; echo \"${{COMPREPLY[@]}}\"",
        stdout(&sandbox.hostgap(&["completions", "bash"]))
    );
    // It is longer than an argument may be (128 KiB).
    let file = sandbox.out().join("completions.sh");
    std::fs::write(&file, script).unwrap();
    let words = text(Command::new("bash").arg(&file));
    for word in ["up", "down", "list"] {
        assert!(words.split_whitespace().any(|found| found == word), "{words}");
    }
    check(&sandbox.hostgap(&["completions", "tcsh"]), 2, "tcsh");
}

#[test]
fn paths_are_listed_as_the_program_knows_them() {
    let sandbox = sandbox();
    let list = json(&sandbox.hostgap(&["paths", "--json"]));
    assert_eq!(list["schema"], 1);
    let facts = linux::features::probe().unwrap();
    assert_eq!(list["kernel"], facts.kernel.as_str());
    let listed = list["paths"].as_array().unwrap();
    assert_eq!(listed.len(), datapath::ALL.len());
    for (path, listed) in datapath::ALL.iter().zip(listed) {
        assert_eq!(listed["name"], path.name);
        assert_eq!(listed["runnable"], path.unmet(&facts).is_empty());
        assert_eq!(listed["reasons"].as_array().unwrap().is_empty(), path.unmet(&facts).is_empty());
    }
    let of = |name: &str| listed.iter().find(|path| path["name"] == name).unwrap();
    assert_eq!(of("docker")["in_container"], serde_json::json!(["client", "server"]));
    assert_eq!(of("bridge+vxlan")["in_container"], serde_json::json!(["server"]));
    assert_eq!(of("host")["in_container"], serde_json::json!([]));
    let table = stdout(&sandbox.hostgap(&["paths"]));
    assert!(
        table.contains("With only the client in a container: docker, pasta, slirp4netns, bridge+direct,"),
        "{table}"
    );
    assert!(datapath::ALL.iter().all(|path| table.contains(path.name)), "{table}");
    let marks = table.lines().filter_map(|line| line.find("can run ").or_else(|| line.find("cannot run ")));
    let marks: std::collections::BTreeSet<usize> = marks.collect();
    assert_eq!(marks.len(), 1, "one column: {table}");
}

#[test]
fn what_is_not_raced_is_listed_with_the_reason_and_has_a_section_in_the_manual() {
    let sandbox = sandbox();
    let list = json(&sandbox.hostgap(&["paths", "--json"]));
    let table = stdout(&sandbox.hostgap(&["paths"]));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/datapaths/not-raced.md");
    let page = std::fs::read_to_string(file).unwrap();
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let listed = list["not_raced"].as_array().unwrap();
    let names: Vec<&str> = listed.iter().map(|way| way["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["zero-copy", "sr-iov", "rdma-card", "freeflow", "userspace-cni", "gvisor"]);
    assert_eq!(sections[..names.len()], names);
    for way in listed {
        for words in [&way["stands_for"], &way["reasons"][0], &way["instead"]] {
            assert!(table.contains(words.as_str().unwrap()), "{way}: {table}");
        }
    }
}

#[test]
fn knobs_are_listed_as_the_table_has_them() {
    let sandbox = sandbox();
    let list = json(&sandbox.hostgap(&["tune", "knobs", "--json"]));
    assert_eq!(list["schema"], 1);
    let listed = list["knobs"].as_array().unwrap();
    assert_eq!(listed.len(), tune::all().count());
    for (knob, listed) in tune::all().zip(listed) {
        assert_eq!((listed["id"].as_str(), listed["why"].as_str()), (Some(knob.id), Some(knob.why)));
        assert_eq!(listed["obsolete"].is_null(), knob.scope().is_some(), "{}", knob.id);
    }
    let text = stdout(&sandbox.hostgap(&["tune", "knobs"]));
    assert!(tune::all().all(|knob| text.contains(&format!("  {}\n", knob.id))), "{text}");
    let rmem = listed.iter().find(|knob| knob["id"] == "tcp_rmem").unwrap();
    assert_eq!(rmem["defaults"][1]["since"], "6.16");
    assert_eq!(rmem["defaults"][1]["value"], "4096 131072 33554432");
    let own = stdout(&sandbox.hostgap(&["tune", "knobs", "net.ipv4.tcp_rmem"]));
    assert!(own.contains("  tcp_rmem\n") && own.contains("default 4096 131072 33554432 from"), "{own}");
    let one = stdout(&sandbox.hostgap(&["tune", "knobs", "recycle"]));
    assert!(
        one.contains("tcp_tw_recycle") && one.contains("tcp_tw_reuse") && !one.contains("initcwnd"),
        "{one}"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let sandbox = sandbox();
    for args in ["paths", "lab list", "clean", "race --show-commands", "completions zsh"] {
        let script = format!("exec 3>&1; {{ {} {args}; echo $? >&3; }} | true", crate::sandbox::HOSTGAP);
        let output = sandbox.command("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(stdout(&output), "0\n", "{args}");
        assert_eq!(crate::sandbox::stderr(&output), "", "{args}");
    }
}

#[test]
fn help_names_every_command_and_exit_code() {
    let sandbox = sandbox();
    let help = stdout(&sandbox.hostgap(&["--help"]));
    for word in ["race", "report", "paths", "load", "serve", "lab", "clean", "Exit codes", "130"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    check(&sandbox.hostgap(&["rcae"]), 2, "a similar subcommand exists: 'race'");
}
