//! The counters of nodes with programs, and the replacement of those programs.

use std::time::Duration;

use crate::sandbox::{HOSTGAP, check, json, sandbox, stdout, text};

/// How many replacements are killed, each a little later than the one before.
const KILLS: u32 = 20;
const KILLED_EVERY: Duration = Duration::from_millis(4);

#[test]
fn a_node_that_goes_away_meanwhile_is_left_out() {
    let sandbox = sandbox();
    let facts = linux::features::probe().unwrap();
    let ebpf = datapath::ALL.iter().find(|path| path.name == "ebpf+direct").unwrap();
    if let Some(unmet) = ebpf.unmet(&facts).first() {
        return testkit::skip(&format!("ebpf+direct: {unmet}"));
    }
    // The state of a node that is removed between being listed and being read: a folder without programs.
    let leaving = sandbox.command("mkdir").args(["-p", "/run/hostgap-bpf/hgt-leaving"]).output().unwrap();
    assert!(leaving.status.success());
    let output = sandbox.hostgap(&["bpf", "counters"]);
    check(&output, 0, "");
    assert_eq!(stdout(&output), "no node has hostgap programs\n");
    check(&sandbox.hostgap(&["bpf", "counters", "hgt-leaving"]), 2, "node \"hgt-leaving\" has no counters");

    check(&sandbox.hostgap(&["lab", "up", "ebpf+direct"]), 0, "");
    let counted = json(&sandbox.hostgap(&["bpf", "counters", "--json"]));
    let nodes = counted["nodes"].as_array().unwrap();
    let names: Vec<&str> = nodes.iter().map(|node| node["node"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(!names.contains(&"hgt-leaving") && nodes[0]["dropped"].is_object(), "{counted}");
    let link = ["bpf", "attach", names[0], "from_pod", "hgt-nolink"];
    check(&sandbox.hostgap(&link), 2, "hgt-nolink");
    check(&sandbox.hostgap(&["lab", "down"]), 0, "");
    sandbox.assert_nothing_left();
}

/// A bpffs for all nodes is what a runtime may have mounted there. The kernel keeps files of its own in it.
#[test]
fn the_kernel_s_own_files_are_no_nodes() {
    let sandbox = sandbox();
    let facts = linux::features::probe().unwrap();
    if let Some(unmet) = facts.unmet(&[linux::features::Feature::BpfTc]).first() {
        return testkit::skip(&unmet.to_string());
    }
    let mount = "mkdir /run/hostgap-bpf && mount -t bpf none /run/hostgap-bpf && ls /run/hostgap-bpf";
    let listed = sandbox.command("sh").args(["-c", mount]).output().unwrap();
    assert!(stdout(&listed).contains(".debug"), "{listed:?}");
    check(&sandbox.hostgap(&["bpf", "guard", "hgt-node"]), 0, "");
    let counted = json(&sandbox.hostgap(&["bpf", "counters", "--json"]));
    let nodes = counted["nodes"].as_array().unwrap();
    assert_eq!((nodes.len(), nodes[0]["node"].as_str()), (1, Some("hgt-node")), "{counted}");
    check(&sandbox.hostgap(&["bpf", "unload", "hgt-node"]), 0, "");
    assert!(sandbox.command("umount").arg("/run/hostgap-bpf").status().unwrap().success());
}

#[test]
fn services_are_set_by_hand() {
    let sandbox = sandbox();
    if let Err(unmet) = linux::features::services() {
        return testkit::skip(&unmet.to_string());
    }
    check(
        &sandbox.hostgap(&["bpf", "service", "hgt-node", "10.96.0.1:80/tcp"]),
        2,
        "has no hostgap programs",
    );
    check(&sandbox.hostgap(&["bpf", "services", "hgt-node"]), 0, "");
    check(&sandbox.hostgap(&["bpf", "services", "hgt-node"]), 1, "hostgap bpf unload hgt-node");
    let nowhere = ["bpf", "services", "hgt-node", "--attach", "/run/no-such-group"];
    check(&sandbox.hostgap(&nowhere), 1, "open control group /run/no-such-group");
    let service = ["bpf", "service", "hgt-node", "10.96.0.1:80/tcp", "10.244.1.1:8080", "--affinity", "7"];
    check(&sandbox.hostgap(&service), 0, "");
    check(&sandbox.hostgap(&service), 0, "");
    check(&sandbox.hostgap(&["bpf", "service", "hgt-node", "10.96.0.1:80"]), 2, "ADDRESS:PORT/tcp");
    check(
        &sandbox.hostgap(&["bpf", "service", "hgt-node", "10.96.0.1:80/tcp", "[fd00::1]:80"]),
        1,
        "other family",
    );
    let counted = json(&sandbox.hostgap(&["bpf", "counters", "hgt-node", "--json"]));
    assert_eq!(counted["nodes"][0]["calls"]["led"], 0, "{counted}");
    let shown = stdout(&sandbox.hostgap(&["bpf", "counters"]));
    assert!(shown.contains("calls led to a backend"), "{shown}");
    check(&sandbox.hostgap(&["bpf", "unload", "hgt-node"]), 0, "");
    sandbox.assert_nothing_left();
}

/// An agent's container has a folder of its machine's bpffs where hostgap pins (`deploy/services`). What it has pinned
/// is found on the machine, and taken away whole.
#[test]
fn the_pins_of_a_container_are_found_on_its_machine() {
    let sandbox = sandbox();
    if let Err(unmet) = linux::features::services() {
        return testkit::skip(&unmet.to_string());
    }
    let enter = "mount -t bpf none /sys/fs/bpf && mkdir /sys/fs/bpf/hostgap /run/hostgap-bpf &&
         mount --bind /sys/fs/bpf/hostgap /run/hostgap-bpf";
    text(sandbox.command("sh").args(["-c", enter]));
    check(&sandbox.hostgap(&["bpf", "services", "hgt-node"]), 0, "");
    text(sandbox.command("umount").arg("/run/hostgap-bpf"));
    let counted = json(&sandbox.hostgap(&["bpf", "counters", "--json"]));
    let nodes = counted["nodes"].as_array().unwrap();
    assert_eq!((nodes.len(), nodes[0]["node"].as_str()), (1, Some("hgt-node")), "{counted}");
    assert_eq!(nodes[0]["calls"]["led"], 0, "{counted}");
    check(&sandbox.hostgap(&["bpf", "unload", "hgt-node"]), 0, "");
    assert_eq!(text(sandbox.command("find").args(["/sys/fs/bpf", "-name", "h*"])), "");
    sandbox.assert_nothing_left();
}

/// A namespace with the guard at its loopback link. Replacements are killed at any point, and then one runs to its end.
#[test]
fn a_guard_is_replaced_by_hand() {
    let sandbox = sandbox();
    let facts = linux::features::probe().unwrap();
    if let Some(unmet) = facts.unmet(&[linux::features::Feature::BpfTc]).first() {
        return testkit::skip(&unmet.to_string());
    }
    text(sandbox.command("ip").args(["netns", "add", "hgt-node"]));
    check(&sandbox.hostgap(&["bpf", "guard", "hgt-node"]), 0, "");
    let attach = ["bpf", "attach", "--netns", "hgt-node", "hgt-node", "guard", "lo"];
    check(&sandbox.hostgap(&attach), 0, "");
    let replace = ["bpf", "replace-guard", "--netns", "hgt-node", "hgt-node"];
    for after in (0..KILLS).map(|kill| KILLED_EVERY * kill) {
        let mut child = sandbox.command(HOSTGAP).args(replace).spawn().unwrap();
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let replaced = sandbox.hostgap(&replace);
    check(&replaced, 0, "");
    assert_eq!(stdout(&replaced), "the guard of hgt-node was replaced at 1 links\n");
    let nowhere = ["bpf", "replace-guard", "--netns", "hgt-none", "hgt-node"];
    check(&sandbox.hostgap(&nowhere), 2, "there is no network namespace hgt-none");
    check(&sandbox.hostgap(&["bpf", "unload", "hgt-node"]), 0, "");
    text(sandbox.command("ip").args(["netns", "del", "hgt-node"]));
    sandbox.assert_nothing_left();
}

/// The replacement is killed at any point, and then run once more.
#[test]
fn a_replacement_that_was_killed_is_completed_by_the_next() {
    let sandbox = sandbox();
    let facts = linux::features::probe().unwrap();
    let ebpf = datapath::ALL.iter().find(|path| path.name == "ebpf+direct").unwrap();
    if let Some(unmet) = ebpf.unmet(&facts).first() {
        return testkit::skip(&format!("ebpf+direct: {unmet}"));
    }
    check(&sandbox.hostgap(&["lab", "up", "ebpf+direct"]), 0, "");
    let counted = json(&sandbox.hostgap(&["bpf", "counters", "--json"]));
    let node = counted["nodes"][0]["node"].as_str().unwrap();
    let netns = node.strip_suffix("-1").unwrap();
    let arguments = |wire| {
        format!(
            "bpf replace --netns {netns} {node} --wire {wire} --mtu 1500 --pods 10.244.1.0/24,fd00:244:0:1::/64 \
            --cluster 10.244.0.0/16,fd00:244::/48 --gateway 169.254.1.1 --gateway-mac 02:05:00:00:00:00"
        )
    };
    let replace = |arguments: &str| sandbox.hostgap(&arguments.split(' ').collect::<Vec<_>>());
    for after in (0..KILLS).map(|kill| KILLED_EVERY * kill) {
        let mut child = sandbox.command(HOSTGAP).args(arguments("eth0").split(' ')).spawn().unwrap();
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let replaced = replace(&arguments("eth0"));
    check(&replaced, 0, "");
    // One at the wire and one at the pod.
    assert_eq!(stdout(&replaced), format!("the programs of {node} were replaced at 2 links\n"));
    check(&replace(&arguments("hgt-nolink")), 2, "there is no link hgt-nolink in ");
    assert!(stdout(&sandbox.hostgap(&["lab", "list"])).contains("ebpf+direct is up"));
    check(&sandbox.hostgap(&["lab", "down"]), 0, "");
    sandbox.assert_nothing_left();
}
