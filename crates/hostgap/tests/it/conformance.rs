//! `hostgap cni conformance`: our own plugin passes, and one that is broken does not.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::sandbox::{PLUGIN, Sandbox, check, json, sandbox, stdout};

/// The cases of one outcome.
fn with_outcome<'a>(result: &'a Value, outcome: &str) -> BTreeSet<&'a str> {
    let cases = result["cases"].as_array().unwrap().iter().filter(|case| case["outcome"] == outcome);
    cases.map(|case| case["id"].as_str().unwrap()).collect()
}

/// All cases pass that apply; `others` do not, beside those that are about a plugin for addresses.
#[track_caller]
fn conforms(attach: &str, others: &[&'static str]) {
    let sandbox = sandbox();
    let path = datapath::ATTACHES.iter().find(|path| path.name == attach).unwrap();
    if let Some(unmet) = path.unmet(&linux::features::probe().unwrap()).first() {
        return testkit::skip(&format!("{attach}: {unmet}"));
    }
    let output = sandbox.hostgap(&["cni", "conformance", PLUGIN, "--attach", attach, "--json"]);
    let result = json(&output);
    let bad: Vec<&Value> =
        result["cases"].as_array().unwrap().iter().filter(|case| case["why"].is_string()).collect();
    assert_eq!(
        (bad.as_slice(), &result["failed"], &result["undecided"]),
        (&[][..], &0.into(), &0.into()),
        "{attach}"
    );
    let delegates = ["add-delegate-missing", "gc-delegate", "status-delegate"];
    assert_eq!(
        with_outcome(&result, "not_applicable"),
        delegates.into_iter().chain(others.iter().copied()).collect()
    );
    assert_eq!(
        (output.status.code(), &result["schema"], &result["version"]),
        (Some(0), &1.into(), &"1.1.0".into())
    );
    sandbox.assert_nothing_left();
}

#[test]
fn bridge_conforms() {
    conforms("bridge", &[]);
}

#[test]
fn ptp_conforms() {
    conforms("ptp", &[]);
}

#[test]
fn ebpf_conforms() {
    // What a second interface sends would have the address of another one.
    conforms("ebpf", &["add-two-interfaces"]);
}

#[test]
fn macvlan_conforms() {
    conforms("macvlan", &["check-route-gone"]);
}

#[test]
fn netkit_conforms() {
    conforms("netkit", &["add-two-interfaces"]);
}

#[test]
fn ipvlan_l2_conforms() {
    conforms("ipvlan-l2", &["check-route-gone"]);
}

#[test]
fn ipvlan_l3_conforms() {
    conforms("ipvlan-l3", &[]);
}

#[test]
fn ipvlan_l3s_conforms() {
    conforms("ipvlan-l3s", &[]);
}

/// A script called `hostgap` that stands between a case and the program.
fn wrapped(sandbox: &Sandbox, script: &str) -> String {
    let program = sandbox.out().join("hostgap");
    std::fs::write(&program, format!("#!/bin/sh\nREAL={PLUGIN}\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program.display().to_string()
}

/// The commands that came with 1.1.0, which Debian's plugins lack. The others are broken in the tests of `conformance`.
#[test]
fn each_break_of_the_newest_commands_is_seen() {
    let sandbox = sandbox();
    let broken: [(&str, &[&str]); 7] = [
        ("[ $CNI_COMMAND = GC ] && exit 0; exec $REAL", &["gc-releases"]),
        ("[ $CNI_COMMAND = GC ] && { echo '{}'; exit 0; }; exec $REAL", &["gc-silent"]),
        ("[ $CNI_COMMAND = GC ] && exit 1; exec $REAL", &["gc-twice", "gc-null"]),
        (
            "[ $CNI_COMMAND = GC ] || exec $REAL; sed 's/\"cni.dev.valid-attachments\":[^]]*]/\"cni.dev\\/valid-attachments\":[]/' | $REAL",
            &["gc-keeps"],
        ),
        ("[ $CNI_COMMAND = STATUS ] && exit 0; exec $REAL", &["status-exhausted"]),
        ("[ $CNI_COMMAND = STATUS ] && exit 1; exec $REAL", &["status-ready"]),
        ("$REAL | sed 's/\"mtu\":[0-9]*/\"mtu\":9/g'", &["kernel-mtu"]),
    ];
    for (script, seen_by) in broken {
        let plugin = wrapped(&sandbox, script);
        let output =
            sandbox.hostgap(&["cni", "conformance", &plugin, "--json", "--only", &seen_by.join(",")]);
        check(&output, 1, "");
        assert_eq!(with_outcome(&json(&output), "failed"), seen_by.iter().copied().collect(), "{script}");
    }
}

#[test]
fn a_failure_is_reported_with_the_sentence_the_call_and_a_script() {
    let sandbox = sandbox();
    let plugin = wrapped(
        &sandbox,
        "[ $CNI_COMMAND = STATUS ] && { echo '{\"code\":50,\"msg\":\"down\"}'; exit 1; }; exec $REAL",
    );
    let junit = sandbox.out().join("results.xml");
    let junit_path = junit.to_str().unwrap();
    let output = sandbox.hostgap(&[
        "cni",
        "conformance",
        &plugin,
        "--only",
        "status-ready,status-delegate,del-twice",
        "--junit",
        junit_path,
    ]);
    check(&output, 1, "");
    let text = stdout(&output);
    for says in [
        "passed   del-twice",
        "FAILED   status-ready",
        "n/a      status-delegate",
        "it calls no other plugin for addresses",
        "says     A plugin must exit with a zero (success) return code if the plugin is ready",
        "found    STATUS ended with exit status 1: down (code 50)",
        "CNI_COMMAND=STATUS",
        "{\"code\":50,\"msg\":\"down\"}",
        "nsenter --net=/run/netns/node",
        "1 passed, 1 failed (1 must, 0 should), 1 do not apply",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(xml.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\""), "{xml}");
    sandbox.assert_nothing_left();
}

#[test]
fn bad_input_is_refused_before_anything_runs() {
    let sandbox = sandbox();
    let conf = sandbox.out().join("x.conf");
    std::fs::write(&conf, "{").unwrap();
    let conf = conf.to_str().unwrap();
    for (args, says) in [
        (&["/nonexistent"][..], "could not find the plugin /nonexistent: it is not an executable file"),
        (&["/bin/true"], "there is a default for hostgap, bridge, ptp, macvlan, ipvlan only"),
        (&["/bin/true", "--conf", conf], "could not use the configuration: it is not JSON"),
        (&["/bin/true", "--conf", "/nonexistent"], "could not read CNI configuration /nonexistent"),
        (&[PLUGIN, "--only", "dell"], "there is no case \"dell\""),
        (&[PLUGIN, "--attach", "brigde"], "there is no attach \"brigde\"; there are bridge, ptp"),
    ] {
        check(&sandbox.hostgap(&[&["cni", "conformance"], args].concat()), 2, says);
    }
    let list = json(&sandbox.hostgap(&["cni", "conformance", "--list", "--must", "--only", "del", "--json"]));
    let ids: Vec<&str> =
        list["cases"].as_array().unwrap().iter().map(|case| case["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["del-twice", "del-never-added", "del-interface-gone"]);
}
