//! A static file as lease source: all nodes have a copy, and its author gives out the prefixes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use datapath::Addresses;
use ipnet::IpNet;
use linux::{Mac, PublicKey};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

use super::LeaseSource;
use crate::backend::BackendKind;
use crate::desired::tunnel_mac;
use crate::lease::{Announcement, Lease, Snapshot, TunnelData, VxlanEnd};
use crate::network::NetworkConfig;

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// A file of nodes, in TOML.
///
/// ```toml
/// [network]                # the keys of flannel's net-conf.json
/// Network = "10.244.0.0/16"
/// Backend = { Type = "vxlan" }
///
/// [[node]]
/// name = "a"
/// public = ["192.0.2.1"]   # its addresses on the underlay, one of each family at most
/// pods = ["10.244.1.0/24"] # the prefixes of its pods
/// mac = "02:68:c0:00:02:01" # of its tunnel's end; without it: the one that an agent with that address has
/// key = "3p7b…"            # the public key of its tunnel's end, for an encrypted one; `hostgap agent status` has it
/// ```
#[derive(Debug, Clone)]
pub struct FileSource {
    /// The path of the file with all nodes.
    pub path: PathBuf,
    /// The name in it of this node.
    pub node: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    network: Value,
    #[serde(default, rename = "node")]
    nodes: Vec<WrittenNode>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenNode {
    name: String,
    public: Vec<IpAddr>,
    pods: Vec<IpNet>,
    mac: Option<Mac>,
    key: Option<PublicKey>,
}

impl LeaseSource for FileSource {
    fn start(self, own: watch::Receiver<Option<Announcement>>) -> watch::Receiver<Snapshot> {
        let (sender, receiver) = watch::channel(Snapshot::default());
        tokio::spawn(async move {
            let mut last = None;
            while !sender.is_closed() {
                let version = version_of(&self.path);
                if last.as_ref() != Some(&version) {
                    match self.read() {
                        Ok(snapshot) => sender.send_modify(|known| *known = snapshot),
                        Err(why) => sender.send_modify(|known| known.unreachable = Some(why)),
                    }
                    last = Some(version);
                }
                tokio::time::sleep(PERIOD).await;
            }
            // The nodes read what this one announces in their own copies.
            drop(own);
        });
        receiver
    }
}

/// By which a file that was written anew is known: its time, its size and its inode, or why it cannot be looked at.
fn version_of(path: &Path) -> Result<(SystemTime, u64, u64), String> {
    let found = std::fs::metadata(path).map_err(|error| error.to_string())?;
    Ok((found.modified().map_err(|error| error.to_string())?, found.len(), found.ino()))
}

impl FileSource {
    /// What the file says.
    ///
    /// # Errors
    /// In words: it cannot be read or parsed, this node is not in it, or two nodes have one name.
    pub fn read(&self) -> Result<Snapshot, String> {
        let shown = self.path.display();
        let text = std::fs::read_to_string(&self.path).map_err(|error| format!("read {shown}: {error}"))?;
        self.parse(&text).map_err(|why| format!("read {shown}: {why}"))
    }

    fn parse(&self, text: &str) -> Result<Snapshot, String> {
        let Written { network, nodes } = toml::from_str(text).map_err(|error| error.to_string())?;
        let config = NetworkConfig::parse(&network).map_err(|error| error.to_string())?;
        let mut snapshot = Snapshot { network: Some(network), ..Snapshot::default() };
        let mut own = None;
        let mut others = BTreeMap::new();
        for node in nodes {
            let is_known = if node.name == self.node {
                check_pods(&node)?;
                own.replace(node.pods.into_iter().collect()).is_some()
            } else {
                others.insert(node.name.clone(), lease(&node, &config)).is_some()
            };
            if is_known {
                return Err(format!("two nodes are called {}", node.name));
            }
        }
        snapshot.own = own.ok_or_else(|| {
            format!("no node is called {}, as this one is; `--node` says another name", self.node)
        })?;
        snapshot.others = others;
        Ok(snapshot)
    }
}

/// Refuses addresses where prefixes are expected.
fn check_pods(node: &WrittenNode) -> Result<(), String> {
    let host = node.pods.iter().find(|net| net.trunc() != **net);
    host.map_or(Ok(()), |host| Err(format!("`pods` has {host}, which is an address in {}", host.trunc())))
}

fn lease(node: &WrittenNode, network: &NetworkConfig) -> Result<Lease, String> {
    let public: Addresses = node.public.iter().copied().collect();
    if public.families().is_empty() {
        return Err("it has no address in `public`".to_owned());
    }
    check_pods(node)?;
    let data = tunnel_data(node, network, &public)?;
    Ok(Lease {
        pods: node.pods.iter().copied().collect(),
        node: Announcement { public, backend: network.backend.kind.clone(), data, data_v6: data },
    })
}

/// What a node would say of its end of the tunnel.
fn tunnel_data(
    node: &WrittenNode,
    network: &NetworkConfig,
    public: &Addresses,
) -> Result<Option<TunnelData>, String> {
    match BackendKind::find(&network.backend.kind) {
        Some(BackendKind::Vxlan) => {
            let mac = node.mac.unwrap_or_else(|| tunnel_mac(public));
            Ok(Some(TunnelData::Vxlan(VxlanEnd { vni: Some(network.backend.vni), mac })))
        }
        Some(BackendKind::WireGuard) => {
            let key = node.key.map(TunnelData::WireGuard).map(Some);
            key.ok_or_else(|| {
                "it has no `key`, the public one of its tunnel: `hostgap agent status` shows it there"
                    .to_owned()
            })
        }
        Some(BackendKind::HostGw | BackendKind::AwsVpc) | None => Ok(None),
    }
}
