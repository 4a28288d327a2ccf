//! One look at the node, and what it takes to bring it to what it should be.

mod change;
mod change_log;
mod notes;
mod renewal;
mod unled;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use datapath::TunnelKey;
use ipnet::IpNet;
use linux::IfName;
use linux::netlink::{Change, Netlink, RouteInfo};
use node::install::{self, InstalledFiles};
use node::{Home, KnownPlace, Underlay};
use plan::{Keeper, Kept, Kernel, Plan, Set, Step};
use tracing::{info, warn};

use self::change::BackendSince;
use self::change_log::ChangeLog;
use self::unled::Unled;
use crate::backend::BackendKind;
use crate::cloud::{View, Wish};
use crate::desired::{
    Desired, FLANNEL_PART, NODE_PART, Node, SERVICES_PART, Undecided, announcement, desired, wish,
};
use crate::files::Environment;
use crate::installation::{KnownFacts, NOTE, check_environment, installation};
use crate::keys::{self, NodeKey};
use crate::lease::{Announcement, Snapshot};
use crate::migrate::of_flannel;
use crate::network::NetworkConfig;
use crate::offload::{Offloads, Tunnels};
use crate::path_mtu::{PathMtus, Targets};
use crate::reason_log::ReasonLog;
use crate::settings::Settings;
use crate::status::{SCHEMA, Status, now_s};
use crate::{AgentError, files};

/// The node, as an agent keeps it.
pub(crate) struct KeptNode {
    settings: Settings,
    home: Home,
    keeper: Keeper,
    kernel: Kernel,
    netlink: Netlink,
    reasons: ReasonLog,
    change_log: ChangeLog,
    pub(crate) status: Status,
    interest: Interest,
    /// The node's place among the others, as it was found last by this agent or the one before.
    place: Option<KnownPlace>,
    /// The network's configuration as it last made sense.
    network: Option<NetworkConfig>,
    backend_since: BackendSince,
    /// The node's own key, from when the network's tunnels are encrypted.
    key: Option<NodeKey>,
    /// The node's own part could not be made at the last look.
    has_failed: bool,
    facts: KnownFacts,
    /// The configuration that is installed for container runtimes, and the files.
    installed: Option<(node::Network, InstalledFiles)>,
    /// Other programs have been told of the network, by this agent or the one before: its file is there.
    is_told: bool,
    /// What led calls of the lease source's own Service, while it does not.
    unled: Unled,
    /// How many repairs in the cloud are in the status.
    repaired_in_cloud: usize,
}

/// Which of the kernel's notices concern the agent.
#[derive(Debug, Default)]
struct Interest {
    /// The index of the link to other nodes. Its neighbours come and go by themselves.
    wire: Option<u32>,
    /// The indexes of the links of tunnels.
    tunnels: BTreeSet<u32>,
    /// A link was not there when its index was asked for: any that comes may be it.
    lacks_a_link: bool,
    routes: BTreeSet<IpNet>,
    /// The steps whose changes the kernel does not announce.
    unannounced: Plan,
}

/// What was found out beside this node's kernel: of the ways to other nodes, with packets.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProbeResults {
    pub(crate) path_mtus: PathMtus,
    pub(crate) offloads: Offloads,
    /// The cloud's route tables.
    pub(crate) cloud: View,
}

/// What is to be found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProbeTargets {
    /// To whom the ways are to be tried.
    pub(crate) targets: Targets,
    pub(crate) tunnels: Tunnels,
}

/// What the node is to have, and the configuration from which that follows.
struct Decided {
    network: NetworkConfig,
    wanted: Desired,
}

/// What one look has come to.
pub(crate) struct LookOutcome {
    /// What the node is to say of itself; `None`: it is not known yet.
    pub(crate) announcement: Option<Announcement>,
    /// All is as it should be, and programs that wait for the network can use it.
    pub(crate) is_ready: bool,
    /// Something had been changed by another program, or could not be made.
    pub(crate) has_changed: bool,
    /// What is to be found out; `None`: it is not known yet.
    pub(crate) wanted: Option<ProbeTargets>,
    /// What the cloud is to have; `None`: it is not known yet.
    pub(crate) wish: Option<Wish>,
}

