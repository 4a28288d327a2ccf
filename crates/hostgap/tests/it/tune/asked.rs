//! What is asked for, where, and of which link and routes.

use serde_json::{Value, json};
use testkit::shell;

use super::Ground;
use crate::turn::{check, json as read, stderr, stdout};

impl Ground {
    /// A plan from findings.
    fn of_findings(&self, document: &Value, more: &[&str]) -> Value {
        let file = self.write("findings.json", &document.to_string());
        read(&self.look("plan", &[&["--from-findings", &file, "--json"], more].concat()))
    }

    /// A second link beside `wire0`.
    fn add_other_link(&self) {
        let [home, away] = ["home", "away"].map(|name| self.world.name(name));
        shell(&format!(
            "ip -n {home} link add other0 type veth peer name other0 netns {away}
ip -n {away} link set other0 up
ip -n {home} link set other0 up"
        ));
    }
}

/// A warning about a link, or about the machine.
fn finding(code: &str, device: &str, knob: &str, value: &str) -> Value {
    let device = Some(device).filter(|device| !device.is_empty());
    json!({ "code": code, "severity": "warning", "device": device, "because_of": [],
        "proposals": [{ "knob": knob, "value": value }] })
}

/// The knobs that would change, and those that are left out.
fn knobs(plan: &Value) -> (Vec<&str>, Vec<&str>) {
    let of =
        |key: &str| plan[key].as_array().unwrap().iter().map(|one| one["knob"].as_str().unwrap()).collect();
    (of("changes"), of("skipped"))
}

#[test]
fn findings_are_for_the_link_that_they_are_about() {
    let Some(ground) = Ground::new() else { return };
    ground.add_other_link();
    let document = json!({ "findings": [
        finding("HG020", "other0", "rps_cpus", "0"),
        finding("HG024", "wire0", "gro_flush_timeout", "20000"),
        finding("HG060", "wire0", "somaxconn", "8192"),
    ] });
    let plan = ground.of_findings(&document, &[]);
    assert_eq!(plan["device"]["name"], "other0");
    assert_eq!(knobs(&plan), (vec!["rps_cpus", "somaxconn"], vec!["gro_flush_timeout"]), "{plan}");
    assert!(plan["skipped"][0]["why"].as_str().unwrap().contains("--dev wire0"), "{plan}");
    let plan = ground.of_findings(&document, &["--dev", "wire0"]);
    assert_eq!(knobs(&plan), (vec!["gro_flush_timeout", "somaxconn"], vec!["rps_cpus"]), "{plan}");
}

#[test]
fn findings_that_harm_nothing_or_follow_from_others_are_left_out() {
    let Some(ground) = Ground::new() else { return };
    let mut known = finding("HG110", "", "tcp_mtu_probing", "1");
    known["severity"] = "information".into();
    let mut consequence = finding("HG001", "", "netdev_budget", "600");
    consequence["because_of"] = json!(["HG060"]);
    let document = json!({ "findings": [finding("HG060", "", "somaxconn", "8192"), consequence, known] });
    let plan = ground.of_findings(&document, &[]);
    assert_eq!(knobs(&plan), (vec!["somaxconn"], vec!["netdev_budget", "tcp_mtu_probing"]), "{plan}");
    let why = |at: usize| plan["skipped"][at]["why"].as_str().unwrap();
    assert!(why(0).contains("a consequence of HG060") && why(1).contains("--all-findings"), "{plan}");
    let plan = ground.of_findings(&document, &["--all-findings"]);
    assert_eq!(knobs(&plan).0, ["somaxconn", "tcp_mtu_probing"], "{plan}");
}

