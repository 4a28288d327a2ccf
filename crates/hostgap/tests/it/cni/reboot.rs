//! After a restart of the machine: links, namespaces and `/run` are gone, and the addresses are where they were.

use serde_json::{Value, json};

use super::ground::{Ground, JOURNALS, failure};
use super::{NODE, POD, call_for};
use crate::sandbox::{stdout, text};

/// Where the kernel says which run of it this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

impl Ground {
    /// What a restart leaves. The kernel's id of this run is another one, and the reservations are older than this run.
    fn reboot(&self) {
        self.run(&format!(
            "ip netns del {POD}; ip netns del {NODE}; umount /run/hostgap-bpf {JOURNALS}; rmdir /run/hostgap-bpf {JOURNALS}
             echo 01234567-89ab-cdef-0123-456789abcdef >/run/boot_id; mount --bind /run/boot_id {BOOT_ID}
             started=$(($(date +%s) - $(cut -d. -f1 /proc/uptime)))
             touch -d @$((started - 86400)) /var/lib/cni/networks/own/*"
        ));
        self.add_node();
        self.add_pod();
    }

    /// The containers that have addresses.
    fn holders(&self) -> Vec<String> {
        let holders = self
            .run("cd /var/lib/cni/networks/own; ls | grep '^10' | xargs -r head -qn 1 | tr -d '\\r' | sort");
        holders.split_whitespace().map(str::to_owned).collect()
    }
}

#[test]
fn what_a_restart_left_is_taken_back_and_the_next_add_works() {
    let ground = Ground::new();
    // With room for three containers, so that a fourth gets the address of one that is gone.
    let conf = json!({
        "cniVersion": "1.1.0", "name": "own", "type": "hostgap", "attach": "bridge", "wire": "wire0", "masquerade": true,
        "runtimeConfig": { "portMappings": [{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }] },
        "ipam": { "type": "hostgap", "ranges": [[{ "subnet": "10.9.0.0/28", "rangeEnd": "10.9.0.4" }]] },
    });
    let with = |key: &str, value: Value| {
        let mut conf = conf.clone();
        conf[key] = value;
        conf.to_string()
    };
    let call = |verb: &str, container: &str, conf: &str| {
        let output = call_for(&ground.sandbox, verb, container, conf).wait_with_output().unwrap();
        assert!(output.status.success(), "{verb} {container}: {}", stdout(&output));
        stdout(&output)
    };
    let before = ground.left();
    let result: Value = serde_json::from_str(&call("ADD", "c1", &conf.to_string())).unwrap();
    // The others have namespaces of the same name, one after another.
    for container in ["c2", "c3"] {
        ground.run(&format!("ip netns del {POD}"));
        ground.add_pod();
        let mut conf = conf.clone();
        conf.as_object_mut().unwrap().remove("runtimeConfig");
        call("ADD", container, &conf.to_string());
    }
    assert_eq!(ground.holders(), ["c1", "c2", "c3"]);
    ground.reboot();
    // CHECK says that it is gone.
    let cached = with("prevResult", result);
    let (code, says) =
        failure(&call_for(&ground.sandbox, "CHECK", "c1", &cached).wait_with_output().unwrap());
    assert!(code == 3 && says.contains("eth0 of container c1 was not added to own here"), "{says}");
    // A runtime that knows the container from before takes it back, and once more.
    for _ in 0..2 {
        call("DEL", "c1", &cached);
    }
    assert_eq!(ground.holders(), ["c2", "c3"]);
    let valid = json!([{ "containerID": "c3", "ifname": "eth0" }]);
    call("GC", "", &with("cni.dev/valid-attachments", valid));
    assert_eq!(ground.holders(), ["c3"]);
    // The next one releases what no runtime asked about.
    let result: Value = serde_json::from_str(&call("ADD", "c4", &conf.to_string())).unwrap();
    assert_eq!(ground.holders(), ["c4"]);
    let address = result["ips"][0]["address"].as_str().unwrap();
    let has = text(ground.sandbox.command("ip").args(["-n", POD, "-br", "addr", "show", "eth0"]));
    assert!(has.contains(address), "{has}");
    let added = with("prevResult", result);
    call("CHECK", "c4", &added);
    call("DEL", "c4", &added);
    ground.clean();
    before.assert_same(&ground.left(), "after the restart");
}
