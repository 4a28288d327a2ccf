//! Plugins of the CNI project, and scripts that act as plugins, attach the lab's pods.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lab::{BuiltTopology, CniNetwork, Home, LabError, NodeCpus, PluginDirs, Shape, family};
use linux::features::Facts;
use load::{Run, Schedule, Wait};
use plan::Unit;
use serde_json::Value;

use crate::standing::{left, staffing};

fn shape(network: CniNetwork, id: &str, ipv6: bool) -> Shape {
    Shape {
        prefix: format!("hg-{id}-cni"),
        path: &datapath::CNI,
        placement: record::Placement::TwoNodes,
        in_container: record::Side::Both,
        cni: Some(Arc::new(network)),
        mtu_bytes: 1500,
        cpus: NodeCpus::split(&linux::cpu::allowed().unwrap()),
        spare: linux::CpuSet::default(),
        families: ::lab::families(),
        family: family(ipv6),
        steered: true,
        cards: None,
        wires: lab::Wires::default(),
        settings: tune::Settings::default(),
        proxies: record::Proxies::default(),
        stack: record::Stack::default(),
        filter: None,
        rdma: None,
        flood: None,
        protocol: datapath::Protocol::Tcp,
        machines: None,
    }
}

fn build(network: CniNetwork, claim: &Unit, ipv6: bool) -> Result<BuiltTopology, LabError> {
    BuiltTopology::build("cni:x", shape(network, claim.id(), ipv6), &staffing(), &claim.dir().join("cni-x"))
}

/// What plugins may leave on a machine: state, locks, and mounts over the directories that they get here.
fn machine() -> (BTreeSet<PathBuf>, Vec<String>) {
    let dirs = ["/var/lib/cni", "/var/lib/cni/networks", "/run/cni", "/var/log/cni"].map(Path::new);
    let entries = dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten();
    let mut files: BTreeSet<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let alone = dirs.into_iter().chain([Path::new("/run/xtables.lock")]);
    files.extend(alone.filter(|path| path.exists()).map(Path::to_path_buf));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains("/cni")).map(str::to_owned).collect();
    (files, mounts)
}

#[track_caller]
fn answers(built: &mut BuiltTopology, requests: u64) {
    built.connect(100, 3).unwrap();
    let run = Run {
        drain: Duration::from_secs(5),
        wait: Wait::Sleep,
        ..Run::new(Schedule::Constant { rate_per_s: 1000.0 }, Duration::from_millis(requests))
    };
    let outcome = load::run(built.clients(100), &run).unwrap();
    assert_eq!(outcome.answered, requests, "{outcome:?}");
}

#[test]
fn the_plugins_of_the_scenarios_answer_over_both_families_and_go() {
    let facts = linux::features::probe().unwrap();
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    let before = machine();
    for name in ["ptp", "bridge", "macvlan", "ipvlan"] {
        let file = Path::new("../../scenarios/cni").join(name).with_extension("conflist");
        let network = CniNetwork::load(&file, &PluginDirs::default()).unwrap();
        if let Some(unmet) = facts.unmet(&network.configuration.needs()).first() {
            testkit::skip(&format!("{name}: {unmet}"));
            continue;
        }
        for ipv6 in [false, true] {
            let mut built = build(network.clone(), &claim, ipv6).unwrap();
            let expected = if ipv6 { "fd00:244:0:2::2" } else { "10.244.2.2" };
            assert_eq!(built.topology.address.ip().to_string(), expected, "{name}");
            answers(&mut built, 40);
            // The lease lies in the candidate's directory and is removed with it.
            let node = format!("cni-x/cni/hg-{}-cni-n2/var-lib/cni/networks/{name}", claim.id());
            assert!(claim.dir().join(node).join("10.244.2.2").exists());
            built.take_down().unwrap();
            assert_eq!(left(claim.id()), []);
        }
    }
    assert_eq!(
        std::fs::read_dir(claim.dir()).unwrap().count(),
        2,
        "only the owner file and its lock are left"
    );
    assert_eq!(machine(), before);
    claim.end().unwrap();
}

/// A directory of scripts that act as plugins. Each logs its input after a line with its name and verb.
struct Scripts {
    dir: tempfile::TempDir,
    /// Plugins write to `/run/cni` of their node. This link keeps the log after the node is gone.
    kept: PathBuf,
}

impl Scripts {
    fn new() -> Scripts {
        let dir = tempfile::tempdir().unwrap();
        Scripts { kept: dir.path().join("kept"), dir }
    }

