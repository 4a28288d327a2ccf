//! A node and a container that calls of the plugin meet, with a `/var/lib` and a `/run/hostgap` of their own, and all
//! that a call may leave there.

use std::process::Output;

use linux::{Netns, NetnsPath};
use serde_json::Value;
use testkit::{Dump, dump};

use super::{NODE, POD, call};
use crate::sandbox::{HOSTGAP, Sandbox, check, json, sandbox, stdout, text};

/// Where the plugin keeps its journals, and where addresses.
pub(super) const JOURNALS: &str = "/run/hostgap";
pub(super) const STATE: &str = "/var/lib";

pub(super) struct Ground {
    pub(super) sandbox: Sandbox,
}

/// All that calls may leave.
pub(super) struct Left {
    node: Dump,
    pod: Dump,
    files: String,
}

impl Ground {
    /// Both file systems have a size, so that they can be filled.
    pub(super) fn new() -> Ground {
        let ground = Ground { sandbox: sandbox() };
        ground.run(&format!("mount -t tmpfs -o size=128k none {STATE}"));
        ground.add_node();
        ground.add_pod();
        ground
    }

    /// The node, as it is after the machine has started.
    pub(super) fn add_node(&self) {
        self.run(&format!(
            "ip netns add {NODE}; ip -n {NODE} link add wire0 type veth peer name wire1
             ip -n {NODE} link set wire0 address 02:00:00:00:00:01; ip -n {NODE} link set wire1 address 02:00:00:00:00:02
             ip -n {NODE} addr add 192.0.2.1/24 dev wire0; ip -n {NODE} link set wire0 up
             mkdir {JOURNALS} /run/hostgap-bpf; mount -t tmpfs -o size=128k none {JOURNALS}
             mount -t bpf none /run/hostgap-bpf"
        ));
    }

    pub(super) fn add_pod(&self) {
        self.run(&format!("ip netns add {POD}"));
    }

    /// A script, which must succeed, beside the plugin's files.
    #[track_caller]
    pub(super) fn run(&self, script: &str) -> String {
        text(self.sandbox.command("sh").args(["-ec", script]))
    }

    #[track_caller]
    pub(super) fn call(&self, verb: &str, conf: &str) -> Output {
        call(&self.sandbox, verb, conf).wait_with_output().unwrap()
    }

    /// A call that must work; what it printed.
    #[track_caller]
    pub(super) fn succeed(&self, verb: &str, conf: &str) -> String {
        let output = self.call(verb, conf);
        assert!(output.status.success(), "{verb}: {}", stdout(&output));
        stdout(&output)
    }

    /// Takes back what networks without containers share.
    #[track_caller]
    pub(super) fn clean(&self) {
        let clean = ["netns", "exec", NODE, HOSTGAP, "clean"];
        check(&self.sandbox.command("ip").args(clean).output().unwrap(), 0, "");
    }

    /// Reads what the node, the container, the store of addresses and the journals have. Locks, and hints to where a
    /// search begins, say nothing about containers.
    pub(super) fn left(&self) -> Left {
        let of = |name: &str| {
            let path = self.sandbox.in_run(&format!("netns/{name}"));
            let path = NetnsPath::new(path.to_str().unwrap().to_owned()).unwrap();
            dump(&Netns::open_path(&path).unwrap())
        };
        let files = self.run(&format!(
            "find {STATE} {JOURNALS}/cni-attachments {JOURNALS}/cni-networks {JOURNALS}/cni-numbers/attachments \
             ! -type d ! -name '*lock' ! -name 'last_reserved_ip.*' ! -name .hostgap-released ! -name fill \
             2>/dev/null || true; ls /run/hostgap-bpf"
        ));
        Left { node: of(NODE), pod: of(POD), files }
    }
}

impl Left {
    #[track_caller]
    pub(super) fn assert_same(&self, later: &Left, when: &str) {
        self.node.assert_same(&later.node, when);
        self.pod.assert_same(&later.pod, when);
        assert_eq!(self.files, later.files, "{when}");
    }
}

/// The error object of a call that must fail: its code, and its text with the details behind it.
#[track_caller]
pub(super) fn failure(output: &Output) -> (u64, String) {
    assert!(!output.status.success(), "{}", stdout(output));
    let object = json(output);
    let words = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    (object["code"].as_u64().unwrap(), format!("{}; {}", words("msg"), words("details")))
}
