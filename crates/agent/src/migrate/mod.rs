//! A node of flannel's becomes one of the agent's, and one of flannel's again, without a packet lost.
//!
//! flannel's devices, routes and rules are the kernel's and stay when `flanneld` ends. So nothing is made anew: the
//! tunnel device is noted in the network's journal and used as it is, name and Ethernet address included, and the agent
//! that begins then takes each of flannel's routes, neighbours and forwarding entries over in one step. The journal
//! keeps what was there, and puts it back. What changes at once is only what containers get that come from now on.

mod back;
mod error;
mod find;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use datapath::Attach;
use linux::{features, sysctl};
use node::install::{self, RuntimeDirs};
use node::{Home, Network};
use plan::{Keeper, Kernel, Placed, Plan, Set, Step};

pub use self::back::{GivenBack, give_back};
pub use self::error::MigrateError;
pub use self::find::{Bridge, Flannel, find};
use crate::desired::FLANNEL_PART;
use crate::files::{self, Environment};
use crate::installation::{NOTE, installation};
use crate::settings::attach_of;

/// The `type` of flannel's plugin in a runtime's configuration.
const PLUGIN: &str = "flannel";
/// The attach that makes a bridge with the first address of the node's prefix, as flannel's has it.
const BRIDGE: &str = "bridge";

/// Where things are on this node.
#[derive(Debug, Clone)]
pub struct Site<'a> {
    /// The book of hostgap's units on this node.
    pub home: &'a Home,
    /// Where container runtimes look; `None`: that is left alone.
    pub runtime: Option<&'a RuntimeDirs>,
    /// The file in which flanneld writes the node's prefix and MTU, usually `/run/flannel/subnet.env`.
    pub subnet_env: &'a Path,
}

/// What was done for container runtimes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Switched {
    /// flannel's configurations that were set aside, or put back.
    pub of_flannel: Vec<PathBuf>,
    /// Ours that was written, or those that were removed.
    pub ours: Vec<PathBuf>,
}

/// Takes a node over from flannel: its tunnel devices go into the journals of the network, and containers get `pods`
/// from now on. A call that was killed is completed by another one, or taken back by [`give_back`].
///
/// # Errors
/// The node cannot be taken over as it is, or a step or a file cannot be written; what was done until then stays.
pub fn take_over(
    site: &Site<'_>,
    flannel: &Flannel,
    pods: &Network,
    kernel: &mut Kernel,
) -> Result<Switched, MigrateError> {
    check(site, flannel, pods)?;
    let mut keeper = Keeper::open(&site.home.node_networks(), &pods.name, NOTE)?;
    let parts = with_standing(flannel.parts(), keeper.parts());
    let kept = keeper.keep(&parts, kernel)?;
    if let Some(error) = kept.failed.into_values().next() {
        return Err(error.into());
    }
    keep_environment(site.subnet_env, flannel)?;
    let Some(dirs) = site.runtime else { return Ok(Switched::default()) };
    let facts = features::probe_some(&install::needs(pods)?)?;
    // Ours first: a runtime always finds one.
    let installed = installation(site.home, &facts, dirs, pods).install()?;
    let of_flannel = install::set_aside(PLUGIN, &dirs.conf)?;
    Ok(Switched { of_flannel, ours: vec![installed.conflist.0] })
}

/// Parts with what else stands: an earlier call, or an agent, may have made it.
fn with_standing(
    mut parts: BTreeMap<String, Plan>,
    standing: &BTreeMap<String, Plan>,
) -> BTreeMap<String, Plan> {
    let is_same = |one: &Placed, other: &Placed| match (one.step.link(), other.step.link()) {
        (Some(one), Some(other)) => one.name == other.name,
        _ => one == other,
    };
    for (name, plan) in standing {
        let part = parts.entry(name.clone()).or_default();
        let is_new = |placed: &&Placed| !part.steps.iter().any(|other| is_same(other, placed));
        let more: Vec<Placed> = plan.steps.iter().filter(is_new).cloned().collect();
        part.steps.extend(more);
    }
    parts
}

/// What is minded of flannel on a node that was taken over; `None`: it was not. What its bridge no longer
/// has is left out.
///
/// # Errors
/// In words: pods of the attach cannot be there beside flannel's bridge.
pub(crate) fn of_flannel(standing: &BTreeMap<String, Plan>, attach: &str) -> Result<Option<Plan>, String> {
    let Some(part) = standing.get(FLANNEL_PART) else { return Ok(None) };
    let is_there = |placed: &&Placed| match &placed.step {
        Step::Set(Set::Sysctl(set)) => !matches!(sysctl::read(&set.key), Ok(None)),
        _ => true,
    };
    let steps: Vec<Placed> = part.steps.iter().filter(is_there).cloned().collect();
    if attach == BRIDGE && !steps.is_empty() {
        return Err(format!("this agent cannot {}; choose another --attach", MigrateError::Bridge));
    }
    Ok(Some(Plan { steps }))
}

