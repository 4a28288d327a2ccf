//! What steps of our own data paths say: which programs a node has, where they are attached, and what they know.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

pub use bpf::forward::Program;
use bpf::forward::TunnelEnd;
pub use bpf::services::{Protocol, Service, ServiceAddress};
use ipnet::IpNet;
use linux::{Cgroup, IfName, Mac};
use serde::{Deserialize, Serialize};

use crate::Place;

/// The forwarding programs of a node, pinned in its folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Programs {
    /// The node: the name of its folder.
    pub node: String,
    /// The link to the other nodes.
    pub wire: IfName,
    /// The pods' MTU in bytes.
    pub mtu: u32,
    /// The IPv4 address of the pods' gateway, which is on no link.
    pub gateway: Ipv4Addr,
    /// The Ethernet address of the node's end of every pod's link.
    pub gateway_mac: Mac,
    /// The prefixes of the node's pods, of either family. (A journal of before there were lists has a pair, which reads
    /// as a list of two.)
    pub pods: Vec<IpNet>,
    /// The prefixes of all nodes' pods.
    pub cluster: Vec<IpNet>,
    /// Present: other nodes are reached through a tunnel.
    pub tunnel: Option<TunnelEnd>,
}

/// A program of a node at a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramAttachment {
    /// The node: the name of its folder.
    pub node: String,
    /// The program of the node.
    pub program: Program,
    /// The link at which it sees packets.
    pub link: IfName,
    /// Packets meet it at once ([`bpf::attach_at_once`]), and the link's one ingress qdisc is taken for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_once: bool,
}

/// A pod of a node, for its programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The node: the name of its folder.
    pub node: String,
    /// The node's end of the pod's link.
    pub link: IfName,
    /// The pod's Ethernet address.
    pub mac: Mac,
    /// The addresses that are the pod's own.
    pub addresses: Vec<IpAddr>,
    /// All that the pod receives passes the queue of the link, so that a limit there holds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
}

/// The tunnel to another node's pods, for a node's programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// The node: the name of its folder.
    pub node: String,
    /// The other node's pods.
    pub prefix: IpNet,
    /// The external vxlan device that encapsulates.
    pub device: IfName,
    /// The tunnel's other end.
    pub remote: IpAddr,
}

/// A link beside the wire by which a node's programs may send to other nodes' pods, as the kernel's routes lead there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uplink {
    /// The node: the name of its folder.
    pub node: String,
    /// The link: a tunnel's device that has its ends of itself.
    pub link: IfName,
}

/// The short cut of TCP between two pods of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splice {
    /// The node: the name of its folder and of its control group.
    pub node: String,
}

/// A pod whose connections to other pods of its node take the short cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The node: the name of its folder.
    pub node: String,
    /// The addresses that are the pod's own.
    pub addresses: Vec<IpAddr>,
}

/// The check of what the pods of a node send, where the kernel forwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// The node: the name of its folder.
    pub node: String,
}

/// An interface of a pod that may send from the addresses of its pod alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded {
    /// The node: the name of its folder.
    pub node: String,
    /// The node's end of the interface's link.
    pub link: IfName,
    /// The pod's namespace. Its interfaces may send from each other's addresses.
    pub pod: Place,
    /// The interface's Ethernet address.
    pub mac: Mac,
    /// The addresses of the interface.
    pub addresses: Vec<IpAddr>,
}

/// The programs that lead calls of Services to backends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePrograms {
    /// The node: the name of their folder. It has nothing else in it.
    pub node: String,
}

/// These programs at a control group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAttachment {
    /// The node: the name of their folder.
    pub node: String,
    /// The directory of the control group (of version 2) whose sockets they see.
    pub cgroup: PathBuf,
}

/// A Service for these programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceEntry {
    /// The node: the name of their folder.
    pub node: String,
    /// What is called, and where calls are led.
    pub service: Service,
}

impl Splice {
    /// The control group in which its tasks are.
    ///
    /// # Errors
    /// This machine has no hierarchy of version 2.
    pub fn cgroup(&self) -> linux::Result<Cgroup> {
        Cgroup::named(&self.node)
    }

    /// Where its programs are pinned.
    pub(crate) fn folder(&self) -> PathBuf {
        bpf::pins::folder(&self.node)
    }
}

impl Member {
    /// Where the programs are pinned.
    pub(crate) fn folder(&self) -> PathBuf {
        bpf::pins::folder(&self.node)
    }
}

impl Programs {
    /// Where they are pinned.
    pub fn folder(&self) -> PathBuf {
        bpf::pins::folder(&self.node)
    }
}

impl Guard {
    /// Where it is pinned.
    pub fn folder(&self) -> PathBuf {
        bpf::pins::folder(&self.node)
    }
}

impl ProgramAttachment {
    /// Where the program is pinned.
    pub(crate) fn program_pin(&self) -> PathBuf {
        self.program.pin(&bpf::pins::folder(&self.node))
    }

    /// Where the bpf link is pinned.
    pub(crate) fn link_pin(&self) -> PathBuf {
        self.program.link_pin(&bpf::pins::folder(&self.node), &self.link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As journals had it before a node could have other prefixes than one of each family.
    #[test]
    fn a_pair_of_prefixes_reads_as_a_list() {
        let text = r#"{"node":"home","wire":"own0","mtu":1350,"gateway":"169.254.1.1",
            "gateway_mac":"02:02:00:00:00:01","pods":["10.244.1.0/24","fd00:1::/64"],
            "cluster":["10.244.0.0/16","fd00::/16"],"tunnel":null}"#;
        let programs: Programs = serde_json::from_str(text).unwrap();
        let nets = |texts: [&str; 2]| texts.map(|text| text.parse::<IpNet>().unwrap());
        assert_eq!(programs.pods, nets(["10.244.1.0/24", "fd00:1::/64"]));
        assert_eq!(programs.cluster, nets(["10.244.0.0/16", "fd00::/16"]));
        let pair: ((ipnet::Ipv4Net, ipnet::Ipv6Net),) =
            (("10.244.1.0/24".parse().unwrap(), "fd00:1::/64".parse().unwrap()),);
        assert_eq!(serde_json::to_string(&pair.0).unwrap(), serde_json::to_string(&programs.pods).unwrap());
    }
}
