//! Topologies that are left standing for other programs.

use rustix::process::Signal;

use crate::turn::{HOSTGAP, check, check_race, json, kill, stdout, turn, until};

#[test]
fn a_topology_stands_until_it_is_taken_down() {
    let turn = turn();
    for path in ["host", "docker", "bridge+vpc"] {
        let up = turn.hostgap(&["lab", "up", path, "--json", "--body", "100,4k"]);
        check(&up, 0, "");
        let up = json(&up);

        // `clean` removes only what dead processes left. This topology stands on purpose.
        assert_eq!(stdout(&turn.hostgap(&["clean"])), "nothing to clean\n");
        let client = up["client_netns"].as_str().unwrap();
        for (url, size) in up["urls"].as_array().unwrap().iter().zip([100, 4096]) {
            let url = url.as_str().unwrap();
            let body =
                turn.command("ip").args(["netns", "exec", client, "curl", "-sf", url]).output().unwrap();
            assert_eq!(body.stdout.len(), size, "{path}");
        }
        for node in up["node_netns"].as_array().unwrap() {
            assert!(turn.namespaces().contains(&node.as_str().unwrap().to_owned()), "{up}");
        }
        assert!(stdout(&turn.hostgap(&["lab", "list"])).contains(&format!("{path} is up")));
        let list = json(&turn.hostgap(&["lab", "list", "--json"]));
        assert_eq!((&list["schema"], &list["owners"][0]["standing"]), (&1.into(), &path.into()));

        let which = if path == "docker" { path } else { up["id"].as_str().unwrap() };
        check(&turn.hostgap(&["lab", "down", which]), 0, "");
        turn.assert_nothing_left();
    }
}

#[test]
fn a_race_and_a_standing_topology_do_not_mind_each_other() {
    let turn = turn();
    let up = turn.hostgap(&["lab", "up", "macvlan", "--ipv6"]);
    check(&up, 0, "");
    assert!(stdout(&up).contains("curl -s http://[fd00:"), "{}", stdout(&up));
    let before = turn.namespaces();
    check_race(&turn.run_race(&["--paths", "macvlan", "--rounds", "1", "--rate", "1k"]), "");
    assert_eq!(turn.namespaces(), before);
    check(&turn.hostgap(&["lab", "down"]), 0, "");
    turn.assert_nothing_left();
}

#[test]
fn nothing_stands_after_a_failed_build() {
    let turn = turn();
    check(&turn.hostgap(&["lab", "up", "docker", "--nginx", "/bin/false"]), 4, "nginx was requested");
    check(&turn.hostgap(&["lab", "up", "dokcer"]), 2, "did you mean \"docker\"?");
    check(&turn.hostgap(&["lab", "up", "docker", "--body", "1G"]), 2, "`1G` is not a size");
    turn.assert_nothing_left();
}

#[test]
fn nothing_stands_after_an_interrupt() {
    let turn = turn();
    let up = turn.command(HOSTGAP).args(["lab", "up", "bridge+vxlan"]).spawn().unwrap();
    until("something stands", || !turn.namespaces().is_empty());
    kill(up.id(), Signal::INT);
    check(&up.wait_with_output().unwrap(), 130, "interrupted: nothing was left up");
    turn.assert_nothing_left();
}

#[test]
fn down_names_what_it_does_not_know() {
    let turn = turn();
    assert_eq!(stdout(&turn.hostgap(&["lab", "down"])), "no topology is up\n");
    check(&turn.hostgap(&["lab", "down", "ffff"]), 2, "`hostgap lab list` lists them");
}