impl KeptNode {
    /// Takes the network over on this node.
    ///
    /// # Errors
    /// Another process keeps it, or the kernel or the directory cannot be used.
    pub(crate) fn open(settings: Settings, home: Home) -> Result<KeptNode, AgentError> {
        let network = settings.network.clone();
        let keeper = Keeper::open(&home.node_networks(), &network, NOTE)?;
        settings.check_services(keeper.parts().contains_key(SERVICES_PART))?;
        let is_told = Environment::read(&settings.subnet_env).is_ok_and(|written| written.is_of(&network));
        let place = Status::known_place(&settings);
        let (pid, peers) = (std::process::id(), Status::known_peers(&settings));
        let mut status = Status { schema: SCHEMA, network, pid, peers, ..Status::default() };
        // The next agent may begin before this one has looked.
        place.iter().for_each(|place| status.set_place(place));
        let mut node = KeptNode {
            settings,
            home,
            keeper,
            kernel: Kernel::new()?.keeping_announced_routes(),
            netlink: Netlink::open()?,
            reasons: ReasonLog::default(),
            change_log: ChangeLog::default(),
            status,
            interest: Interest::default(),
            place,
            network: None,
            backend_since: BackendSince::default(),
            key: None,
            has_failed: false,
            facts: KnownFacts::default(),
            installed: None,
            is_told,
            unled: Unled::default(),
            repaired_in_cloud: 0,
        };
        node.renew_programs();
        Ok(node)
    }

    /// Whether a change of the kernel's may be one of what the agent keeps.
    pub(crate) fn concerns(&self, change: &Change) -> bool {
        match change {
            Change::Anything => true,
            Change::Link { .. } if self.interest.lacks_a_link => true,
            Change::Link { index } | Change::Address { index } => {
                self.interest.wire == Some(*index) || self.interest.tunnels.contains(index)
            }
            Change::Neighbour { index } => self.interest.tunnels.contains(index),
            Change::Route { table, dst, .. } => {
                *table == RouteInfo::MAIN && (dst.prefix_len() == 0 || self.interest.routes.contains(dst))
            }
        }
    }

    /// What may change without a word of the kernel's: peers and keys of encrypted tunnels.
    pub(crate) fn unannounced(&self) -> &Plan {
        &self.interest.unannounced
    }

    /// Looks at the node, brings it to what the source says, and writes down how it is. As long as it is not clear what
    /// the node is to have, what it has is repaired.
    pub(crate) fn keep(&mut self, snapshot: &Snapshot, found: &ProbeResults) -> LookOutcome {
        let ((announcement, wish), decided) = self.decide(snapshot, found);
        let wanted = decided.as_ref().ok().map(|Decided { wanted, .. }| ProbeTargets {
            targets: wanted.targets.clone(),
            tunnels: if self.settings.tests_offload { wanted.tunnels.clone() } else { Tunnels::new() },
        });
        let mut parts = match &decided {
            Ok(decided) => decided.wanted.parts.clone(),
            Err(_) => self.unled.beside(self.keeper.parts(), snapshot).into_owned(),
        };
        self.unled.leave_out(&mut parts, snapshot, decided.is_ok());
        let kept = self.keeper.keep(&parts, &mut self.kernel).map_err(|error| error.to_string());
        let has_changed = kept.as_ref().map_or(true, |kept| self.note_changes(kept));
        self.has_failed = kept.as_ref().is_ok_and(|kept| kept.failed.contains_key(NODE_PART));
        if let Ok(kept) = &kept {
            let known: Vec<String> = self.keeper.parts().keys().cloned().collect();
            let is_spoken_of = |part: &&String| decided.is_err() || !parts.contains_key(*part);
            self.say_failures(known.iter().filter(is_spoken_of), kept);
        }
        self.note_cloud(&found.cloud);
        let outcome = decided.and_then(|decided| self.finish(snapshot, &decided, found, &kept?));
        let watched = self.watch_over(&parts).map_err(|error| error.to_string());
        let outcome = outcome.and(watched);
        self.status.source_unreachable = snapshot.unreachable.clone();
        self.status.undecided = outcome.as_ref().err().cloned();
        self.reasons.say_if_new("network", outcome.as_ref().err().map(String::as_str));
        let path = Status::path(&self.settings.status, &self.settings.network);
        let written = files::replace(&path, &self.status.to_text());
        let failed = written.err().map(|error| format!("write {}: {error}", path.display()));
        self.reasons.say_if_new("status", failed.as_deref());
        LookOutcome { announcement, is_ready: outcome.is_ok(), has_changed, wanted, wish }
    }

