//! What `hostgap agent down` finds where no agent has run since the machine started, or where one before it was killed.

use std::fs;

use testkit::require_root;

use super::{Nodes, is_file, text};

/// The unit is in `/run`, and the key is not.
#[test]
fn the_key_of_a_node_goes_though_nothing_of_the_network_stands() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("vxlan");
    let key = nodes.path("a").join("lib/hostgap/agent/pods.wireguard.key");
    fs::create_dir_all(key.parent().unwrap()).unwrap();
    fs::write(&key, "").unwrap();
    // flanneld has the node by now.
    let environment = nodes.path("a").join("subnet.env");
    fs::write(&environment, "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\n").unwrap();
    let down = Nodes::output(nodes.agent("a", "down"));
    assert!(down.status.success() && text(&down.stdout) == "pods: undid 0 steps\n", "{down:?}");
    assert!(!is_file(&key) && is_file(&environment));
    assert!(!nodes.agent("a", "down").output().unwrap().status.success(), "nothing is left");
}

#[test]
fn what_a_killed_run_left_of_the_files_goes_with_the_next() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("host-gw");
    let mut a = nodes.start("a");
    nodes.until_reached("a", "b", &a);
    a.kill();
    let environment = nodes.path("a").join("subnet.env");
    let text_of_agent = fs::read_to_string(&environment).unwrap();
    assert!(Nodes::output(nodes.agent("a", "down")).status.success());
    assert!(!is_file(&environment));
    fs::write(&environment, text_of_agent).unwrap();
    let down = Nodes::output(nodes.agent("a", "down"));
    assert!(down.status.success() && !is_file(&environment), "{down:?}");
}