/// Whether a node can be taken over.
///
/// # Errors
/// Why not.
pub fn check(site: &Site<'_>, flannel: &Flannel, pods: &Network) -> Result<(), MigrateError> {
    find::refuse_running()?;
    if let Some((path, network)) = taken_as_other(site.home, &pods.name)? {
        return Err(MigrateError::Named { path, network, given: pods.name.clone() });
    }
    refuse_others_environment(site, flannel, &pods.name)?;
    if pods.attach == BRIDGE && flannel.bridge.is_some() {
        return Err(MigrateError::Bridge);
    }
    let is_on_wire = attach_of(&pods.attach).is_some_and(Attach::leaves_by_wire);
    if is_on_wire && !flannel.tunnels.is_empty() {
        return Err(MigrateError::OnWire { attach: pods.attach.clone() });
    }
    let Some(dirs) = site.runtime else { return Ok(()) };
    let found = install::configurations_of(PLUGIN, &dirs.conf)?;
    // After an earlier call they are set aside.
    for (path, network) in found.into_iter().chain(install::configurations_aside(PLUGIN, &dirs.conf)?) {
        if network != pods.name {
            return Err(MigrateError::Named { path, network, given: pods.name.clone() });
        }
    }
    let facts = features::probe_some(&install::needs(pods)?)?;
    installation(site.home, &facts, dirs, pods).preview()?;
    Ok(())
}

/// Another network as which the node was taken over, with its directory, unless it was taken over as the
/// one that is given.
fn taken_as_other(home: &Home, network: &str) -> Result<Option<(PathBuf, String)>, MigrateError> {
    let book = home.node_networks();
    if Keeper::part(&book, network, FLANNEL_PART)?.is_some() {
        return Ok(None);
    }
    for unit in book.units()? {
        if Keeper::part(&book, &unit.id, FLANNEL_PART)?.is_some() {
            return Ok(Some((book.path().join(&unit.id), unit.id)));
        }
    }
    Ok(None)
}

/// Refuses an environment file that says nothing of flannel's since an agent has written it, or
/// that another network's has.
fn refuse_others_environment(site: &Site<'_>, flannel: &Flannel, network: &str) -> Result<(), MigrateError> {
    let Some(owner) = flannel.environment.owner.clone() else { return Ok(()) };
    let path = site.subnet_env.to_owned();
    let is_taken = Keeper::part(&site.home.node_networks(), &owner, FLANNEL_PART)?.is_some();
    if !is_taken && !kept_environment(&path).exists() {
        return Err(MigrateError::Agents { path, network: owner });
    }
    if owner != network {
        return Err(MigrateError::Named { path, network: owner, given: network.to_owned() });
    }
    Ok(())
}

/// The network that containers get, by another attach and with all else as flannel has it.
pub fn pods_of(flannel: &Flannel, network: &str, attach: &str) -> Network {
    Network {
        name: network.to_owned(),
        attach: attach.to_owned(),
        subnets: flannel.environment.subnets().iter().collect(),
        prefixes: flannel.environment.networks.clone(),
        wire: None,
        mtu: flannel.environment.mtu,
        masquerade: flannel.environment.masquerades,
        anti_spoofing: None,
        host_link: attach_of(attach).is_some_and(Attach::takes_host_link),
        // The agent adds it: until then the ways are flannel's, which are there.
        readiness_file: None,
    }
}

/// Where flannel's environment file is kept: the agent writes its own.
fn kept_environment(path: &Path) -> PathBuf {
    install::aside_of(path)
}

/// Keeps the file that flanneld has written. Where an agent has written it since, an earlier call has kept it.
fn keep_environment(path: &Path, flannel: &Flannel) -> Result<(), MigrateError> {
    if flannel.environment.owner.is_some() {
        return Ok(());
    }
    let kept = kept_environment(path);
    let text = fs::read_to_string(path).map_err(MigrateError::file("read", path))?;
    files::replace(&kept, &text).map(drop).map_err(MigrateError::file("write", &kept))
}

/// Puts flannel's file back. Where none was kept, since the machine was restarted, that of the network's agent goes all
/// the same: it says that the ways to other nodes are there.
fn put_environment_back(path: &Path, network: &str) -> Result<(), MigrateError> {
    match fs::rename(kept_environment(path), path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let written = Environment::read(path).unwrap_or_default();
            if written.owner.as_deref() != Some(network) {
                return Ok(());
            }
            fs::remove_file(path).map_err(MigrateError::file("remove", path))
        }
        done => done.map_err(MigrateError::file("put back", path)),
    }
}