    /// What the node is to say of itself and what the cloud is to have, as soon as that is known, and what the
    /// node is to have.
    fn decide(
        &mut self,
        snapshot: &Snapshot,
        known: &ProbeResults,
    ) -> ((Option<Announcement>, Option<Wish>), Result<Decided, String>) {
        let found = self.network_of(snapshot).map_err(|why| why.to_string());
        let found = found.and_then(|network| {
            self.settings.check_backend(&network)?;
            let tunnel_key = self.tunnel_key(&network)?;
            let others_may_lag = self.backend_since.others_may_lag(&network.backend, Instant::now());
            let place = self.place.as_ref();
            let node = node(&self.settings, &self.home, known, place, Home::number_of_link)?;
            Ok((network, Node { tunnel_key, others_may_lag, ..node }))
        });
        let (network, node) = match found {
            Ok(found) => found,
            Err(why) => return ((None, None), Err(why)),
        };
        let place = KnownPlace { wire: node.wire.clone(), addresses: node.underlay };
        self.status.set_place(&place);
        self.place = Some(place);
        self.status.backend = Some(network.backend.kind.clone());
        self.status.public_key = node.tunnel_key.as_ref().map(|key| key.public.to_string());
        self.status.pods = snapshot.own.iter().map(|net| net.to_string()).collect();
        let standing = self.unled.beside(self.keeper.parts(), snapshot);
        let wanted = desired(&node, &network, snapshot, &standing);
        // The cloud is not to have what this node cannot.
        let wish = wanted.as_ref().ok().and_then(|_| wish(&node, &network, snapshot));
        let announced = (Some(announcement(&node, &network, self.keeper.parts())), wish);
        let decided = wanted.map_err(|why| why.to_string()).and_then(|mut wanted| {
            let of_flannel = of_flannel(self.keeper.parts(), &self.settings.attach)?;
            wanted.parts.extend(of_flannel.map(|plan| (FLANNEL_PART.to_owned(), plan)));
            Ok(Decided { network, wanted })
        });
        (announced, decided)
    }

    /// The node's own key, where the network's tunnels are encrypted. It is made when it is needed first, and not
    /// before the kernel is known to have a use for it.
    fn tunnel_key(&mut self, network: &NetworkConfig) -> Result<Option<TunnelKey>, String> {
        if !keys::are_wanted(network) {
            return Ok(None);
        }
        if self.key.is_none() {
            keys::check_kernel()?;
            self.key = Some(NodeKey::open(&self.settings.keys, &self.settings.network)?);
        }
        let Some(key) = &self.key else { return Ok(None) };
        // A tunnel that has to be made anew gets its key from the file.
        if self.has_failed {
            key.keep()?;
        }
        self.reasons.say_if_new("the node's key", key.why_lost().as_deref());
        Ok(Some(key.tunnel_key()))
    }

    /// Writes down how the other nodes are, and the files that other programs wait for.
    fn finish(
        &mut self,
        snapshot: &Snapshot,
        decided: &Decided,
        found: &ProbeResults,
        kept: &Kept,
    ) -> Result<(), String> {
        self.status.mtu = Some(decided.wanted.mtu);
        self.note_offload(&decided.wanted, found);
        self.note_peers(&decided.wanted, kept);
        self.note_programs(&decided.wanted, kept);
        self.note_services(snapshot, &decided.wanted, kept);
        if decided.network.backend.is(BackendKind::AwsVpc) {
            found.cloud.check_own(snapshot.own.iter())?;
        }
        if let Some(error) = kept.failed.get(NODE_PART) {
            return Err(error.to_string());
        }
        let unserved = self.unserved(snapshot, kept);
        if !self.is_told {
            unserved.clone()?;
        }
        self.write_files(snapshot, decided)?;
        self.is_told = true;
        self.note_runtimes()?;
        unserved
    }

    /// The network's configuration. Where it makes no sense any more, what it said before holds.
    fn network_of(&mut self, snapshot: &Snapshot) -> Result<NetworkConfig, Undecided> {
        match (network_of(snapshot), &self.network) {
            (Ok(network), _) => {
                self.reasons.say_if_new("configuration", None);
                self.network = Some(network.clone());
                Ok(network)
            }
            (Err(Undecided::Network(why)), Some(last)) => {
                let last = last.clone();
                self.reasons.say_if_new(
                    "configuration",
                    Some(&format!("{why}; the previous configuration stays in force")),
                );
                Ok(last)
            }
            (Err(why), _) => Err(why),
        }
    }

