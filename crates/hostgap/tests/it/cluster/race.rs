//! Races in the cluster: by the rights that a race says it needs, and with nothing left, however it ends.

use std::path::Path;
use std::process::{Command, Stdio};

use cluster::{AGENT_IMAGE, NODES};
use record::RaceRecord;
use serde_json::{Value, json};

use super::{PATIENCE, Pods};
use crate::sandbox::{HOSTGAP, stderr, text, until_within};

/// A user with the rights that `--show-manifests` prints, and no others.
const RACER: &str = "racer";

/// Where an endless race says what becomes of it.
const SAID: &str = "said";

/// Races over a network without policies.
#[track_caller]
pub(super) fn race_leaves_nothing(pods: &Pods) {
    grant(pods);
    let out = tempfile::tempdir().unwrap();
    let ended = race(pods, out.path(), &["--rounds", "2", "--paths", "pod,service"]).output().unwrap();
    let said = stderr(&ended);
    // On a machine that is busy with other things no trial may count, which is said and is no error.
    let codes = [Some(0), Some(3)];
    assert!(codes.contains(&ended.status.code()), "{said}");
    let record = recorded(out.path());
    let names: Vec<&str> = record.header.entrants.iter().map(|entrant| entrant.name.as_str()).collect();
    assert_eq!(names, ["host", "host again", "pod", "service"]);
    assert!(record.header.entrants.iter().all(|entrant| entrant.unmet.is_empty()), "{said}");
    let answered = |entrant: usize| -> u64 {
        let trials = record.rounds.iter().flat_map(|round| &round.trials);
        trials.filter(|trial| trial.entrant == entrant).map(|trial| trial.answered).sum()
    };
    assert_eq!(record.rounds.len(), 2);
    assert!((0..names.len()).all(|entrant| answered(entrant) > 0), "{said}");
    let facts = &record.header.machine.facts;
    assert!(facts["client's node"].starts_with("node-1: Linux"), "{facts:?}");
    assert!(facts["server's node"].starts_with("node-2: Linux"), "{facts:?}");
    assert_eq!(namespaces(pods), "");

    each_node_is_looked_at(pods);
    a_node_that_cannot_be_looked_at_is_named(pods);
    all_pairs_race_and_are_mapped(pods);
    let refused = race(pods, out.path(), &["--rounds", "1", "--paths", "pod+policy"]).output().unwrap();
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("enforces no NetworkPolicy"), "{}", stderr(&refused));
    assert_eq!(namespaces(pods), "");
    a_race_in_a_given_namespace_takes_its_own_away(pods);
    the_lease_ends_with_its_race(pods);
    a_pod_that_goes_ends_the_race_with_its_name(pods);
}

/// By the rights of a race.
#[track_caller]
fn each_node_is_looked_at(pods: &Pods) {
    let mut doctor = of_cluster(pods, "doctor", &["--as", RACER]);
    let output = doctor.args(["--for", "0.2s", "--json"]).output().unwrap();
    let said = stderr(&output);
    let looked: Value =
        serde_json::from_str(&crate::sandbox::stdout(&output)).unwrap_or_else(|_| panic!("{said}"));
    let nodes = looked["nodes"].as_array().unwrap();
    let names: Vec<&str> = nodes.iter().map(|node| node["node"].as_str().unwrap()).collect();
    assert_eq!(names, ["node-1", "node-2"]);
    // The node's own links are seen, and not those of a pod.
    let judged = |node: &Value| {
        node["diagnosis"]["kernel"].is_string() && node["diagnosis"]["not_judged"] == json!([])
    };
    assert!(nodes.iter().all(judged), "{looked:#}");
    assert_eq!(namespaces(pods), "");
}

