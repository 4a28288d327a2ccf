//! From a finding to a setting and back: `tune` applies what `doctor` proposes.

use std::net::UdpSocket;

use linux::IfName;
use linux::sysfs::{NetSysfs, Queue};
use serde_json::Value;
use testkit::{Flood, dear_rules, shell, skip};

use super::Ground;
use crate::sandbox::{HOSTGAP, check, json, stdout};

/// How many windows may pass before one shows what lasts.
const WINDOWS: usize = 10;

impl Ground {
    /// Runs `hostgap doctor` in the namespace and returns its findings.
    fn findings(&self, time: &str) -> Value {
        let name = self.world.name("home");
        let mut command = std::process::Command::new(HOSTGAP);
        command.args(["doctor", "--netns", name.as_str(), "--for", time, "--json"]);
        json(&command.output().unwrap())
    }

    /// Applies the proposals and confirms them.
    fn heed(&self, findings: &Value, more: &[&str]) {
        let file = self.write("findings.json", &findings.to_string());
        check(&self.apply(&[&["--from-findings", &file], more].concat()), 0, "");
        check(&self.tune("confirm", &[]), 0, "");
    }
}

pub(super) fn of<'a>(findings: &'a Value, code: &str) -> Option<&'a Value> {
    findings["findings"].as_array().unwrap().iter().find(|finding| finding["code"] == code)
}

#[test]
fn a_limit_of_an_old_guide_is_raised_and_comes_back() {
    let Some(ground) = Ground::new() else { return };
    ground.set_sysctl("net/ipv4/tcp_rmem", "4096 16384 65536");
    let findings = ground.findings("300ms");
    let finding = of(&findings, "HG110").unwrap_or_else(|| panic!("{findings}"));
    let proposed = finding["proposals"][0]["value"].as_str().unwrap().to_owned();
    ground.heed(&findings, &["--all-findings"]);
    assert_eq!(ground.sysctl("net/ipv4/tcp_rmem").split_whitespace().collect::<Vec<_>>().join(" "), proposed);
    let after = ground.findings("300ms");
    assert!(of(&after, "HG110").is_none(), "{after}");
    check(&ground.tune("rollback", &[]), 0, "");
    assert_eq!(ground.sysctl("net/ipv4/tcp_rmem"), "4096\t16384\t65536");
}

/// Hatena's case: a single queue's CPU does all the work until RPS moves it to another CPU.
#[test]
fn a_single_queue_is_found_and_steered() {
    if std::env::var_os("HOSTGAP_VM").is_none() {
        return skip("a CPU's load concerns the whole machine; it needs a virtual machine of ours");
    }
    let Some(ground) = Ground::new() else { return };
    let [home, away] = ["home", "away"].map(|name| ground.world.name(name));
    shell(&format!(
        "ip -n {home} link del wire0
ip -n {home} link add wire0 type veth peer name wire0 netns {away}
ip -n {away} link set wire0 up
ip -n {home} link set wire0 up
ip -n {home} address add 192.0.2.1/24 dev wire0
ip -n {away} address add 192.0.2.2/24 dev wire0
ip -n {home} route add default via 192.0.2.2"
    ));
    dear_rules(&ground.netns(), 2000);
    let before = ground.dump();
    let socket = ground.world.open("away").run(|| UdpSocket::bind("192.0.2.2:0")).unwrap().unwrap();
    // Nothing listens: receiving is the expensive part.
    let flood = Flood::from(0, move || drop(socket.send_to(&[0; 100], "192.0.2.1:9")));
    // A CPU of an emulated machine waits for one of the host's, and in some windows too long to be full.
    let findings = (0..WINDOWS).map(|_| ground.findings("3s")).find(|findings| {
        let first = &findings["findings"][0];
        (&first["code"], &first["severity"]) == (&"HG020".into(), &"warning".into())
    });
    let findings = findings.expect("a window shows the single queue before all else");
    ground.heed(&findings, &[]);
    let wire = IfName::new("wire0").unwrap();
    let steered = NetSysfs::open(&ground.netns()).unwrap().read_queue_cpus(&wire, Queue::Rx(0)).unwrap();
    assert_eq!(steered.to_string(), "1");
    let after = ground.findings("3s");
    assert!(of(&after, "HG020").is_none(), "{after}");
    drop(flood);
    let back = ground.tune("rollback", &[]);
    check(&back, 0, "");
    before.assert_same(&ground.dump(), &format!("after rollback: {}", stdout(&back)));
}