    fn plugin(&self, name: &str, body: &str) {
        let path = self.dir.path().join(name);
        let log =
            "{ echo \"$0 $CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS.\"; cat; echo; }";
        let head = format!("#!/bin/sh\nset -e\n{log} >>/run/cni/calls\n");
        std::fs::write(&path, format!("{head}{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn network(&self, plugins: &str) -> CniNetwork {
        let file = self.dir.path().join("x.conflist");
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"x","plugins":{plugins}}}"#);
        std::fs::write(&file, text).unwrap();
        let dirs = format!("{}:{}", self.dir.path().display(), PluginDirs::USUAL);
        CniNetwork::load(&file, &PluginDirs::parse(&dirs)).unwrap()
    }

    /// The log of a node's plugins: for each call its line and its input.
    fn calls(&self, node: &Path) -> Vec<(String, Value)> {
        let log = std::fs::read_to_string(node.join("run/cni/calls")).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        let calls = lines.chunks(2).map(|call| {
            let line = call[0].replace(&format!("{}/", self.dir.path().display()), "");
            (line, serde_json::from_str(call[1]).unwrap())
        });
        calls.collect()
    }
}

/// Attaches pods with real packets. The script calls ptp, as a plugin that wraps another does.
const WRAPPED: &str =
    "sed -n '$p' /run/cni/calls | sed 's/\"type\":\"first\"/\"type\":\"ptp\"/' | /usr/lib/cni/ptp";
const LIST: &str = r#"[
    {"type":"first","ipam":{"type":"host-local","subnet":"usePodCidr","routes":[{"dst":"0.0.0.0/0"}]}},
    {"type":"second","n":"${NODE}"}]"#;

#[test]
fn a_chain_is_called_in_order_with_each_result_and_back() {
    let scripts = Scripts::new();
    scripts.plugin("first", WRAPPED);
    // Like a plugin that adds nothing: it passes the result on with a field of its own.
    scripts.plugin(
        "second",
        "test $CNI_COMMAND = DEL || sed -n '$p' /run/cni/calls | sed 's/.*\"prevResult\":\\({.*}\\),\"type\".*/\\1/; s/{/{\"word\":\"kept\",/'",
    );
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    let mut built = build(scripts.network(LIST), &claim, false).unwrap();
    answers(&mut built, 10);
    let prefix = format!("hg-{}-cni", claim.id());
    let node = claim.dir().join("cni-x/cni").join(format!("{prefix}-n2"));
    let added = scripts.calls(&node);
    let line = |call: &str| format!("{call} {prefix}-server /run/netns/{prefix}-server eth0 .");
    let lines: Vec<&String> = added.iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [&line("first ADD"), &line("second ADD")]);
    assert_eq!((&added[0].1["name"], added[0].1.get("prevResult")), (&"x".into(), None));
    assert_eq!((&added[1].1["n"], &added[1].1["cniVersion"]), (&2.into(), &"1.0.0".into()));
    assert_eq!(added[1].1["prevResult"]["ips"][0]["address"], "10.244.2.2/24");

    // The log is removed with the directory. A hard link keeps it, so that the last calls can be read.
    std::fs::hard_link(node.join("run/cni/calls"), &scripts.kept).unwrap();
    built.take_down().unwrap();
    let node = scripts.dir.path().join("node");
    std::fs::create_dir_all(node.join("run/cni")).unwrap();
    std::fs::rename(&scripts.kept, node.join("run/cni/calls")).unwrap();
    let calls = scripts.calls(&node);
    let lines: Vec<&String> = calls[2..].iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [&line("second DEL"), &line("first DEL")]);
    for (line, config) in &calls[2..] {
        assert_eq!(config["prevResult"]["word"], "kept", "{line}");
    }
    assert_eq!(left(claim.id()), []);
}

#[test]
fn plugins_of_what_was_left_standing_are_called_at_its_end() {
    let scripts = Scripts::new();
    scripts.plugin("first", WRAPPED);
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path());
    let claim = home.claim().unwrap();
    let id = claim.id().to_owned();
    let one = r#"[{"type":"first","ipam":{"type":"host-local","subnet":"usePodCidr","routes":[{"dst":"0.0.0.0/0"}]}}]"#;
    let built = build(scripts.network(one), &claim, false).unwrap();
    let calls = claim.dir().join(format!("cni-x/cni/hg-{id}-cni-n1/run/cni/calls"));
    std::fs::hard_link(calls, &scripts.kept).unwrap();
    built.leave_standing();
    claim.leave_standing("cni:x").unwrap();
    assert_eq!(left(&id).len(), 4);
    let cleaned = home.remove(&id).unwrap();
    assert_eq!(cleaned.failures, Vec::<String>::new());
    assert_eq!(left(&id), []);
    let kept = std::fs::read_to_string(&scripts.kept).unwrap();
    assert!(
        kept.contains(" ADD hg-") && kept.contains(" DEL hg-") && kept.contains("\"prevResult\""),
        "{kept}"
    );
    assert_eq!(home.remains().unwrap(), []);
}

