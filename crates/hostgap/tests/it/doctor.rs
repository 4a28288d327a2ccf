//! The doctor from the command line.

use crate::sandbox::{check, json, sandbox, stdout};

#[test]
fn a_diagnosis_is_made_and_can_be_read_by_programs() {
    let sandbox = sandbox();
    let output = sandbox.hostgap(&["doctor", "--for", "300ms"]);
    check(&output, 0, "");
    let text = stdout(&output);
    assert!(text.starts_with("Linux ") && text.contains("worth knowing"), "{text}");
    let diagnosis = json(&sandbox.hostgap(&["doctor", "--for", "300ms", "--json"]));
    assert_eq!(diagnosis["schema"], 1);
    assert!(diagnosis["window_s"].as_f64().unwrap() >= 0.3, "{diagnosis}");
    for finding in diagnosis["findings"].as_array().unwrap() {
        for field in [
            "code",
            "severity",
            "title",
            "impact",
            "evidence",
            "why",
            "remedy",
            "proposals",
            "verify",
            "because_of",
        ] {
            assert!(!finding[field].is_null(), "{field}: {finding}");
        }
        assert!(finding["evidence"][0]["read_from"].is_string(), "{finding}");
    }
}

#[test]
fn a_collected_tree_is_diagnosed_elsewhere() {
    let sandbox = sandbox();
    let tree = sandbox.out().join("tree");
    let tree = tree.to_str().unwrap();
    check(&sandbox.hostgap(&["collect", tree, "--for", "300ms"]), 0, "hostgap doctor --from");
    let diagnosis = json(&sandbox.hostgap(&["doctor", "--from", tree, "--json"]));
    assert!(diagnosis["window_s"].as_f64().unwrap() >= 0.3, "{diagnosis}");
    check(&sandbox.hostgap(&["collect", tree]), 2, "is not empty");
    let link = sandbox.out().join("link");
    std::os::unix::fs::symlink(tree, &link).unwrap();
    check(&sandbox.hostgap(&["collect", link.to_str().unwrap()]), 2, "link is a symbolic link");
    std::fs::remove_dir_all(sandbox.out().join("tree/after/sys")).unwrap();
    let output = sandbox.hostgap(&["doctor", "--from", tree]);
    check(&output, 3, "the diagnosis is not complete; it says nothing about links (sys/class/net)");
    let text = stdout(&output);
    assert!(text.contains("\nNot judged\n") && !text.contains("no warning"), "{text}");
    let output = sandbox.hostgap(&["doctor", "--from", tree, "--json"]);
    assert_eq!(json(&output)["not_judged"], serde_json::json!(["links (sys/class/net)"]));
    check(
        &sandbox.hostgap(&["doctor", "--from", "/nonexistent"]),
        2,
        "open directory /nonexistent: no such file",
    );
    std::fs::write(
        sandbox.out().join("tree/collected.json"),
        "{\"schema\": 7, \"before_ns\": 0, \"after_ns\": 1}",
    )
    .unwrap();
    check(&sandbox.hostgap(&["doctor", "--from", tree]), 2, "its schema is 7");
}

#[test]
fn a_warning_is_an_exit_code_when_it_is_asked_for() {
    let sandbox = sandbox();
    let ip = |args: &[&str]| {
        assert!(sandbox.command("ip").args(args).output().unwrap().status.success(), "{args:?}");
    };
    ip(&["netns", "add", "hgt-sick"]);
    ip(&["-n", "hgt-sick", "link", "set", "dev", "lo", "up"]);
    // Sends packets all the time to where no route leads.
    let script = "for i in $(seq 100); do echo x >/dev/udp/203.0.113.9/9; sleep 0.05; done";
    let mut lost = sandbox.command("ip");
    let mut lost = lost.args(["netns", "exec", "hgt-sick", "bash", "-c", script]).spawn().unwrap();
    let output = sandbox.hostgap(&["doctor", "--netns", "hgt-sick", "--for", "2s", "--strict"]);
    let text = check(&output, 3, "");
    assert!(stdout(&output).contains("HG055"), "{text}");
    lost.kill().unwrap();
    lost.wait().unwrap();
}

#[test]
fn findings_are_explained() {
    let sandbox = sandbox();
    let output = sandbox.hostgap(&["explain", "hg082"]);
    check(&output, 0, "");
    assert!(stdout(&output).contains("larger buffers cannot help here"), "{}", stdout(&output));
    let listed = stdout(&sandbox.hostgap(&["explain"]));
    let explained = json(&sandbox.hostgap(&["explain", "--json"]));
    let checks = explained["checks"].as_array().unwrap();
    assert!(checks.iter().all(|check| listed.contains(check["code"].as_str().unwrap())));
    check(&sandbox.hostgap(&["explain", "HG999"]), 2, "`hostgap explain` lists them");
    check(&sandbox.hostgap(&["explain", "82"]), 2, "did you mean \"HG082\"?");
    check(&sandbox.hostgap(&["doctor", "--for", "soon"]), 2, "is not a time");
    check(&sandbox.hostgap(&["doctor", "--for", "1ms"]), 2, "0.1 s to 1 day");
    check(
        &sandbox.hostgap(&["doctor", "--netns", "hgt-nowhere", "--for", "1s"]),
        2,
        "open namespace hgt-nowhere",
    );
}
