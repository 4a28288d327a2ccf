//! From names to contenders: data paths that can run here, and those that cannot, with the reason.
//!
//! A *candidate* is what the user asks for. A *contender* is a candidate with the reason why it cannot run, if there
//! is one; `host` and `host again` are contenders too. An *entrant* is a contender as the record has it. A *runner*
//! is one that stands.

mod filters;
mod verbs;

use std::path::Path;
use std::sync::Arc;

use datapath::{DataPath, Enters, SocketRole};
use linux::CpuSet;
use linux::features::{Facts, Feature};
use record::{
    Candidate, Experiment, PacketFilter, Placement, Plant, Proxies, Side, Stack, StackKind, Underlay, Ways,
    WorkloadKind,
};
use tune::Settings;

use crate::cni::{CniNetwork, Configuration, PluginDirs};
use crate::cpus::switches;
use crate::{LabError, Wires};

/// A data path, or a network of CNI plugins, that was asked for.
#[derive(Debug, Clone)]
pub struct Contender {
    /// The name of the candidate, in tables and in the record.
    pub name: String,
    /// The data path; [`datapath::CNI`] where plugins join pods to nodes.
    pub path: &'static DataPath,
    /// The plugins that do, if any.
    pub cni: Option<Arc<CniNetwork>>,
    /// What it stands for in the world.
    pub stands_for: String,
    /// What is set otherwise than the kernel has it.
    pub settings: Settings,
    /// Whether the server, the client or both are in containers.
    pub in_container: Side,
    /// What of the wire is otherwise for it.
    pub ways: Ways,
    /// Its connections, where not the experiment's.
    pub connections: Option<u32>,
    /// What becomes of its frames, in a race of packets or of a flood.
    pub filter: Option<PacketFilter>,
    /// Answers that its server holds back on purpose.
    pub plant: Option<Plant>,
    /// What its connections pass through beside client and server.
    pub proxy: Proxies,
    /// What its server answers on.
    pub stack: Stack,
    /// That it cannot run is an error.
    pub required: bool,
    /// Why it cannot run here; empty: it races.
    pub unmet: Vec<String>,
}

/// The name of the reference's second entry, the A/A control.
pub const HOST_AGAIN: &str = "host again";

/// The contenders of an experiment. In one of packets each is the host with a filter; an experiment that names none has
/// all filters but the reference's. In all others they are those of [`contenders`].
pub fn field(experiment: &Experiment, facts: &Facts, dirs: &PluginDirs) -> Result<Vec<Contender>, LabError> {
    match experiment.workload.kind {
        WorkloadKind::Packets => filters::contenders(experiment, facts),
        WorkloadKind::Verbs if experiment.candidates.is_empty() => {
            contenders(&verbs::usual(experiment), facts, dirs)
        }
        _ => contenders(&experiment.candidates, facts, dirs),
    }
}

/// Turns names into contenders: the reference, the reference again, then the candidates in the order of the list of
/// data paths, then CNI configurations as they were given. No names at all stands for all data paths but those that
/// enter by name alone, of which those that cannot run are listed with their reason; what was required and cannot run
/// is an error, and so is a file that is no CNI configuration. Plugins are searched in `dirs`.
pub fn contenders(named: &[Candidate], facts: &Facts, dirs: &PluginDirs) -> Result<Vec<Contender>, LabError> {
    // Nodes are joined by veth links, for the reference too.
    if let Some(unmet) = facts.unmet(&[Feature::Veth]).into_iter().next() {
        return Err(LabError::NoTopology(unmet));
    }
    for candidate in named.iter().filter(|candidate| candidate.cni.is_none()) {
        find(&candidate.path)?;
    }
    let host = find("host")?;
    let mut contenders = vec![
        Contender::of(host, Vec::new()),
        Contender { name: HOST_AGAIN.to_owned(), ..Contender::of(host, Vec::new()) },
    ];
    for path in datapath::ALL {
        if named.is_empty() && path.enters == Enters::Always && path.name != host.name {
            contenders.push(Contender::of(path, reasons(path, facts)));
        }
        for candidate in named.iter().filter(|candidate| candidate.path == path.name) {
            // The host as it is races anyway.
            let plain = candidate.tune.is_empty()
                && candidate.underlay.is_empty()
                && candidate.proxy.is_empty()
                && candidate.stack.is_usual()
                && candidate.filter.is_none();
            if path.name != host.name || candidate.name.is_some() || !plain {
                contenders.push(Contender::requested(path, candidate, facts)?);
            }
        }
    }
    for candidate in named {
        let Some(file) = &candidate.cni else { continue };
        let contender = plugins(Path::new(file), candidate.required, facts, dirs)?;
        let name = match &candidate.name {
            Some(name) => name.clone(),
            None => free_name(&contender.name, &contenders),
        };
        let settings = settings(candidate, &name)?;
        contenders.push(Contender { name, settings, ..contender.with(candidate) });
    }
    Ok(contenders)
}