/// Builds a topology that cannot work. Returns the error, and checks that nothing is left.
#[track_caller]
fn fails(scripts: &Scripts, plugins: &str) -> String {
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    let before = machine().1;
    let error = build(scripts.network(plugins), &claim, false).err().unwrap();
    assert_eq!(left(claim.id()), []);
    assert_eq!(
        std::fs::read_dir(claim.dir()).unwrap().count(),
        2,
        "only the owner file and its lock are left"
    );
    assert_eq!(machine().1, before);
    error.to_string()
}

#[test]
fn a_plugin_that_fails_is_quoted_and_all_is_taken_down() {
    let scripts = Scripts::new();
    scripts.plugin("first", WRAPPED);
    let error = r#"{"cniVersion":"1.0.0","code":42,"msg":"no more addresses","details":"ask for a /23"}"#;
    scripts.plugin("second", &format!("[ $CNI_COMMAND = DEL ] || {{ echo '{error}'; exit 1; }}"));
    let expected =
        "do ADD of second for the client's pod in cni:x: no more addresses: ask for a /23 (code 42)";
    assert_eq!(fails(&scripts, LIST), expected);

    scripts.plugin("second", "echo 'cannot open a door' >&2; exit 3");
    let error = fails(&scripts, LIST);
    assert!(error.ends_with("it ended with exit status: 3: cannot open a door"), "{error}");
    scripts.plugin("second", "kill -9 $$");
    // Process 1 of a PID namespace ignores that signal from inside.
    assert!(fails(&scripts, LIST).contains("printed no result"));
    scripts.plugin("second", "echo '{\"ips\":[{\"address\":\"everywhere\"}]}'");
    assert!(fails(&scripts, LIST).contains("\"everywhere\" where an address with a prefix length"));
    // Plugins may not write the machine's files.
    scripts.plugin("second", "echo x >/etc/hgt-cni");
    assert!(fails(&scripts, LIST).contains("Read-only file system"));
    // The words of host-local itself.
    let nothing = r#"[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.244.0.0/33"}}]"#;
    assert!(fails(&scripts, nothing).contains("invalid CIDR address: 10.244.0.0/33"));
}

#[test]
fn addresses_that_cannot_be_called_are_explained() {
    let scripts = Scripts::new();
    let ptp = |subnet: &str| {
        format!(
            r#"[{{"type":"ptp","ipam":{{"type":"host-local","subnet":"{subnet}","routes":[{{"dst":"0.0.0.0/0"}}]}}}}]"#
        )
    };
    let error = fails(&scripts, &ptp("10.22.0.0/16"));
    assert!(
        error.contains("gave both pods the address 10.22.0.2") && error.contains("usePodCidr"),
        "{error}"
    );
    let error = fails(&scripts, &ptp("10.22.${NODE}.0/24"));
    assert!(error.contains("10.22.2.2, where the client cannot call it"), "{error}");
    assert!(error.contains("route 10.244.1.0/24 and 10.244.2.0/24 to each other"), "{error}");
    let error = fails(&scripts, &ptp("usePodCidrIPv6"));
    assert!(
        error.contains("did not give both pods an IPv4 address (the client's: fd00:244:0:1::2/64"),
        "{error}"
    );
    scripts.plugin("none", "echo '{\"cniVersion\":\"1.0.0\"}'");
    assert!(fails(&scripts, r#"[{"type":"none"}]"#).contains("(the client's: none; the server's: none)"));
}

#[test]
fn what_kernels_lack_for_known_plugins_is_known() {
    let lacks = |feature| Facts { kernel: "6.1".into(), missing: [(feature, "no".to_owned())].into() };
    let scripts = Scripts::new();
    let configuration = scripts.network(r#"[{"type":"macvlan"},{"type":"bridge"}]"#).configuration;
    for feature in configuration.needs() {
        assert_eq!(lacks(feature).unmet(&configuration.needs()).len(), 1);
    }
    assert_eq!(configuration.needs().len(), 3);
}
