//! A node with a wire to a machine outside, and containers for it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use datapath::Family;
use linux::Netns;
use node::plugin::{Reply, call};
use node::{Home, UnusedNetworks};
use serde_json::{Value, json};
use testkit::{Dump, World, dump, require_root, shell};

/// For a packet there and one back, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The node is `node`, the machine at the other end of its wire `far`. Containers are namespaces of other names.
pub(crate) struct Scene {
    pub(crate) world: World,
    root: tempfile::TempDir,
}

impl Scene {
    /// `None`, with the skip recorded, without root.
    pub(crate) fn new() -> Option<Scene> {
        Scene::of(&[Family::V4, Family::V6])
    }

    /// The same with addresses of these families alone.
    pub(crate) fn of(families: &[Family]) -> Option<Scene> {
        if !require_root() {
            return None;
        }
        let world = World::new();
        let (node, far) = (world.add("node"), world.add("far"));
        drop((node, far));
        let (node, far) = (world.name("node"), world.name("far"));
        let _ = shell(&format!(
            "ip -n {node} link add wire0 type veth peer name wire1 netns {far}
             ip -n {node} link set wire0 up; ip -n {far} link set wire1 up"
        ));
        for family in families {
            let (net, length, nodad) = match family {
                Family::V4 => ("192.0.2.", 24, ""),
                Family::V6 => ("2001:db8::", 64, "nodad"),
            };
            let _ = shell(&format!(
                "ip -n {node} addr add {net}1/{length} dev wire0 {nodad}
                 ip -n {far} addr add {net}2/{length} dev wire1 {nodad}
                 ip -n {node} route add default via {net}2"
            ));
        }
        Some(Scene { world, root: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn home(&self) -> Home {
        Home::at(self.run_dir(), self.root.path().join("leases"))
    }

    /// Where the plugin keeps what stands until the machine is restarted.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.root.path().join("run")
    }

    /// The journal of what stands for `eth0` of a container.
    pub(crate) fn journal(&self, container: &str) -> PathBuf {
        self.root.path().join(format!("run/cni-attachments/{container}.i-eth0/pod.journal"))
    }

    /// What the journal says of what the containers of a network share.
    pub(crate) fn journal_of_network(&self, network: &str) -> Vec<u8> {
        let unit = format!("{network}.net");
        std::fs::read(self.run_dir().join("cni-networks").join(unit).join("network.journal")).unwrap()
    }

    /// Makes a network namespace for a container.
    pub(crate) fn container(&self, name: &str) -> Netns {
        self.world.add(name)
    }

    /// The path of a container's namespace.
    pub(crate) fn netns(&self, name: &str) -> String {
        format!("/run/netns/{}", self.world.name(name))
    }

    /// Calls the plugin in the node's namespace, for `eth0` of a container.
    pub(crate) fn call(&self, command: &str, container: &str, conf: &Value) -> Reply {
        self.call_named("hostgap", command, container, conf)
    }

    /// The same by another name of the program.
    pub(crate) fn call_named(&self, name: &str, command: &str, container: &str, conf: &Value) -> Reply {
        let netns = self.netns(container);
        let variables = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", container),
            ("CNI_NETNS", &*netns),
            ("CNI_IFNAME", "eth0"),
        ];
        self.call_as(name, &variables, conf)
    }

    pub(crate) fn call_with(&self, variables: &[(&str, &str)], conf: &Value) -> Reply {
        self.call_as("hostgap", variables, conf)
    }

    /// Calls the program by another name.
    pub(crate) fn call_as(&self, name: &str, variables: &[(&str, &str)], conf: &Value) -> Reply {
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        let input = conf.to_string();
        self.world.open("node").run(|| call(&self.home(), name, variable, &input)).unwrap()
    }

    /// ADD, which must work; its result.
    #[track_caller]
    pub(crate) fn add(&self, container: &str, conf: &Value) -> Value {
        works(self.call("ADD", container, conf))
    }

    /// A verb without a result, which must work.
    #[track_caller]
    pub(crate) fn succeed(&self, command: &str, container: &str, conf: &Value) {
        let Reply { printed, is_success, .. } = self.call(command, container, conf);
        assert_eq!((printed, is_success), (None, true), "{command}");
    }

    /// A call that must fail with a code and these words.
    #[track_caller]
    pub(crate) fn fail(&self, command: &str, container: &str, conf: &Value, code: u32, says: &str) {
        check_failure(&self.call(command, container, conf), code, says);
    }

    /// Takes back what networks without containers share.
    #[track_caller]
    pub(crate) fn remove_unused(&self) -> UnusedNetworks {
        self.world.open("node").run(|| self.home().remove_unused_networks()).unwrap().unwrap()
    }

    pub(crate) fn dump(&self) -> Dump {
        dump(&self.world.open("node"))
    }

    /// The addresses that are reserved in a network.
    pub(crate) fn reserved(&self, network: &str) -> usize {
        let directory = self.root.path().join("leases").join(network);
        let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
        entries
            .filter(|entry| {
                entry.as_ref().unwrap().file_name().to_str().unwrap().parse::<std::net::IpAddr>().is_ok()
            })
            .count()
    }

    /// Whether a container reaches an address: nothing listens on the port, and whoever has the address says so.
    #[track_caller]
    pub(crate) fn assert_reaches(&self, container: &str, address: &str) {
        let to = SocketAddr::new(address.parse().unwrap(), 9);
        let error = self.world.open(container).run(|| connect(to)).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{container} to {address}: {error}");
    }

    /// A byte there and one back, between a server at port 80 of a container and a client in a namespace.
    #[track_caller]
    pub(crate) fn exchange(&self, server: &str, client: &str, to: SocketAddr) {
        let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:80" } else { "[::]:80" }.parse().unwrap();
        let listener = self.world.open(server).run(|| TcpListener::bind(any)).unwrap().unwrap();
        let near = self.world.open(client).run(|| connect(to)).unwrap();
        let mut near = near.unwrap_or_else(|error| panic!("{client} to {to}: {error}"));
        let (mut far, _) = listener.accept().unwrap();
        let mut byte = [0];
        near.set_read_timeout(Some(PATIENCE)).unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        near.write_all(&[7]).unwrap();
        far.read_exact(&mut byte).unwrap();
        far.write_all(&byte).unwrap();
        near.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
    }
}

pub(crate) fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&to, PATIENCE)
}