#[test]
fn findings_of_elsewhere_are_refused() {
    let Some(ground) = Ground::new() else { return };
    let refused = |document: &Value, says: &str| {
        let file = ground.write("findings.json", &document.to_string());
        check(&ground.look("plan", &["--from-findings", &file]), 2, says);
    };
    refused(&json!({ "boot_id": "another", "findings": [] }), "they were made on another machine");
    refused(&json!({ "netns": "nowhere", "findings": [] }), "add --netns nowhere");
    let here = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    refused(&json!({ "boot_id": here.trim(), "findings": [] }), "they are not of namespace");
    refused(&json!({ "findings": [{ "proposals": [{ "value": 1 }] }] }), "missing field `knob`");
    refused(&json!({ "findings": [finding("HG060", "", "somaxcon", "1")] }), "did you mean \"somaxconn\"");
}

/// The least timeout of a data centre is not for the world, and a router's own routes are left alone.
#[test]
fn properties_are_set_at_the_routes_that_are_meant() {
    let Some(ground) = Ground::new() else { return };
    let home = ground.world.name("home");
    let destinations = |arguments: &[&str]| -> Vec<&str> {
        let plan = read(&ground.look("plan", &[arguments, &["--json"]].concat()));
        let steps = plan["changes"][0]["steps"].as_array().unwrap_or_else(|| panic!("{plan}")).clone();
        let known = ["10.9.0.0/16", "192.0.2.0/24", "2001:db8:77::/48", "2001:db8::/64", "0.0.0.0/0"];
        let of = |step: &Value| {
            let command = step["command"].as_str().unwrap();
            known.into_iter().find(|dst| command.contains(dst)).unwrap_or_else(|| panic!("{command}"))
        };
        steps.iter().map(of).collect()
    };
    shell(&format!(
        "ip -n {home} route flush dev wire0 proto kernel
ip -n {home} -6 route flush dev wire0 proto kernel"
    ));
    check(&ground.look("plan", &["--set", "rto_min=10"]), 2, "name a destination with --route");
    shell(&format!(
        "ip -n {home} route add 192.0.2.0/24 dev wire0
ip -n {home} route add 10.9.0.0/16 via 192.0.2.2
ip -n {home} -6 route add 2001:db8::/64 dev wire0
ip -n {home} -6 route add 2001:db8:77::/48 via fe80::9 dev wire0 proto ra"
    ));
    assert_eq!(destinations(&["--set", "rto_min=10"]), ["10.9.0.0/16", "192.0.2.0/24", "2001:db8::/64"]);
    assert_eq!(destinations(&["--set", "rto_min=10", "--route", "10.9.0.0/16"]), ["10.9.0.0/16"]);
    assert_eq!(destinations(&["--set", "rto_min=10", "--route", "0.0.0.0/0"]), ["0.0.0.0/0"]);
    check(
        &ground.look("plan", &["--set", "initcwnd=20", "--route", "10.8.0.0/16"]),
        2,
        "no route to 10.8.0.0/16",
    );
    let before = ground.dump();
    let applied =
        ground.apply(&["--set", "initcwnd=20", "--set", "route_mtu=1300", "--route", "10.9.0.0/16"]);
    check(&applied, 0, "");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
    let applied = ground.apply(&["--set", "initcwnd=20"]);
    check(&applied, 0, "");
    let told = stdout(&applied) + &stderr(&applied);
    assert!(told.contains("2001:db8:77::/48: a router announced it"), "{told}");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
}

#[test]
fn what_is_larger_at_one_queue_stays_so() {
    let Some(ground) = Ground::new() else { return };
    let profile = ground.write(
        "flows.toml",
        "schema = 1\nabout = \"x\"\n[[set]]\nknob = \"rps_flow_cnt\"\nvalue = 1024\nat_least = true\nwhy = \"x\"\n",
    );
    let sysfs = linux::sysfs::NetSysfs::open(&ground.netns()).unwrap();
    let wire = linux::IfName::new("wire0").unwrap();
    sysfs.write_queue_flows(&wire, 1, 4096).unwrap();
    check(&ground.apply(&[&profile]), 0, "");
    let flows = [0, 1].map(|rx| sysfs.read_queue_flows(&wire, rx).unwrap());
    assert_eq!(flows, [1024, 4096]);
    check(&ground.tune("rollback", &[]), 0, "");
}
