//! The counters of nodes that have programs.

use crate::turn::{check, json, stdout, turn};

#[test]
fn a_node_that_goes_away_meanwhile_is_left_out() {
    let turn = turn();
    let facts = linux::features::probe().unwrap();
    let ebpf = datapath::ALL.iter().find(|path| path.name == "ebpf+direct").unwrap();
    if let Some(unmet) = ebpf.unmet(&facts).first() {
        return testkit::skip(&format!("ebpf+direct: {unmet}"));
    }
    // What a node is between its listing and the reading of its counters: a folder whose programs are gone.
    let leaving = turn.command("mkdir").args(["-p", "/run/hostgap-bpf/hgt-leaving"]).output().unwrap();
    assert!(leaving.status.success());
    let output = turn.hostgap(&["bpf", "counters"]);
    check(&output, 0, "");
    assert_eq!(stdout(&output), "no node has hostgap programs\n");
    check(&turn.hostgap(&["bpf", "counters", "hgt-leaving"]), 2, "node \"hgt-leaving\" has no counters");

    check(&turn.hostgap(&["lab", "up", "ebpf+direct"]), 0, "");
    let told = json(&turn.hostgap(&["bpf", "counters", "--json"]));
    let nodes = told["nodes"].as_array().unwrap();
    let names: Vec<&str> = nodes.iter().map(|node| node["node"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(!names.contains(&"hgt-leaving") && nodes[0]["dropped"].is_object(), "{told}");
    let link = ["bpf", "attach", names[0], "from_pod", "hgt-nolink"];
    check(&turn.hostgap(&link), 2, "hgt-nolink");
    check(&turn.hostgap(&["lab", "down"]), 0, "");
    turn.assert_nothing_left();
}
