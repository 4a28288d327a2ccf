//! The settings that profiles, findings and options request, and the link and routes that they are for.

use serde_json::{Value, json};
use testkit::shell;

use super::Ground;
use crate::sandbox::{check, json as read, stderr, stdout};

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

/// A warning about a link, or about the machine if `device` is empty.
fn finding(code: &str, device: &str, knob: &str, value: &str) -> Value {
    let device = Some(device).filter(|device| !device.is_empty());
    json!({ "code": code, "severity": "warning", "device": device, "because_of": [],
        "proposals": [{ "knob": knob, "value": value }] })
}

/// The knobs that would change, and those left out.
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
    assert!(why(0).contains("caused by HG060") && why(1).contains("--all-findings"), "{plan}");
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
    refused(&json!({ "boot_id": here.trim(), "findings": [] }), "they are not about namespace");
    refused(&json!({ "findings": [{ "proposals": [{ "value": 1 }] }] }), "missing field `knob`");
    refused(&json!({ "findings": [finding("HG060", "", "somaxcon", "1")] }), "did you mean \"somaxconn\"");
}

/// The short timeout of a data centre does not suit routes to the internet, and routes announced by a router
/// are left alone.
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
ip -n {home} -6 route add 2001:db8:77::/48 via fe80::9 dev wire0 proto ra
ip -n {home} -6 address add 2001:db8:99::1/64 dev wire0 nodad valid_lft 3600 preferred_lft 3600"
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
    let printed = stdout(&applied) + &stderr(&applied);
    // The second is the kernel's own, to the prefix of an address with a limited lifetime.
    for announced in ["2001:db8:77::/48", "2001:db8:99::/64"] {
        assert!(printed.contains(announced) && printed.contains("was announced by a router"), "{printed}");
    }
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
}

/// Of two default routes it is not clear which is meant.
#[test]
fn routes_with_rivals_are_passed_over_by_name() {
    let Some(ground) = Ground::new() else { return };
    let home = ground.world.name("home");
    shell(&format!("ip -n {home} route add default via 192.0.2.2 dev wire0 metric 900"));
    let plan = ground.look("plan", &["--set", "initcwnd=20", "--json"]);
    let plan = read(&plan);
    let why = plan["skipped"][0]["why"].as_str().unwrap_or_else(|| panic!("{plan}"));
    assert!(why.starts_with("there are several routes to 0.0.0.0/0"), "{plan}");
    let commands = plan["changes"][0]["steps"].to_string();
    assert!(commands.contains("192.0.2.0/24") && !commands.contains("0.0.0.0/0"), "{plan}");
    let named = ground.look("plan", &["--set", "initcwnd=20", "--route", "0.0.0.0/0"]);
    check(&named, 2, "there are several routes to 0.0.0.0/0");
}

#[test]
fn what_is_larger_at_one_route_stays_so() {
    let Some(ground) = Ground::new() else { return };
    let home = ground.world.name("home");
    shell(&format!("ip -n {home} route add 10.9.0.0/16 via 192.0.2.2 initcwnd 30"));
    let before = ground.dump();
    let profile = ground.write(
        "windows.toml",
        "schema = 1\nabout = \"x\"\n[[set]]\nknob = \"initcwnd\"\nvalue = 20\nat_least = true\nwhy = \"x\"\n",
    );
    check(&ground.apply(&[&profile]), 0, "");
    let routes = shell(&format!("ip -n {home} route"));
    let of =
        |dst: &str| routes.lines().find(|line| line.starts_with(dst)).unwrap_or_else(|| panic!("{routes}"));
    assert!(of("default").contains("initcwnd 20") && of("10.9.0.0/16").contains("initcwnd 30"), "{routes}");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
}

/// RFS of a queue has no effect without the machine's table, which a tuning of a namespace does not set.
#[test]
fn half_of_rfs_is_not_set() {
    let Some(ground) = Ground::new() else { return };
    let plan = read(&ground.look("plan", &["many-connections", "--json"]));
    let (changes, skipped) = knobs(&plan);
    for knob in ["rps_sock_flow_entries", "rps_flow_cnt"] {
        assert!(skipped.contains(&knob) && !changes.contains(&knob), "{plan}");
    }
    let half = ground.look("plan", &["--set", "rps_flow_cnt=4096"]);
    check(&half, 2, "set rps_sock_flow_entries first, without --netns");
    check(&ground.look("plan", &["--set", "rps_flow_cnt=0"]), 0, "");
}

/// A profile does not replace one qdisc for each queue by a single one with one lock. A user may request it
/// by name.
#[test]
fn queues_with_disciplines_of_their_own_keep_them() {
    let Some(ground) = Ground::new() else { return };
    let home = ground.world.name("home");
    shell(&format!("ip -n {home} tuntap add dev tap0 mode tap multi_queue; ip -n {home} link set tap0 up"));
    let profile = ground.write(
        "queue.toml",
        "schema = 1\nabout = \"x\"\n[[set]]\nknob = \"qdisc\"\nvalue = \"pfifo\"\nwhy = \"x\"\n",
    );
    let plan = read(&ground.look("plan", &[&profile, "--dev", "tap0", "--json"]));
    assert_eq!(knobs(&plan), (vec![], vec!["qdisc"]), "{plan}");
    assert!(plan["skipped"][0]["why"].as_str().unwrap().contains("send queues of tap0"), "{plan}");
    let plan = read(&ground.look("plan", &["--set", "qdisc=pfifo", "--dev", "tap0", "--json"]));
    assert_eq!(knobs(&plan).0, ["qdisc"], "{plan}");
}

/// The kernel would overwrite the link's MTU, and no rollback can restore what a router announced.
#[test]
fn a_link_with_an_mtu_of_ipv6_s_own_keeps_its_mtu() {
    let Some(ground) = Ground::new() else { return };
    ground.set_sysctl("net/ipv6/conf/wire0/mtu", "1400");
    check(&ground.look("plan", &["--set", "mtu=1300"]), 2, "IPv6 has an MTU of its own on wire0, 1400");
    check(&ground.look("plan", &["--set", "mtu=1500"]), 0, "");
}

/// Settings that no command can make are named in a comment instead.
#[test]
fn commands_name_what_they_leave_out() {
    let Some(ground) = Ground::new() else { return };
    let printed = stdout(&ground.look("show-commands", &["latency"]));
    assert!(printed.lines().any(|line| line.starts_with("# cpu_dma_latency = ")), "{printed}");
}
