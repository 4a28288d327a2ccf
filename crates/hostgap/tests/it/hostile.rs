//! Text from files that others wrote is shown on the terminal without controlling it.

use std::path::Path;
use std::process::Output;

use crate::sandbox::{check, json, sandbox, stderr, stdout};

/// Clears the screen, starts a C1 control sequence, deletes, and reverses the direction of writing.
const EVIL: &str = "x\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\u{2066}y";
const SHOWN: &str = "x\\u001b[2J\\u009b31m\\u007f\\u202e\\u2066y";

/// Fails if a terminal would execute any of the text, or if the text of the file is not shown.
#[track_caller]
fn harmless(output: &Output, shown: &str) {
    let text = format!("{}{}", stdout(output), stderr(output));
    let is_obeyed = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(is_obeyed), "{text:?}");
    assert!(text.contains(shown), "{shown:?} is not in: {text}");
}

fn file(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn of_experiments_and_profiles() {
    let sandbox = sandbox();
    let key = "schema = 1\nname = \"x\"\n\"\\u001b[2J\" = 1\n";
    let output = sandbox.hostgap(&["race", &file(sandbox.out(), "key.toml", key)]);
    check(&output, 2, "line 3");
    harmless(&output, "\\u001b[2J");
    let name = "schema = 1\nname = \"\\u001b[2J\\u009b\\u202e\"\n";
    let output = sandbox.hostgap(&["race", &file(sandbox.out(), "name.toml", name)]);
    check(&output, 2, "`name` is ");
    harmless(&output, "\\u001b[2J\\u009b\\u202e");
    let why = "\\u001b[2J\\u009b\\u202e";
    let profile = format!(
        "schema = 1\nabout = \"{why}\"\n[[set]]\nknob = \"somaxconn\"\nvalue = 12345\nwhy = \"{why}\"\n"
    );
    let output = sandbox.hostgap(&["tune", "plan", &file(sandbox.out(), "profile.toml", &profile)]);
    check(&output, 0, "");
    harmless(&output, "\\u001b[2J\\u009b\\u202e");
    let output = sandbox.hostgap(&["report", &format!("/nonexistent/{EVIL}")]);
    harmless(&output, SHOWN);
}

#[test]
fn of_collected_trees() {
    let sandbox = sandbox();
    let tree = sandbox.out().join("tree");
    let tree = tree.to_str().unwrap();
    check(&sandbox.hostgap(&["collect", tree, "--for", "100ms"]), 0, "");
    for look in ["before", "after"] {
        let look = sandbox.out().join("tree").join(look);
        // The kernel accepts every byte in a link's name except white space, `/` and `:`.
        let link = look.join("sys/class/net/e\u{1b}[2J\u{202e}");
        std::fs::create_dir(&link).unwrap();
        for (name, text) in [("ifindex", "77\n"), ("mtu", "1500\n"), ("flags", "0x1003\n")] {
            std::fs::write(link.join(name), text).unwrap();
        }
        std::fs::create_dir(link.join("device")).unwrap();
        std::fs::write(link.join("device/uevent"), "DRIVER=virtio_net\n").unwrap();
        std::fs::write(look.join("unseen.json"), serde_json::to_string(&[EVIL]).unwrap()).unwrap();
        std::fs::write(look.join("proc/sys/kernel/osrelease"), format!("6.1{EVIL}\n")).unwrap();
    }
    let output = sandbox.hostgap(&["doctor", "--from", tree]);
    check(&output, 0, "");
    harmless(&output, SHOWN);
    harmless(&output, "(e\\u001b[2J\\u202e)");
    let output = sandbox.hostgap(&["doctor", "--from", tree, "--json"]);
    harmless(&output, SHOWN);
    // Programs get the text unchanged.
    assert_eq!(json(&output)["unseen"], serde_json::json!([EVIL]));
    std::fs::write(sandbox.out().join("tree/collected.json"), format!("{{\"schema\": {EVIL:?}}}")).unwrap();
    harmless(&sandbox.hostgap(&["doctor", "--from", tree]), "is no part of a collected tree");
}

#[test]
fn of_records() {
    let sandbox = sandbox();
    let search = serde_json::json!({
        "schema": 1, "hostgap": EVIL, "started_unix_s": 1, "seed": 1, "budget_s": 1.0, "wall_s": 1.0,
        "experiment": record::Experiment::default(), "machine": record::Machine::default(),
        "incumbent": EVIL, "objective": "throughput", "guards": [], "options": [], "blocks": [], "stages": [],
        "answer": { "verdict": "nothing_helps", "arm": [], "guards": [], "dropped": [], "why": EVIL },
    });
    let record = file(sandbox.out(), "search.json", &search.to_string());
    let output = sandbox.hostgap(&["report", &record]);
    check(&output, 0, "");
    harmless(&output, SHOWN);
    let output = sandbox.hostgap(&["report", "--json", &record]);
    harmless(&output, SHOWN);
    assert_eq!(json(&output)["incumbent"], EVIL);
    let page = std::fs::read_to_string(sandbox.out().join("report.html")).unwrap();
    assert!(page.contains(SHOWN) && !page.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{2066}']));
    let mut strange = search;
    strange[EVIL] = 1.into();
    let output = sandbox.hostgap(&["report", &file(sandbox.out(), "search.json", &strange.to_string())]);
    harmless(&output, &format!("unknown field `{SHOWN}`"));
}
