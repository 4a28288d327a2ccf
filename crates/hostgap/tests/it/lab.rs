//! Topologies that are left standing for other programs.

use rustix::process::Signal;

use crate::sandbox::{HOSTGAP, check, check_race, json, kill, sandbox, stdout, unheard, until};

#[test]
fn a_topology_stands_until_it_is_taken_down() {
    let sandbox = sandbox();
    for path in ["host", "docker", "bridge+vpc"] {
        let up = sandbox.hostgap(&["lab", "up", path, "--json", "--body", "100,4k"]);
        check(&up, 0, "");
        let up = json(&up);

        // `clean` removes only what dead processes left. This topology stands on purpose.
        assert_eq!(stdout(&sandbox.hostgap(&["clean"])), "nothing to clean\n");
        let client = up["client_netns"].as_str().unwrap();
        for (url, size) in up["urls"].as_array().unwrap().iter().zip([100, 4096]) {
            let url = url.as_str().unwrap();
            let body =
                sandbox.command("ip").args(["netns", "exec", client, "curl", "-sf", url]).output().unwrap();
            assert_eq!(body.stdout.len(), size, "{path}");
        }
        for node in up["node_netns"].as_array().unwrap() {
            assert!(sandbox.namespaces().contains(&node.as_str().unwrap().to_owned()), "{up}");
        }
        assert!(stdout(&sandbox.hostgap(&["lab", "list"])).contains(&format!("{path} is up")));
        let list = json(&sandbox.hostgap(&["lab", "list", "--json"]));
        assert_eq!((&list["schema"], &list["owners"][0]["standing"]), (&1.into(), &path.into()));

        let which = if path == "docker" { path } else { up["id"].as_str().unwrap() };
        check(&sandbox.hostgap(&["lab", "down", which]), 0, "");
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_race_and_a_standing_topology_do_not_mind_each_other() {
    let sandbox = sandbox();
    let up = sandbox.hostgap(&["lab", "up", "macvlan", "--ipv6"]);
    check(&up, 0, "");
    assert!(stdout(&up).contains("curl -s http://[fd00:"), "{}", stdout(&up));
    let before = sandbox.namespaces();
    check_race(&sandbox.run_race(&["--paths", "macvlan", "--rounds", "1", "--rate", "1k"]), "");
    assert_eq!(sandbox.namespaces(), before);
    check(&sandbox.hostgap(&["lab", "down"]), 0, "");
    sandbox.assert_nothing_left();
}

#[test]
fn nothing_stands_after_a_failed_build() {
    let sandbox = sandbox();
    check(&sandbox.hostgap(&["lab", "up", "docker", "--nginx", "/bin/false"]), 4, "nginx was requested");
    check(&sandbox.hostgap(&["lab", "up", "dokcer"]), 2, "did you mean \"docker\"?");
    check(&sandbox.hostgap(&["lab", "up", "docker", "--body", "1G"]), 2, "`1G` is not a size");
    sandbox.assert_nothing_left();
}

#[test]
fn nothing_stands_after_an_interrupt() {
    let sandbox = sandbox();
    let up = sandbox.command(HOSTGAP).args(["lab", "up", "bridge+vxlan"]).spawn().unwrap();
    until("something stands", || !sandbox.namespaces().is_empty());
    kill(up.id(), Signal::INT);
    check(&up.wait_with_output().unwrap(), 130, "interrupted: nothing was left up");
    sandbox.assert_nothing_left();
}

#[test]
fn a_reader_that_goes_leaves_no_topology_standing() {
    let sandbox = sandbox();
    for path in ["host", "docker"] {
        check(&sandbox.hostgap(&["lab", "up", path]), 0, "");
    }
    let down = sandbox.command(HOSTGAP).args(["lab", "down"]).stdout(unheard()).output().unwrap();
    check(&down, 0, "");
    sandbox.assert_nothing_left();
}

#[test]
fn down_names_what_it_does_not_know() {
    let sandbox = sandbox();
    assert_eq!(stdout(&sandbox.hostgap(&["lab", "down"])), "no topology is up\n");
    check(&sandbox.hostgap(&["lab", "down", "ffff"]), 2, "`hostgap lab list` lists them");
}