/// Programs of networks are pinned for the whole machine, and the next test may begin on the same one.
impl Drop for Scene {
    fn drop(&mut self) {
        let node = self.world.open("node");
        let removed = node.run(|| {
            for network in ["pods", "other", "bridge", "ptp"] {
                let nothing = json!({
                    "cniVersion": "1.1.0", "name": network, "cni.dev/valid-attachments": []
                });
                let variable = |name: &str| (name == "CNI_COMMAND").then(|| "GC".to_owned());
                let _ = call(&self.home(), "hostgap", variable, &nothing.to_string());
            }
            self.home().remove_unused_networks()
        });
        let removed = removed.expect("the node is there");
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

/// What a call printed, which must have worked.
#[track_caller]
pub(crate) fn works(reply: Reply) -> Value {
    assert!(reply.is_success, "{:?}", reply.printed);
    reply.printed.unwrap_or_default()
}

#[track_caller]
pub(crate) fn check_failure(reply: &Reply, code: u32, says: &str) {
    assert!(!reply.is_success, "{reply:?}");
    let printed = reply.printed.clone().unwrap_or_default();
    assert_eq!(printed["code"], code, "{printed}");
    assert!(printed["msg"].as_str().unwrap().contains(says), "{printed}");
}

/// A configuration in both families.
pub(crate) fn conf(attach: &str) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "hostgap", "attach": attach,
        "ipam": { "type": "hostgap", "ranges": [
            [{ "subnet": "10.244.1.0/24" }], [{ "subnet": "fd00:244:0:1::/64" }],
        ] },
    })
}

/// The configuration with a value set.
pub(crate) fn with(mut conf: Value, key: &str, value: Value) -> Value {
    conf[key] = value;
    conf
}

/// The address of a result without its prefix length.
pub(crate) fn address(result: &Value, index: usize) -> String {
    let address = result["ips"][index]["address"].as_str().unwrap();
    address.split_once('/').unwrap().0.to_owned()
}

/// A test of each attach, named after it, that calls a function with the attach's name.
macro_rules! of_each_attach {
    ($check:ident) => {
        #[test]
        fn bridge() {
            $check("bridge");
        }

        #[test]
        fn ptp() {
            $check("ptp");
        }

        #[test]
        fn ebpf() {
            $check("ebpf");
        }

        #[test]
        fn netkit() {
            $check("netkit");
        }

        #[test]
        fn macvlan() {
            $check("macvlan");
        }

        #[test]
        fn ipvlan_l2() {
            $check("ipvlan-l2");
        }

        #[test]
        fn ipvlan_l3() {
            $check("ipvlan-l3");
        }

        #[test]
        fn ipvlan_l3s() {
            $check("ipvlan-l3s");
        }
    };
}
pub(crate) use of_each_attach;
