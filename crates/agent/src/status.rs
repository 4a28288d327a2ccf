//! What the agent knows, for people and programs. It lies in a file, so that it can be read while no agent runs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use datapath::Family;
use linux::IfName;
use node::KnownPlace;
use serde::{Deserialize, Serialize};

use crate::OffloadFault;
use crate::cloud::{Table, View};
use crate::desired::{Desired, DesiredPeer};
use crate::settings::Settings;

/// The version of the form below.
pub const SCHEMA: u32 = 1;
/// How many of the last repairs are kept.
const REPAIRS: usize = 50;

/// The state of a network on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The version of this format: [`SCHEMA`].
    pub schema: u32,
    /// The network, by the name in the agent's settings.
    pub network: String,
    /// The process that wrote this.
    pub pid: u32,
    /// The way between nodes, in flannel's words: `vxlan`.
    pub backend: Option<String>,
    /// The public key of its end of tunnels, where those are encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// The prefixes of this node's pods.
    pub pods: Vec<String>,
    /// The link to other nodes.
    pub wire: Option<String>,
    /// The node's addresses there, by which the others know it.
    #[serde(default)]
    pub public: Vec<String>,
    /// The pods' MTU in bytes.
    pub mtu: Option<u32>,
    /// Why the node cannot be brought to what it should be, as a whole.
    pub undecided: Option<String>,
    /// Which configuration container runtimes find before this network's; `None`: this one is the first,
    /// or none is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtimes: Option<String>,
    /// Why the lease source cannot be asked at the moment.
    pub source_unreachable: Option<String>,
    /// What was found of tunnels, by their links.
    #[serde(default)]
    pub offload: BTreeMap<String, TunnelOffload>,
    /// The other nodes by the source's names for them.
    pub peers: BTreeMap<String, PeerStatus>,
    /// What was done for the programs that forward the pods' packets, where there are such and tunnels; `None`:
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<ProgramsStatus>,
    /// The Services whose calls are led to backends; `None`: none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<ServicesStatus>,
    /// The cloud's route tables; `None`: the network has another backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<CloudStatus>,
    /// The last things that were no longer as the agent had made them, the newest last.
    pub repairs: Vec<Repair>,
    /// How many there were since the process began.
    pub repairs_total: u64,
}

/// What the agent knows of another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The prefixes of its pods; none where it is refused.
    pub pods: Vec<String>,
    /// Its addresses on the underlay.
    pub public: Vec<String>,
    /// The way to its pods, for each family: `direct`, `vxlan`, `wireguard` or `aws-vpc`.
    pub by: BTreeMap<String, String>,
    /// What the way there carries, in bytes of an IP packet; `None`: the node does not say.
    #[serde(default)]
    pub path_mtu: Option<u32>,
    /// Why it is not reached; `None`: it is.
    pub why_not: Option<String>,
    /// Since when all of that but `path_mtu` is so, under earlier agents too, in seconds since 1970.
    pub since_s: u64,
}

/// Whether what a tunnel leaves to the card comes out right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelOffload {
    /// It was tried, and all arrived.
    pub is_whole: bool,
    /// What did not arrive, and is switched off.
    pub fault: Option<OffloadFault>,
    /// Why no node could be asked; `None` with nothing of the above: no node has answered yet.
    #[serde(default)]
    pub why_not: Option<String>,
}

/// The programs that forward the pods' packets, at this node's tunnels.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProgramsStatus {
    /// Why packets take the kernel's own way through the tunnels; `None`: they take that of the programs.
    pub why_not: Option<String>,
}

/// The Services of the cluster on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServicesStatus {
    /// How many Services the agent knows of.
    pub total: usize,
    /// Those whose calls are not led as they should be, by name, and why.
    pub failed: BTreeMap<String, String>,
    /// Why no call is led; `None`: calls are.
    pub why_not: Option<String>,
}

/// The cloud's route tables that lead to this node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CloudStatus {
    /// The cloud's name of this node's network interface.
    pub interface: Option<String>,
    /// The route tables that the agent keeps.
    pub tables: Vec<TableStatus>,
    /// What is not as it should be there, and why the tables cannot be asked for at the moment.
    pub failed: Vec<String>,
}

/// How full a route table of a cloud is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    /// The cloud's name of it.
    pub name: String,
    /// How many of its routes count for the account's quota: of the family that has more.
    pub routes: usize,
    /// How many there may be, by the agent's settings.
    pub routes_max: usize,
    /// What is to be said of that; `None`: there is room.
    pub warning: Option<String>,
}

