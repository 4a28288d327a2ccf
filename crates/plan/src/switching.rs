//! What steps of Open vSwitch say: which switch a node has, its bridges and their ports.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use linux::ovs::{Dpdk, FoundInterface, Switch};
use linux::{CpuSet, IfName, Mac};
use serde::{Deserialize, Serialize};

/// The Open vSwitch of a node: a database and a daemon of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OvsSwitch {
    /// The node: the name of its directory.
    pub node: String,
    /// Present: its daemon has DPDK.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpdk: Option<OvsDpdk>,
}

/// What a daemon with DPDK has beside its ports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OvsDpdk {
    /// The CPUs of its threads that look for frames without sleeping; none: one CPU, of its own choice.
    pub poll_cpus: CpuSet,
}

/// A bridge of a node's Open vSwitch, which is a link of the node too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OvsBridge {
    /// The node: the name of its directory.
    pub node: String,
    /// The name of the bridge and of its link.
    pub name: IfName,
    /// The Ethernet address of its link.
    pub mac: Mac,
    /// The MTU of its link in bytes.
    pub mtu: u32,
    /// Who forwards between its ports.
    #[serde(default, skip_serializing_if = "OvsDatapathType::is_system")]
    pub datapath: OvsDatapathType,
}

/// Who forwards between the ports of a bridge, by the names that Open vSwitch has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OvsDatapathType {
    /// The kernel, by its module.
    #[default]
    System,
    /// The daemon, which takes frames of links by AF_XDP. It waits for them and does not poll: a thread that polls
    /// takes a CPU from whatever else stands on the machine, whether there are frames or not.
    Netdev,
    /// The daemon with DPDK ([`OvsSwitch::dpdk`]). Its threads poll such ports, and those of programs (vhost-user).
    Dpdk,
}

/// A port of such a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OvsPort {
    /// The node: the name of its directory.
    pub node: String,
    /// The bridge whose port it is.
    pub bridge: IfName,
    /// The link that becomes the port; the name of a tunnel.
    pub name: IfName,
    /// Who forwards what comes in by it: as the bridge has it.
    #[serde(default, skip_serializing_if = "OvsDatapathType::is_system")]
    pub datapath: OvsDatapathType,
    /// Present: the port is a tunnel. The kernel's datapath alone has tunnels here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<OvsTunnel>,
    /// Whether the port is a program's, which shares memory with a daemon that has DPDK and listens at
    /// [`vhost_user_socket`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vhost_user: bool,
}

/// A tunnel to another node as a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OvsTunnel {
    /// How frames are wrapped.
    pub kind: OvsTunnelKind,
    /// The network identifier that each frame has.
    pub vni: u32,
    /// The UDP port of both ends.
    pub port: u16,
    /// The address from which this end sends.
    pub local: IpAddr,
    /// The address of the tunnel's other end.
    pub remote: IpAddr,
}

/// How a tunnel wraps frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of the protocols")]
pub enum OvsTunnelKind {
    Vxlan,
    Geneve,
}

impl OvsDatapathType {
    /// As the database has it.
    pub fn name(self) -> &'static str {
        match self {
            OvsDatapathType::System => "system",
            OvsDatapathType::Netdev | OvsDatapathType::Dpdk => "netdev",
        }
    }

    /// The kind of the link that a bridge is.
    pub(crate) fn link_kind(self) -> &'static str {
        match self {
            OvsDatapathType::System => "openvswitch",
            OvsDatapathType::Netdev | OvsDatapathType::Dpdk => "tun",
        }
    }

    fn is_system(&self) -> bool {
        *self == OvsDatapathType::System
    }
}

/// The socket of the program that has the port of a name of a node's switch.
pub fn vhost_user_socket(node: &str, port: &IfName) -> PathBuf {
    Switch::named(node).dir().join(format!("{port}.sock"))
}

impl OvsTunnelKind {
    /// As the database has it.
    pub fn name(self) -> &'static str {
        match self {
            OvsTunnelKind::Vxlan => "vxlan",
            OvsTunnelKind::Geneve => "geneve",
        }
    }

    /// The link by which the daemon sends and receives all frames of such tunnels of a UDP port.
    pub fn device(self, port: u16) -> IfName {
        let name = match self {
            OvsTunnelKind::Vxlan => format!("vxlan_sys_{port}"),
            OvsTunnelKind::Geneve => format!("genev_sys_{port}"),
        };
        IfName::new(name).expect("ten letters and at most five digits are a name")
    }
}

impl OvsSwitch {
    /// What a person would type to end what the step's commands started. The kernel's part goes with its namespace.
    pub fn removal(&self) -> String {
        let switch = self.switch();
        let (dir, top) = (switch.dir().display(), switch.dir().parent().unwrap_or(switch.dir()).display());
        format!("kill $(cat {dir}/*.pid); rm -rf {dir}; rmdir --ignore-fail-on-non-empty {top}")
    }

    /// Lets the threads of its daemon sleep between two looks at their ports, or not. That is in its own database
    /// alone, and goes with it. One that has ended is left.
    ///
    /// # Errors
    /// The daemon does not do it.
    pub fn set_rest(&self, rests: bool) -> linux::Result<()> {
        let switch = self.switch();
        if switch.is_alive() { switch.database()?.rest(rests) } else { Ok(()) }
    }

    pub(crate) fn switch(&self) -> Switch {
        Switch::named(&self.node)
    }

    pub(crate) fn with(&self) -> Option<Dpdk> {
        self.dpdk.as_ref().map(|OvsDpdk { poll_cpus }| Dpdk { poll_cpus: poll_cpus.clone() })
    }
}

impl OvsBridge {
    pub(crate) fn switch(&self) -> Switch {
        Switch::named(&self.node)
    }
}

impl OvsPort {
    pub(crate) fn switch(&self) -> Switch {
        Switch::named(&self.node)
    }

    /// The link that has the switch as its master.
    pub(crate) fn device(&self) -> IfName {
        self.tunnel.as_ref().map_or_else(|| self.name.clone(), |tunnel| tunnel.kind.device(tunnel.port))
    }

    /// What the database is to say of its interface.
    pub(crate) fn interface(&self) -> FoundInterface {
        let (kind, options) = match (&self.tunnel, self.datapath) {
            (Some(tunnel), _) => (tunnel.kind.name(), tunnel.options()),
            (None, _) if self.vhost_user => {
                let socket = vhost_user_socket(&self.node, &self.name).display().to_string();
                ("dpdkvhostuserclient", vec![("vhost-server-path", socket)])
            }
            (None, OvsDatapathType::System) => return FoundInterface::default(),
            // Without `pmd` in its name no thread polls for it. A veth link has no other mode than this and `generic`,
            // and what is not named is tried and may be that.
            (None, OvsDatapathType::Netdev) => ("afxdp-nonpmd", vec![("xdp-mode", "native".to_owned())]),
            (None, OvsDatapathType::Dpdk) => ("afxdp", vec![("xdp-mode", "native".to_owned())]),
        };
        let options: BTreeMap<String, String> =
            options.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        FoundInterface { kind: kind.to_owned(), options, error: None }
    }
}

impl OvsTunnel {
    fn options(&self) -> Vec<(&'static str, String)> {
        vec![
            ("key", self.vni.to_string()),
            ("dst_port", self.port.to_string()),
            ("local_ip", self.local.to_string()),
            ("remote_ip", self.remote.to_string()),
        ]
    }
}
