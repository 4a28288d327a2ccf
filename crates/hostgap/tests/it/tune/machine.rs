//! A whole machine with a network card: our virtual machine.

use std::process::{Command, Output, Stdio};

use linux::Netns;
use linux::latency::{self, LatencyLimit};
use testkit::{dump, require_root, skip};

use crate::sandbox::{HOSTGAP, check, json, stdout, until};

pub(super) fn tune(state: &std::path::Path, verb: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(HOSTGAP);
    command.args(["tune", verb, "--state"]).arg(state).args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

/// Every profile of ours, each applied and rolled back by itself, on the machine and its card.
#[test]
fn every_profile_is_applied_to_a_machine_and_taken_back() {
    if !require_root() {
        return;
    }
    if std::env::var_os("HOSTGAP_VM").is_none() {
        return skip("it sets what the whole machine shares, and needs a virtual machine of ours");
    }
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path();
    // The kernel loads the module by itself and keeps it. Only that is not rolled back.
    testkit::shell("modprobe tcp_bbr");
    testkit::shell(
        "ip link set eth0 up; ip address add 192.0.2.1/24 dev eth0; ip route add default via 192.0.2.2",
    );
    let netns = Netns::current().unwrap();
    let before = dump(&netns);
    for (name, _) in tune::PROFILES {
        let card = ["--set", "channels=1", "--set", "irq_affinity=0", "--set", "threaded_napi=1"];
        let applied = tune(state, "apply", &[&[*name], card.as_slice()].concat());
        check(&applied, 0, "on this host, link eth0 (virtio_net)");
        let standing = json(&tune(state, "status", &["--json"]))["standing"].clone();
        let steps = standing["steps"].as_array().unwrap();
        assert!(steps.len() >= 4 && steps.iter().all(|step| step["as_set"] == true), "{name}: {standing}");
        assert!(!before.diff(&dump(&netns)).is_empty(), "{name} changed nothing");
        println!("{name}: {} steps", steps.len());
        if *name == "latency" {
            // The limit is still held after the confirmation, and ends with the rollback. It must not end by itself:
            // only time can show that.
            check(&tune(state, "confirm", &[]), 0, "");
            std::thread::sleep(std::time::Duration::from_millis(300));
            assert_eq!(latency::limit().unwrap(), LatencyLimit::Micros(3));
            let printed = stdout(&tune(state, "status", &[]));
            assert!(printed.contains("a limit of 3 µs on the latency of CPUs is held"), "{printed}");
        }
        check(&tune(state, "rollback", &[]), 0, "");
        before.assert_same(&dump(&netns), &format!("after {name}"));
        until("the limit has ended", || latency::limit().unwrap() == LatencyLimit::None);
    }
    let machine = ["--set", "rmem_max=8388608", "--set", "netdev_budget=600", "--confirm-within", "3s"];
    check(&tune(state, "apply", &machine), 0, "");
    until("the tuning is taken back", || {
        stdout(&tune(state, "status", &[])).contains("No tuning is active.")
    });
    before.assert_same(&dump(&netns), "after the confirmation that did not come");
}
