//! Programs that carry the packets of a data path, and die while it races.

use std::path::{Path, PathBuf};

use linux::features::{Feature, probe};
use rustix::process::Signal;

use crate::ending::ended;
use crate::sandbox::{Sandbox, check, kill, sandbox, stderr, stdout};

/// Whether this machine lacks something. If so, the skip is recorded.
fn is_missing(needs: &[Feature]) -> bool {
    let unmet = probe().expect("a namespace can be made").unmet(needs);
    if let Some(unmet) = unmet.first() {
        testkit::skip(&unmet.to_string());
    }
    !unmet.is_empty()
}

fn experiment(sandbox: &Sandbox, rounds: u32, candidates: &str) -> PathBuf {
    let file = sandbox.out().join("daemons.toml");
    let text = format!(
        "schema = 1\nname = \"daemons\"\nrates = [500]\nrounds = {rounds}\nbuilds = 1\n\
         workload = {{ kind = \"http\", connections = 4 }}\ncandidates = [{candidates}]\n"
    );
    std::fs::write(&file, text).unwrap();
    file
}

/// Kills the process that a file of the server's node names. Such a process has namespaces of its own, so it is not
/// looked for among those of the sandbox; its number is the machine's.
#[track_caller]
fn kill_at(sandbox: &Sandbox, dirs: &str, file: &str) {
    let all: Vec<PathBuf> =
        std::fs::read_dir(sandbox.in_run(dirs)).unwrap().map(|dir| dir.unwrap().path()).collect();
    let is_of_node = |dir: &&PathBuf| dir.file_name().unwrap().to_str().unwrap().contains("-n2-");
    let [dir] = all.iter().filter(is_of_node).collect::<Vec<_>>()[..] else { panic!("{all:?}") };
    let pid = std::fs::read_to_string(dir.join(file)).unwrap();
    kill(pid.trim().parse().unwrap(), Signal::KILL);
}

fn is_empty(dir: &Path) -> bool {
    !dir.exists() || std::fs::read_dir(dir).unwrap().next().is_none()
}

/// What carried the connections of a rootless pod takes its link along.
#[test]
fn a_network_in_user_mode_that_dies_ends_the_race_with_its_name() {
    for (name, feature) in [("pasta", Feature::Pasta), ("slirp4netns", Feature::Slirp4netns)] {
        if is_missing(&[feature]) {
            continue;
        }
        let sandbox = sandbox();
        let candidate = format!("{{ path = {name:?}, required = true }}");
        let file = experiment(&sandbox, 1000, &candidate);
        let race = sandbox.start_race(&[file.to_str().unwrap()]);
        sandbox.until_a_round_is_done();
        kill_at(&sandbox, "hostgap-user-net", "pid");
        let output = ended(&sandbox, race, &format!("data path {name} broke: the path changed: "));
        let said = stderr(&output);
        assert!(said.contains(&format!("the process {name} of ")) && said.contains(" has ended"), "{said}");
        assert!(is_empty(&sandbox.in_run("hostgap-user-net")));
    }
}

#[test]
fn a_race_goes_on_without_a_path_whose_switch_in_user_space_dies() {
    goes_on_without("ovs-afxdp+direct", &[]);
}

/// Its threads are woken before each trial, and rest after it.
#[test]
fn a_race_goes_on_without_a_path_whose_switch_that_polls_dies() {
    goes_on_without("ovs-dpdk+direct", &[Feature::OpenVSwitchDpdk]);
}

/// The other candidates race to the end.
fn goes_on_without(path: &str, needs: &[Feature]) {
    if is_missing(&[&[Feature::AfXdp, Feature::OpenVSwitchAfXdp], needs].concat()) {
        return;
    }
    let sandbox = sandbox();
    let candidates = format!("{{ path = {path:?}, required = true }}, {{ path = \"docker\" }}");
    let file = experiment(&sandbox, 12, &candidates);
    let race = sandbox.start_race(&[file.to_str().unwrap()]);
    sandbox.until_a_round_is_done();
    kill_at(&sandbox, "hostgap-ovs", "ovs-vswitchd.pid");
    let output = race.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains(&format!("{path} broke in round ")) && said.contains("leaves the race: "),
        "{said}"
    );
    assert!(said.contains("a daemon of the Open vSwitch of ") && said.contains(" has ended"), "{said}");
    assert!(stdout(&output).contains("12 of 12 rounds"), "{}", stdout(&output));
    check(&sandbox.hostgap(&["report", sandbox.record().to_str().unwrap()]), 0, "");
    sandbox.assert_nothing_left();
    assert!(is_empty(&sandbox.in_run("hostgap-ovs")));
}