impl Contender {
    /// The data path's name for a record; every CNI configuration is one of its own.
    pub fn path_name(&self) -> &str {
        if self.path.name == datapath::CNI.name { &self.name } else { self.path.name }
    }

    /// Whether a program in user space carries its packets between client and server.
    pub(crate) fn is_carried(&self) -> bool {
        self.path.needs().contains(&Feature::OpenVSwitchAfXdp)
    }

    /// Whether threads of such a program look for packets without sleeping.
    pub fn polls(&self) -> bool {
        self.path.needs().contains(&Feature::OpenVSwitchDpdk)
    }

    /// Whether its switches poll on CPUs of client and server, since these that are neither's do not suffice.
    pub fn is_crowded(&self, spare: &CpuSet, placement: Placement) -> bool {
        self.polls() && spare.len() < switches(placement)
    }

    /// The wire that it races on, where an experiment's is `underlay`.
    pub fn wires(&self, underlay: &Underlay) -> Wires {
        Wires::of(&underlay.with(&self.ways))
    }

    /// Whether it is known what it would be built of: not so for plugins that are not there.
    pub fn is_known(&self) -> bool {
        self.cni.is_some() || self.path.name != datapath::CNI.name
    }

    /// Whether it races, as far as is known.
    pub fn races(&self) -> bool {
        self.unmet.is_empty()
    }

    /// Adds reasons why it cannot race here, if there are any.
    ///
    /// # Errors
    /// [`LabError::CannotRun`] with all reasons, if it is required.
    pub(crate) fn cannot(&mut self, why: impl IntoIterator<Item = String>) -> Result<(), LabError> {
        self.unmet.extend(why);
        match self.required && !self.races() {
            true => Err(LabError::CannotRun { path: self.name.clone(), reasons: self.unmet.join("; ") }),
            false => Ok(()),
        }
    }

    /// A data path as an experiment asks for it.
    fn requested(
        path: &'static DataPath,
        candidate: &Candidate,
        facts: &Facts,
    ) -> Result<Contender, LabError> {
        let stands_for = alone(path, candidate.in_container)?;
        let mut unmet = reasons(path, facts);
        unmet.extend(stack_unmet(candidate.stack, facts));
        unmet.extend(candidate.filter.into_iter().flat_map(|filter| filters::unmet(filter, facts)));
        if candidate.required && !unmet.is_empty() {
            return Err(LabError::CannotRun { path: path.name.to_owned(), reasons: unmet.join("; ") });
        }
        let name = candidate.title();
        let settings = settings(candidate, &name)?;
        let of = Contender { stands_for, ..Contender::of(path, unmet) };
        Ok(Contender { name, settings, ..of.with(candidate) })
    }

    /// With what an experiment asks for beside the path and the settings.
    fn with(self, candidate: &Candidate) -> Contender {
        let Candidate {
            underlay: ways,
            in_container,
            connections,
            filter,
            plant,
            proxy,
            stack,
            required,
            ..
        } = *candidate;
        let mut stands_for = self.stands_for;
        if let Some(plant) = plant {
            stands_for += &format!("; {plant}, on purpose");
        }
        if !proxy.is_empty() {
            stands_for += &format!("; {proxy}");
        }
        if !stack.is_usual() {
            stands_for += &format!("; server: {stack}");
        }
        if let Some(filter) = filter {
            stands_for += &format!("; flood: {}", filter.describe());
        }
        Contender {
            stands_for,
            in_container,
            ways,
            connections,
            filter,
            plant,
            proxy,
            stack,
            required,
            ..self
        }
    }

