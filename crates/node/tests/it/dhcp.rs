//! Addresses that a server on the wire leases, by the CNI project's plugin `dhcp` and its daemon.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use node::plugin::Reply;
use serde_json::{Value, json};

use crate::attachments::can_run;
use crate::scene::{PATIENCE, Scene, address, check_failure, works};

/// Where Debian has the CNI project's plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// A process that ends with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The plugin's daemon on the node.
struct Wire {
    scene: Scene,
    directory: tempfile::TempDir,
    _daemon: Daemon,
}

impl Wire {
    /// `None`, with the skip recorded, if something that it takes is missing.
    fn new() -> Option<Wire> {
        let has_server = Command::new("dnsmasq").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !has_server || !Path::new(PLUGINS).join("dhcp").exists() {
            testkit::skip(
                "dnsmasq or the plugin dhcp is missing: packages dnsmasq-base, containernetworking-plugins",
            );
            return None;
        }
        let scene = Scene::new()?;
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("dhcp.sock");
        let daemon = start(
            Command::new(Path::new(PLUGINS).join("dhcp"))
                .args(["daemon", "-socketpath"])
                .arg(&socket)
                // A client without an answer does not wait as long as usual.
                .args(["-timeout", "2s", "-resendmax", "2s"]),
        );
        await_that("the plugin's daemon listens", || socket.exists());
        Some(Wire { scene, directory, _daemon: daemon })
    }

    /// The server on the wire, which leases two addresses and tells of a router.
    fn server(&self) -> Daemon {
        let far = self.scene.world.name("far").to_string();
        let server = start(
            Command::new("ip")
                .args(["netns", "exec", &*far, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null"])
                .args([
                    "--port=0",
                    "--user=root",
                    "--pid-file=",
                    "--no-ping",
                    "--interface=wire1",
                    "--bind-interfaces",
                ])
                .args(["--dhcp-authoritative", "--dhcp-range=192.0.2.100,192.0.2.101,255.255.255.0,1h"])
                .arg("--dhcp-option=option:router,192.0.2.2")
                .arg(format!("--dhcp-leasefile={}", self.leases().display())),
        );
        await_that("the server writes its leases", || self.leases().exists());
        server
    }

    fn leases(&self) -> PathBuf {
        self.directory.path().join("leases")
    }

    /// Whether the server has leased an address.
    fn is_leased(&self, address: &str) -> bool {
        let text = fs::read_to_string(self.leases()).unwrap_or_default();
        text.lines().any(|line| line.split_whitespace().nth(2) == Some(address))
    }

    fn conf(&self, attach: &str) -> Value {
        json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "hostgap", "attach": attach,
            "ipam": { "type": "dhcp", "daemonSocketPath": self.directory.path().join("dhcp.sock") },
        })
    }

    fn call(&self, command: &str, container: &str, conf: &Value) -> Reply {
        let netns = self.scene.netns(container);
        let variables = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", container),
            ("CNI_NETNS", &*netns),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", PLUGINS),
        ];
        self.scene.call_with(&variables, conf)
    }
}

fn start(command: &mut Command) -> Daemon {
    Daemon(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

#[track_caller]
fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what} not within {PATIENCE:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_server_on_the_wire_leases_an_address_and_gets_it_back() {
    if !can_run("macvlan") {
        return;
    }
    let Some(wire) = Wire::new() else { return };
    let (scene, conf) = (&wire.scene, wire.conf("macvlan"));
    let _ = (scene.container("a"), scene.container("b"));
    let server = wire.server();
    let before = scene.dump();
    let result = works(wire.call("ADD", "a", &conf));
    let leased = address(&result, 0);
    assert!(result["ips"][0]["address"].as_str().unwrap().ends_with("/24"), "{result}");
    assert!(wire.is_leased(&leased), "{result}");
    assert_eq!(result["ips"][0]["gateway"], "192.0.2.2");
    let is_default = |route: &Value| route["dst"] == "0.0.0.0/0" && route["gw"] == "192.0.2.2";
    assert!(result["routes"].as_array().unwrap().iter().any(is_default), "{result}");
    scene.assert_reaches("a", "192.0.2.2");
    let mut checked = conf.clone();
    checked["prevResult"] = result.clone();
    works(wire.call("CHECK", "a", &checked));
    // ADD of what stands is refused, and takes nothing from it.
    check_failure(&wire.call("ADD", "a", &conf), 4, "is attached to pods already");
    assert!(wire.is_leased(&leased));
    let other = works(wire.call("ADD", "b", &conf));
    assert_ne!(address(&other, 0), leased);
    scene.exchange("a", "b", format!("{leased}:80").parse().unwrap());

    for container in ["a", "b"] {
        works(wire.call("DEL", container, &conf));
    }
    for address in [&leased, &address(&other, 0)] {
        await_that("the server has the address back", || !wire.is_leased(address));
    }
    works(wire.call("DEL", "a", &conf));
    assert_eq!(scene.remove_unused().removed, ["pods"]);
    before.assert_same(&scene.dump(), "after DEL");

    // Nobody answers.
    drop(server);
    let unanswered = wire.call("ADD", "a", &conf);
    assert!(!unanswered.is_success, "{unanswered:?}");
    assert!(unanswered.printed.unwrap()["msg"].as_str().unwrap().starts_with("dhcp: "));
    before.assert_same(&scene.dump(), "after an ADD without an answer");
    assert_eq!(testkit::shell(&format!("ip -n {} -br link", scene.world.name("a"))).lines().count(), 1);
}

#[test]
fn where_no_server_hears_the_container_it_is_refused() {
    let Some(wire) = Wire::new() else { return };
    let _ = wire.scene.container("a");
    let says = "`ipam.type` is \"dhcp\", which asks a server on the wire by the container's interface, and that of ptp is not \
                on the wire; use macvlan or host-device";
    check_failure(&wire.call("ADD", "a", &wire.conf("ptp")), 2, says);
}