/// Something that another program had changed, and that is as before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// When it was repaired, in seconds since 1970.
    pub at_s: u64,
    /// What had changed, in words.
    pub what: String,
}

impl Status {
    /// The file of a network.
    pub fn path(run: &Path, network: &str) -> PathBuf {
        run.join(format!("{network}.json"))
    }

    /// Reads the file of a network.
    ///
    /// # Errors
    /// In words: it is not there, or is none of this program.
    pub fn read(path: &Path) -> Result<Status, String> {
        let text =
            std::fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("read {}: {error}", path.display()))
    }

    /// Where the node was, as an agent with these settings has written it last; `None`: none has
    /// since the machine started.
    pub(crate) fn known_place(settings: &Settings) -> Option<KnownPlace> {
        let status = Status::read(&Status::path(&settings.status, &settings.network)).ok()?;
        let addresses = status.public.iter().filter_map(|text| text.parse::<IpAddr>().ok()).collect();
        Some(KnownPlace { wire: IfName::new(&status.wire?).ok()?, addresses })
    }

    /// The other nodes as an agent with these settings has written them last, with the time since when; none where none
    /// has since the machine started.
    pub(crate) fn known_peers(settings: &Settings) -> BTreeMap<String, PeerStatus> {
        let status = Status::read(&Status::path(&settings.status, &settings.network));
        status.map_or_else(|_| BTreeMap::new(), |status| status.peers)
    }

    /// Notes where the node is.
    pub(crate) fn set_place(&mut self, place: &KnownPlace) {
        self.wire = Some(place.wire.to_string());
        self.public = place.addresses.iter().map(|address| address.to_string()).collect();
    }

    /// As it stands in the file.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("its keys are texts");
        text.push('\n');
        text
    }

    /// Notes the other nodes. `failed` is why the ways to some could not be made.
    pub(crate) fn set_peers(&mut self, desired: &Desired, failed: &BTreeMap<String, String>, now_s: u64) {
        let peer = |(name, peer): (&String, &DesiredPeer)| {
            let mut status = match peer {
                DesiredPeer::Reached { lease, by, path_mtu } => PeerStatus {
                    pods: lease.pods.iter().map(|net| net.to_string()).collect(),
                    public: lease.node.public.iter().map(|address| address.to_string()).collect(),
                    by: by.iter().map(|(family, by)| (word(*family), (*by).to_owned())).collect(),
                    path_mtu: *path_mtu,
                    why_not: failed.get(&crate::desired::part_of(name)).cloned(),
                    since_s: now_s,
                },
                DesiredPeer::Refused(why) => PeerStatus {
                    pods: Vec::new(),
                    public: Vec::new(),
                    by: BTreeMap::new(),
                    path_mtu: None,
                    why_not: Some(why.clone()),
                    since_s: now_s,
                },
            };
            if let Some(before) = self.peers.get(name) {
                // What the way carries is found out anew by each agent.
                let (since_s, path_mtu) = (before.since_s, before.path_mtu);
                if *before == (PeerStatus { since_s, path_mtu, ..status.clone() }) {
                    status.since_s = since_s;
                }
            }
            (name.clone(), status)
        };
        self.peers = desired.peers.iter().map(peer).collect();
    }

    /// Notes something that was repaired.
    pub(crate) fn add_repair(&mut self, what: String, at_s: u64) {
        self.repairs_total += 1;
        self.repairs.push(Repair { at_s, what });
        let surplus = self.repairs.len().saturating_sub(REPAIRS);
        self.repairs.drain(..surplus);
    }
}

impl TunnelOffload {
    /// The same in words.
    pub fn words(&self) -> String {
        match (self.fault, self.is_whole, &self.why_not) {
            (Some(fault), _, _) => fault.words().to_owned(),
            (None, true, _) => "offloads work".to_owned(),
            (None, false, None) => "offloads not tested yet: no node has answered".to_owned(),
            (None, false, Some(why)) => format!("offloads could not be tested: {why}"),
        }
    }
}

impl CloudStatus {
    pub(crate) fn of(view: &View, routes_max: usize) -> CloudStatus {
        let table = |table: &Table| TableStatus {
            name: table.id.clone(),
            routes: table.counted.into_iter().max().unwrap_or(0),
            routes_max,
            warning: table.warning(routes_max),
        };
        CloudStatus {
            interface: view.interface.as_ref().map(|interface| interface.id.clone()),
            tables: view.tables.iter().map(table).collect(),
            failed: view.faults(),
        }
    }
}

/// The key of a family.
pub(crate) fn word(family: Family) -> String {
    family.name().to_lowercase()
}

/// The system clock in whole seconds since 1970 (UTC); 0 if it is set to before that.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