    fn of(path: &'static DataPath, unmet: Vec<String>) -> Contender {
        Contender {
            name: path.name.to_owned(),
            stands_for: path.stands_for.to_owned(),
            path,
            cni: None,
            settings: Settings::default(),
            in_container: Side::Both,
            ways: Ways::default(),
            connections: None,
            filter: None,
            plant: None,
            proxy: Proxies::default(),
            stack: Stack::default(),
            required: false,
            unmet,
        }
    }
}

/// What a data path stands for with these sides in containers; an error that says why where it cannot be so.
fn alone(path: &DataPath, in_container: Side) -> Result<String, LabError> {
    let (part, other) = match in_container {
        Side::Both => return Ok(path.stands_for.to_owned()),
        Side::Client => (SocketRole::Client, "server"),
        Side::Server => (SocketRole::Server, "client"),
    };
    path.alone(part)?;
    Ok(format!("{}; the {other} is on its node without a container", path.stands_for))
}

/// The settings of a candidate, which is called so.
///
/// # Errors
/// [`LabError::Settings`]: one of them is no setting, or two contradict each other.
pub(crate) fn settings(candidate: &Candidate, name: &str) -> Result<Settings, LabError> {
    let read = Settings::read(&candidate.tune).and_then(|read| read.consistent().map(|()| read));
    read.map_err(|why| LabError::Settings { candidate: name.to_owned(), why })
}

/// The contender of a CNI configuration.
fn plugins(file: &Path, required: bool, facts: &Facts, dirs: &PluginDirs) -> Result<Contender, LabError> {
    let configuration = Configuration::read(file)?;
    let (name, stands_for) = (format!("cni:{}", configuration.list.name), configuration.stands_for());
    let mut needs = [datapath::CNI.needs(), configuration.needs()].concat();
    needs.dedup();
    let mut unmet: Vec<String> = facts.unmet(&needs).iter().map(ToString::to_string).collect();
    if required && !unmet.is_empty() {
        return Err(LabError::CannotRun { path: name, reasons: unmet.join("; ") });
    }
    let cni = match CniNetwork::find(configuration, dirs) {
        Ok(network) => Some(Arc::new(network)),
        Err(error) if required => return Err(error),
        Err(error) => {
            unmet.push(format!("could not {error}"));
            None
        }
    };
    Ok(Contender { name, cni, stands_for, ..Contender::of(&datapath::CNI, unmet) })
}

/// `cni:a`, then `cni:a-2`: names distinguish candidates and their namespaces.
fn free_name(name: &str, taken: &[Contender]) -> String {
    let is_free = |name: &String| taken.iter().all(|contender| contender.name != *name);
    let mut names = std::iter::once(name.to_owned()).chain((2..).map(|number| format!("{name}-{number}")));
    names.find(is_free).expect("there is no end of numbers")
}

/// The data path of a name; otherwise an error that names the most similar one.
pub fn find(name: &str) -> Result<&'static DataPath, LabError> {
    datapath::find(name).ok_or_else(|| {
        let nearest = record::nearest(name, datapath::ALL.iter().map(|path| path.name));
        LabError::UnknownPath { name: name.to_owned(), nearest: nearest.map(str::to_owned) }
    })
}

/// A candidate's name as part of a namespace's name. The record sees to it that names differ in more than signs.
pub fn slug(name: &str) -> String {
    let sound = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '_' | '-');
    let slug: String = name.chars().map(|sign| if sound(sign) { sign } else { '-' }).collect();
    if slug.len() <= SLUG_BYTES_MAX {
        return slug;
    }
    // FNV-1a, 32 bits: long names often differ at their ends alone.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{}-{hash:08x}", &slug[..SLUG_BYTES_MAX - 9])
}

/// With the owner's id before it and a part behind it, a namespace's name has at most 64 bytes.
const SLUG_BYTES_MAX: usize = 40;

/// Why a server cannot have such a stack here.
fn stack_unmet(stack: Stack, facts: &Facts) -> Vec<String> {
    let needs: &[Feature] = match stack.kind {
        StackKind::Kernel => &[],
        StackKind::Afxdp => &[Feature::AfXdp],
        StackKind::VhostUser => &[Feature::OpenVSwitchDpdk],
        StackKind::Verbs => &[Feature::Verbs],
    };
    facts.unmet(needs).iter().map(ToString::to_string).collect()
}

fn reasons(path: &DataPath, facts: &Facts) -> Vec<String> {
    path.unmet(facts).iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
