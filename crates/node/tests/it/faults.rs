//! ADD fails at each of its steps in turn: nothing of it is left, and the next one works.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::path::Path;

use node::Home;
use node::plugin::{Reply, call};
use plan::Fault;
use serde_json::{Value, json};
use testkit::{Dump, quick_dump};

use crate::attachments::can_run;
use crate::limits::bandwidth;
use crate::scene::{Scene, check_failure, conf, with};

/// More than any plan has.
const STEPS_MAX: usize = 200;

/// All that an attachment of `a` could leave behind.
struct Left {
    node: Dump,
    container: Dump,
    /// The units of attachments and of networks, the claims, and what is pinned.
    files: Vec<String>,
    reserved: usize,
}

impl Left {
    fn by(scene: &Scene) -> Left {
        let run = scene.run_dir();
        let places = [
            run.join("cni-attachments"),
            run.join("cni-networks"),
            Path::new("/run/hostgap/claims").to_owned(),
            Path::new("/run/hostgap-bpf").to_owned(),
        ];
        let mut files: Vec<String> = places.iter().flat_map(|place| names(place)).collect();
        files.sort();
        Left {
            node: scene.dump(),
            container: quick_dump(&scene.world.open("a")),
            files,
            reserved: scene.reserved("pods"),
        }
    }

    #[track_caller]
    fn assert_same(&self, scene: &Scene, when: &str) {
        let now = Left::by(scene);
        self.node.assert_same(&now.node, when);
        self.container.assert_same(&now.container, &format!("{when}, in the container"));
        assert_eq!((&self.files, self.reserved), (&now.files, now.reserved), "{when}");
    }
}

/// What is in a directory, but for the file that is locked.
fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().path().display().to_string());
    names.filter(|name| !name.ends_with("lock")).collect()
}

/// ADD for `a` on a home where this fault strikes.
fn add(scene: &Scene, conf: &Value, fault: Fault) -> Reply {
    let home: Home = scene.home().with_fault(fault);
    let netns = scene.netns("a");
    let variable = |name: &str| match name {
        "CNI_COMMAND" => Some("ADD".to_owned()),
        "CNI_CONTAINERID" => Some("a".to_owned()),
        "CNI_NETNS" => Some(netns.clone()),
        "CNI_IFNAME" => Some("eth0".to_owned()),
        _ => None,
    };
    scene.world.open("node").run(|| call(&home, "hostgap", variable, &conf.to_string())).unwrap()
}

/// Lets each step of ADD fail, before it is done and behind it, until there is no further one and ADD succeeds; how
/// many there were. Each ADD gets a step further than the one before, so what failed is in no later one's way. `clear`
/// is called where ADD leaves what it shares with later ones.
fn fail_at_each_step(scene: &Scene, conf: &Value, clear: impl Fn()) -> usize {
    let before = Left::by(scene);
    let strikes = |fault: Fault| {
        let reply = add(scene, conf, fault);
        if reply.is_success {
            let result = reply.printed.clone().unwrap();
            scene.succeed("CHECK", "a", &with(conf.clone(), "prevResult", result));
            scene.succeed("DEL", "a", conf);
        } else {
            check_failure(&reply, 100, "a fault was injected");
        }
        clear();
        before.assert_same(scene, &format!("after {fault:?}"));
        !reply.is_success
    };
    strikes(Fault::InClaim);
    for step in 0..STEPS_MAX {
        if !strikes(Fault::BeforeStep(step)) {
            return step;
        }
        assert!(strikes(Fault::AfterStep(step)), "step {step} is there");
    }
    panic!("there is always another step");
}

/// With all that a container may ask for: what is shared by the containers of a network is made by the
/// first, and then stands.
#[track_caller]
fn check(attach: &str, asked: Value) {
    let Some(scene) = Scene::new() else { return };
    if !can_run(attach) {
        return;
    }
    for name in ["first", "a"] {
        let _ = scene.container(name);
    }
    let conf = with(conf(attach), "runtimeConfig", asked);
    let clear = || drop(scene.remove_unused());
    let all = fail_at_each_step(&scene, &conf, clear);
    scene.add("first", &self::conf(attach));
    let own = fail_at_each_step(&scene, &conf, || {});
    assert!(own > 3 && all >= own, "{own} steps of {all}");
    scene.succeed("DEL", "first", &conf);
}

fn limits() -> Value {
    bandwidth(&["ingress", "egress"])
}

fn ports() -> Value {
    json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }])
}

#[test]
fn bridge() {
    check("bridge", json!({ "bandwidth": limits(), "portMappings": ports() }));
}

#[test]
fn ptp() {
    check("ptp", json!({ "bandwidth": limits(), "portMappings": ports() }));
}

#[test]
fn ebpf() {
    check("ebpf", json!({ "bandwidth": limits() }));
}

#[test]
fn macvlan() {
    check("macvlan", json!({}));
}
