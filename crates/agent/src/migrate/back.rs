//! A node that was flannel's is given back to it.

use std::collections::BTreeSet;

use node::install::{self, InstallError};
use plan::{
    Before, Book, BookError, Displaced, Entry, Intent, Journal, Keeper, Kernel, Step, TakenBackJournal,
};

use super::{MigrateError, Site, Switched, find, kept_environment, put_environment_back};
use crate::desired::{FLANNEL_PART, is_of_peer};

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

/// Gives a node back to flannel: what was displaced is put back. Ways that flannel did not have stay, until flanneld makes
/// its own in their place. A call that was killed is completed by another one.
///
/// # Errors
/// The node was not taken over, an agent runs, or containers are attached that flannel's plugin could not take away.
pub fn give_back(site: &Site<'_>, network: &str, kernel: &mut Kernel) -> Result<GivenBack, MigrateError> {
    find::refuse_running()?;
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
        put_environment_back(site.subnet_env)?;
    }
    Ok(GivenBack { switched, left, journals })
}

/// Forgets the parts of nodes to which flannel had no way, or another one: to take them back would leave these nodes
/// without, or with one that leads nowhere any more.
fn leave_new_ways(book: &Book, network: &str) -> Result<usize, BookError> {
    let unit = book.take_over(network)?;
    let mut left = 0;
    for path in unit.journals()? {
        if !path.file_stem().is_some_and(|part| is_of_peer(&part.to_string_lossy())) {
            continue;
        }
        let journal = Journal::open(&path)?;
        if !is_as_before(&journal) {
            journal.remove()?;
            left += 1;
        }
    }
    Ok(left)
}

/// Whether all that a journal has made has the place of the same.
fn is_as_before(journal: &Journal) -> bool {
    let undone: BTreeSet<u64> = journal
        .entries()
        .iter()
        .filter_map(|entry| match entry {
            Entry::Undone { seq, outcome, .. } if outcome.is_final() => Some(*seq),
            _ => None,
        })
        .collect();
    let is_same = |Intent { placed, before, .. }: &Intent| match (&placed.step, before) {
        (Step::ReplaceRoute(_), before) => matches!(before, Before::Displaced(_)),
        (Step::ReplaceFdb(entry), Before::Displaced(Displaced::Fdb(was))) => was == entry,
        (Step::ReplaceFdb(_), _) => false,
        _ => true,
    };
    journal.entries().iter().all(|entry| match entry {
        Entry::Intent(intent) => undone.contains(&intent.seq) || is_same(intent),
        _ => true,
    })
}