/// The first node, on which the guard would be, lacks the image. The other one is cordoned.
#[track_caller]
fn a_node_that_cannot_be_looked_at_is_named(pods: &Pods) {
    const RARE: &str = "localhost/hostgap:rare";
    let images = |args: &[&str]| {
        let images = ["--namespace", "k8s.io", "images"];
        text(pods.cluster.on(NODES[1], "ctr").args([&images, args].concat()));
    };
    images(&["tag", AGENT_IMAGE, RARE]);
    pods.kubectl(&["cordon", "node-2"]);
    let mut doctor = of_cluster(pods, "doctor", &["--as", RACER]);
    let output = doctor.args(["--for", "0.2s", "--json", "--image", RARE]).output().unwrap();
    pods.kubectl(&["uncordon", "node-2"]);
    images(&["rm", RARE]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let nodes = crate::sandbox::json(&output)["nodes"].take();
    let why = nodes[0]["failed"].as_str().unwrap();
    assert!(why.contains("pod look-node-1: ") && why.contains("Image"), "{nodes:#}");
    assert!(nodes[1]["diagnosis"]["kernel"].is_string(), "{nodes:#}");
    assert_eq!(namespaces(pods), "");
}

/// Both directions of the two nodes, and the ways that raced.
#[track_caller]
fn check_map(map: &Value) {
    let of_nodes = |race: &Value| {
        ["client", "server"].map(|side| race[side].as_str().unwrap_or_default().to_owned()).join(" ")
    };
    let races: Vec<String> = map["races"].as_array().unwrap().iter().map(of_nodes).collect();
    assert_eq!(races, ["node-1 node-2", "node-2 node-1"]);
    let paths = map["paths"].as_array().unwrap().iter().map(|path| path["name"].as_str().unwrap());
    assert_eq!(paths.collect::<Vec<_>>(), ["host", "pod", "service"]);
}

/// Of two nodes both directions, each with a record of its own, and a map of both.
#[track_caller]
fn all_pairs_race_and_are_mapped(pods: &Pods) {
    let out = tempfile::tempdir().unwrap();
    let options = ["--all-pairs", "--rounds", "2", "--paths", "pod,service", "--json"];
    let raced = race(pods, out.path(), &options).output().unwrap();
    let said = stderr(&raced);
    assert!([Some(0), Some(3)].contains(&raced.status.code()), "{said}");
    assert!(!said.contains("leaves the race"), "{said}");
    // On a busy machine all trials of a pair at a load may be void. The map is drawn all the same, with the others.
    let is_whole = !said.contains("a load without a trial that counts");
    assert_eq!(raced.status.code(), Some(if is_whole { 0 } else { 3 }), "{said}");
    check_map(&crate::sandbox::json(&raced)["map"]);
    // Each has its own requests, at the same rates, and the facts of its own two nodes.
    let dir = std::fs::read_dir(out.path()).unwrap().next().unwrap().unwrap().path();
    assert!(dir.join("report.html").exists());
    for (client, server) in [("node-1", "node-2"), ("node-2", "node-1")] {
        let record = RaceRecord::read(&dir.join(format!("{client}--{server}/race.jsonl"))).unwrap();
        let pair = record.header.pair.as_ref().unwrap();
        assert_eq!((pair.client.node.as_str(), pair.server.node.as_str()), (client, server));
        let facts = &record.header.machine.facts;
        assert!(facts["client's node"].starts_with(client) && facts["server's node"].starts_with(server));
        assert_eq!((record.rounds.len(), record.loads[1].rate_per_s), (2, Some(500.0)));
        let answered = |entrant: usize| -> u64 {
            let trials = record.rounds.iter().flat_map(|round| &round.trials);
            trials.filter(|trial| trial.entrant == entrant).map(|trial| trial.answered).sum()
        };
        assert!((0..4).all(|entrant| answered(entrant) > 0), "{said}");
    }
    let record = |pair: &str| dir.join(pair).join("race.jsonl");
    let map = |second: &str| {
        Command::new(HOSTGAP).arg("report").args([record("node-1--node-2"), record(second)]).output().unwrap()
    };
    let drawn = map("node-2--node-1");
    assert!(crate::sandbox::stdout(&drawn).contains("all pairs"), "{}", stderr(&drawn));
    crate::sandbox::check(&map("node-1--node-2"), 1, "not of one race of all pairs");
    assert_eq!(namespaces(pods), "");
    let refused = race(pods, out.path(), &["--all-pairs", "--nodes", "node-1"]).output().unwrap();
    assert!(stderr(&refused).contains("needs two nodes"), "{}", stderr(&refused));
    let refused = race(pods, out.path(), &["--all-pairs", "--zones"]).output().unwrap();
    assert!(stderr(&refused).contains("no node has the label"), "{}", stderr(&refused));
}

/// Both pods on one node have CPUs of their own, and nothing but the namespace was there before or is there after it.
#[track_caller]
fn a_race_in_a_given_namespace_takes_its_own_away(pods: &Pods) {
    let out = tempfile::tempdir().unwrap();
    let options = ["--rounds", "1", "--paths", "pod", "--same-node", "--namespace", "default"];
    let raced = race(pods, out.path(), &options).output().unwrap();
    assert!([Some(0), Some(3)].contains(&raced.status.code()), "{}", stderr(&raced));
    let machine = recorded(out.path()).header.machine;
    assert_ne!(machine.client_cpus, machine.server_cpus);
    let left = pods.kubectl(&["get", "jobs,pods,services", "--selector=app=hostgap-race", "--output=name"]);
    assert_eq!(left, "");
}

/// A race that is killed has no chance to delete anything.
#[track_caller]
fn the_lease_ends_with_its_race(pods: &Pods) {
    let out = tempfile::tempdir().unwrap();
    let mut killed = endless(pods, out.path());
    killed.kill().unwrap();
    killed.wait().unwrap();
    until_within(PATIENCE, "the namespace of a race that was killed is gone", || namespaces(pods).is_empty());
}

#[track_caller]
fn a_pod_that_goes_ends_the_race_with_its_name(pods: &Pods) {
    let out = tempfile::tempdir().unwrap();
    let mut race = endless(pods, out.path());
    let namespace = namespaces(pods);
    pods.kubectl(&["--namespace", &namespace, "delete", "pod", "server-pod", "--wait=false"]);
    let ended = race.wait().unwrap();
    let said = std::fs::read_to_string(out.path().join(SAID)).unwrap();
    assert!(!ended.success());
    assert!(said.contains("pod server-pod on node-2"), "{said}");
    assert!(said.contains("kept)"), "{said}");
    assert!(!recorded(out.path()).rounds.is_empty());
    assert_eq!(namespaces(pods), "");
}

/// A race of which one round is done, and that has no end in sight.
#[track_caller]
fn endless(pods: &Pods, out: &Path) -> std::process::Child {
    let mut race = race(pods, out, &["--rounds", "100000", "--paths", "pod"]);
    let said = std::fs::File::create(out.join(SAID)).unwrap();
    let mut race = race.stderr(said).stdout(Stdio::null()).spawn().unwrap();
    until_within(PATIENCE, "a round is done", || {
        assert_eq!(race.try_wait().unwrap(), None, "{:?}", std::fs::read_to_string(out.join(SAID)));
        files(out)
            .first()
            .is_some_and(|file| RaceRecord::read(file).is_ok_and(|race| !race.rounds.is_empty()))
    });
    race
}

/// `hostgap race --kube` as a user with no more rights than a race needs.
fn race(pods: &Pods, out: &Path, args: &[&str]) -> Command {
    let mut race = in_cluster(pods, &["--as", RACER]);
    race.args(["--rate", "500", "--connections", "4", "--best-effort", "--out"]).arg(out).args(args);
    race
}

fn in_cluster(pods: &Pods, options: &[&str]) -> Command {
    of_cluster(pods, "race", options)
}

/// A command of hostgap with `--kube`, the cluster's own kubectl, and options of that.
fn of_cluster(pods: &Pods, command: &str, options: &[&str]) -> Command {
    let kubectl = pods.cluster.kubectl();
    let words = std::iter::once(kubectl.get_program()).chain(kubectl.get_args());
    let words = words.map(|word| word.to_str().unwrap()).chain(options.iter().copied());
    let mut race = Command::new(HOSTGAP);
    race.args([command, "--kube", "--kubectl", &words.collect::<Vec<_>>().join(" ")]);
    race.envs(kubectl.get_envs().filter_map(|(name, value)| Some((name, value?))));
    race
}

/// Gives the racing user the rights that a race says it needs.
#[track_caller]
fn grant(pods: &Pods) {
    // Only the nodes are looked at, and nothing is created.
    let shown = text(in_cluster(pods, &[]).arg("--show-manifests"));
    let manifests: Value = serde_json::from_str(&shown).unwrap();
    let role = &manifests["items"][0];
    assert_eq!(role["kind"], "ClusterRole");
    pods.apply(role);
    pods.apply(&json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": RACER },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": role["metadata"]["name"] },
        "subjects": [{ "kind": "User", "name": RACER }] }));
}

/// The namespaces of races and looks.
fn namespaces(pods: &Pods) -> String {
    let all = pods.kubectl(&["get", "namespaces", "--output=jsonpath={.items[*].metadata.name}"]);
    all.split_whitespace().filter(|name| name.starts_with("hostgap-")).collect::<Vec<_>>().join(" ")
}

/// The records of races.
fn files(out: &Path) -> Vec<std::path::PathBuf> {
    let races = std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path().join("race.jsonl"));
    races.filter(|file| file.exists()).collect()
}

#[track_caller]
fn recorded(out: &Path) -> RaceRecord {
    RaceRecord::read(&files(out)[0]).unwrap()
}