    /// Changes of the links and routes of these parts matter from now on, and those of the wire.
    fn watch_over(&mut self, parts: &BTreeMap<String, Plan>) -> Result<(), linux::Error> {
        let index = |name: &IfName| Ok(self.netlink.link(name)?.map(|link| link.index));
        let wire = self.place.as_ref().map_or(Ok(None), |place| index(&place.wire))?;
        let mut interest = Interest { wire, lacks_a_link: wire.is_none(), ..Interest::default() };
        for placed in parts.values().flat_map(|plan| &plan.steps) {
            if let Some(link) = placed.step.link() {
                match index(&link.name)? {
                    Some(index) => drop(interest.tunnels.insert(index)),
                    None => interest.lacks_a_link = true,
                }
            }
            match &placed.step {
                Step::ReplaceRoute(route) => drop(interest.routes.insert(route.dst.trunc())),
                Step::AddWireGuardPeer(_) | Step::Set(Set::WireGuard(_)) => {
                    interest.unannounced.steps.push(placed.clone());
                }
                _ => {}
            }
        }
        self.interest = interest;
        Ok(())
    }

    fn write_files(&mut self, snapshot: &Snapshot, decided: &Decided) -> Result<(), String> {
        let Decided { network, wanted } = decided;
        let Settings { network: name, masquerade, .. } = &self.settings;
        let text = files::subnet_env(name, network, &snapshot.own, wanted.mtu, *masquerade);
        let path = &self.settings.subnet_env;
        check_environment(&self.home, path, name)?;
        files::replace(path, &text).map_err(|error| format!("write {}: {error}", path.display()))?;
        let Some(dirs) = &self.settings.runtime else { return Ok(()) };
        let Some(wire) = self.place.as_ref().map(|place| &place.wire) else { return Ok(()) };
        let conf = self.settings.pods(&self.home, &snapshot.own, network, wanted.mtu, wire);
        let kept = conf.mtu.filter(|mtu| *mtu != wanted.mtu).map(|mtu| {
            format!(
                "new pods get {mtu} bytes, the MTU of the network's attached pods, and {} when those are gone",
                wanted.mtu
            )
        });
        self.reasons.say_if_new("the MTU of pods", kept.as_deref());
        let lost = self.installed.as_ref().filter(|(known, _)| *known == conf).map(|(_, files)| files.lost());
        let lost = lost.transpose().map_err(|error| error.to_string())?;
        if lost == Some(None) {
            return Ok(());
        }
        let installation = installation(&self.home, self.facts.of(&conf)?, dirs, &conf);
        let installed = installation.install().map_err(|error| error.to_string())?;
        if self.settings.installs_cli {
            install::install_cli(&self.home, dirs).map_err(|error| error.to_string())?;
        }
        info!(file = %installed.conflist.0.display(), mtu = wanted.mtu, "container runtimes have the network");
        if let Some(lost) = lost.flatten() {
            warn!("repaired: {lost}");
            self.status.add_repair(lost, now_s());
        }
        if let Some(why) = &installed.waits {
            warn!("containers cannot be attached for now: {why}");
        }
        // The plugin of an earlier version may have made the network since this one began.
        self.renew_programs();
        self.installed = Some((conf, InstalledFiles::of(&installed).map_err(|error| error.to_string())?));
        Ok(())
    }
}

/// The node as it is now, without its key, where nothing has changed lately. `place` is where it was before, and
/// `number_of_link` gives its tunnels their numbers.
pub(crate) fn node(
    settings: &Settings,
    home: &Home,
    found: &ProbeResults,
    place: Option<&KnownPlace>,
    number_of_link: impl Fn(&Home, &str, &str) -> std::io::Result<u16>,
) -> Result<Node, String> {
    let Underlay { wire, mtu, addresses, subnets } = Underlay::find_again(settings.wire.as_ref(), place)
        .map_err(|why| format!("find the link to other nodes: {why}; `--wire` names it"))?;
    let number = |what| {
        let number = number_of_link(home, &settings.network, what);
        number.map_err(|error| format!("give a tunnel its number: {error}"))
    };
    let numbers = [number("v4")?, number("v6")?];
    let programs = home.programs_of(&settings.network);
    Ok(Node {
        wire,
        wire_mtu: mtu,
        underlay: addresses,
        subnets,
        numbers,
        path_mtus: found.path_mtus.clone(),
        offloads: found.offloads.found.clone(),
        programs: programs.map_err(|error| format!("find the programs of pods: {error}"))?,
        services: settings.services_place(),
        tunnel_key: None,
        cloud: found.cloud.clone(),
        others_may_lag: false,
    })
}

pub(crate) fn network_of(snapshot: &Snapshot) -> Result<NetworkConfig, Undecided> {
    let written = snapshot.network.as_ref().ok_or(Undecided::Unsaid("network it is"))?;
    NetworkConfig::parse(written).map_err(|error| Undecided::Network(error.to_string()))
}
