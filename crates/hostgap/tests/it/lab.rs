//! Topologies that stand for other programs.

use std::process::Command;

use crate::run::{assert_nothing_left, namespaces, stderr, stdout, turn};

#[test]
fn a_topology_stands_until_it_is_taken_down() {
    let turn = turn();
    for path in ["host", "docker", "bridge+vpc"] {
        let output = turn.hostgap(&["lab", "up", path, "--json", "--body", "100,4k"]);
        assert!(output.status.success(), "{path}: {}", stderr(&output));
        let up: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();

        // Cleaning is for the dead; this one stands on purpose.
        assert!(turn.hostgap(&["clean"]).status.success());
        let client = up["client_netns"].as_str().unwrap();
        for (url, size) in up["urls"].as_array().unwrap().iter().zip([100, 4096]) {
            let body = Command::new("ip")
                .args(["netns", "exec", client, "curl", "-sf", url.as_str().unwrap()])
                .output()
                .unwrap();
            assert_eq!(body.stdout.len(), size, "{path}: {}", stderr(&body));
        }
        assert!(stdout(&turn.hostgap(&["lab", "list"])).contains(&format!("{path} stands")));

        let output = turn.hostgap(&["lab", "down", up["id"].as_str().unwrap()]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_nothing_left();
    }
}

#[test]
fn nothing_stands_after_a_failed_build() {
    let turn = turn();
    let output = turn.hostgap(&["lab", "up", "docker", "--nginx", "/bin/false"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(namespaces(), Vec::<String>::new());
    assert_nothing_left();
}

#[test]
fn down_names_what_it_does_not_know() {
    let turn = turn();
    let output = turn.hostgap(&["lab", "down", "ffff"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("lab list"), "{}", stderr(&output));
}
