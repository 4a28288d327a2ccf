//! A node that was flannel's is given back to it.

use std::collections::BTreeSet;

use linux::IfName;
use linux::netlink::Netlink;
use node::install::{self, InstallError};
use plan::{Before, Book, Displaced, Entry, Intent, Journal, Keeper, Kernel, Step, TakenBackJournal};

use super::{
    MigrateError, PLUGIN, Site, Switched, find, kept_environment, put_environment_back, taken_as_other,
};
use crate::desired::{FLANNEL_PART, is_of_peer};
use crate::files::Environment;

/// What was given back.
#[derive(Debug)]
pub struct GivenBack {
    /// The files of container runtimes.
    pub switched: Switched,
    /// To how many nodes the way is left as the agent made it, since flannel knew none or another one.
    pub left: usize,
    /// How the network's journals were taken back.
    pub journals: Vec<TakenBackJournal>,
}

/// Gives a node back to flannel: what was displaced is put back. Ways that flannel did not have stay, until flanneld
/// makes its own in their place. A call that was killed is completed by another one.
///
/// # Errors
/// The node was not taken over, an agent runs, or containers are attached that flannel's plugin could not take away.
pub fn give_back(site: &Site<'_>, network: &str, kernel: &mut Kernel) -> Result<GivenBack, MigrateError> {
    find::refuse_running()?;
    refuse_other(site, network)?;
    let book = site.home.node_networks();
    let is_kept = Keeper::part(&book, network, FLANNEL_PART)?.is_some();
    let conf = site.runtime.map(|dirs| install::all_aside(&dirs.conf)).transpose()?.unwrap_or_default();
    if !is_kept && conf.is_empty() && !kept_environment(site.subnet_env).exists() {
        return Err(MigrateError::NotTaken { network: network.to_owned() });
    }
    let attachments = site.home.standing_attachments();
    let attachments = attachments
        .map_err(|failure| InstallError::Node { doing: "list the attachments of this node", failure })?;
    let attached = attachments.iter().filter(|one| one.network == network).count();
    if attached > 0 {
        return Err(MigrateError::Attached { network: network.to_owned(), attached });
    }
    // After a restart of the machine, an agent has made the network anew.
    let stands = book.find(network)?.is_some();
    if stands {
        // No agent runs.
        drop(book.take_over(network)?);
    }
    let left = if is_kept { leave_new_ways(&book, network)? } else { 0 };
    let switched = site.runtime.map_or(Ok(Switched::default()), |dirs| {
        let of_flannel = install::put_back(&dirs.conf)?;
        let removed = install::uninstall(site.home, dirs, Some(network))?;
        Ok::<_, MigrateError>(Switched { of_flannel, ours: removed.conflists })
    })?;
    let journals = if stands { Keeper::take_back(&book, network, kernel)? } else { Vec::new() };
    if !journals.iter().any(TakenBackJournal::is_kept) {
        put_environment_back(site.subnet_env, network)?;
    }
    Ok(GivenBack { switched, left, journals })
}

/// Refuses a name under which the node was not taken over: its files are another network's, whose agent may run.
fn refuse_other(site: &Site<'_>, network: &str) -> Result<(), MigrateError> {
    let dirs = site.runtime.map(|dirs| install::configurations_aside(PLUGIN, &dirs.conf));
    let mut files = dirs.transpose()?.unwrap_or_default();
    files.extend(taken_as_other(site.home, network)?);
    if files.is_empty() {
        let path = site.subnet_env;
        let owner = Environment::read(path).unwrap_or_default().owner;
        files.extend(owner.map(|owner| (path.to_owned(), owner)));
    }
    match files.into_iter().find(|(_, other)| other != network) {
        Some((path, other)) => Err(MigrateError::Other { path, network: other, given: network.to_owned() }),
        None => Ok(()),
    }
}

/// Forgets the parts of nodes to which flannel had no way, or another one: to take them back would leave these nodes
/// without, or with one that leads nowhere any more.
fn leave_new_ways(book: &Book, network: &str) -> Result<usize, MigrateError> {
    let netlink = Netlink::open()?;
    let unit = book.take_over(network)?;
    let mut left = 0;
    for path in unit.journals()? {
        if !path.file_stem().is_some_and(|part| is_of_peer(&part.to_string_lossy())) {
            continue;
        }
        // One that cannot be read keeps nothing else: taking it back reports it.
        let Ok(journal) = Journal::open(&path) else { continue };
        if !is_as_before(&journal, &netlink)? {
            journal.remove()?;
            left += 1;
        }
    }
    Ok(left)
}

/// Whether all that a journal has made has the place of the same.
fn is_as_before(journal: &Journal, netlink: &Netlink) -> Result<bool, linux::Error> {
    let undone: BTreeSet<u64> = journal
        .entries()
        .iter()
        .filter_map(|entry| match entry {
            Entry::Undone { seq, outcome, .. } if outcome.is_final() => Some(*seq),
            _ => None,
        })
        .collect();
    let standing: Vec<&Intent> = journal
        .entries()
        .iter()
        .filter_map(|entry| match entry {
            Entry::Intent(intent) if !undone.contains(&intent.seq) => Some(intent),
            _ => None,
        })
        .collect();
    let tunnels = standing.iter().filter_map(|intent| match &intent.placed.step {
        Step::ReplaceFdb(entry) => Some(&entry.dev),
        _ => None,
    });
    let tunnels: BTreeSet<&IfName> = tunnels.collect();
    for intent in standing {
        if !has_its_like(intent, &tunnels, netlink)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a step has the place of what leads to the same node. An MTU makes no other way of a route. To which node one
/// into a tunnel leads, the forwarding entry says: its next hop stands for an Ethernet address.
fn has_its_like(
    Intent { placed, before, .. }: &Intent,
    tunnels: &BTreeSet<&IfName>,
    netlink: &Netlink,
) -> Result<bool, linux::Error> {
    Ok(match (&placed.step, before) {
        (Step::ReplaceRoute(route), Before::Displaced(Displaced::Route(was))) => {
            let index = netlink.link(&route.dev)?.map(|link| link.index);
            index.is_some_and(|index| {
                was.links() == [index] && (tunnels.contains(&route.dev) || was.leads_to(route.via))
            })
        }
        (Step::ReplaceFdb(entry), Before::Displaced(Displaced::Fdb(was))) => was == entry,
        (Step::ReplaceRoute(_) | Step::ReplaceFdb(_), _) => false,
        _ => true,
    })
}
