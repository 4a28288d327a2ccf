//! What a tuning has set, as its journal lists it, and what is there now.

use std::collections::BTreeMap;

use plan::{Account, Entry, Intent, Kernel, OpenTransaction, Placed, Salvaged, StepState, Store};

use crate::HostError;

/// The contents of a journal, compared with the host.
#[derive(Debug, Default)]
pub struct JournalStatus {
    /// In the order in which they were done. A step that was repeated, for a link that appeared again or because its
    /// value had been changed, is listed once.
    pub steps: Vec<StepStatus>,
    /// Damaged lines, and why they cannot be read.
    pub damaged: Vec<(usize, String)>,
    /// Why the steps may not be complete.
    pub doubt: Option<String>,
    /// The machine was restarted since.
    pub is_restarted: bool,
}

/// A step of a tuning, and its present state.
#[derive(Debug)]
pub struct StepStatus {
    /// The step, and where it was done.
    pub placed: Placed,
    /// How what it made stands, or why that cannot be read.
    pub look: Result<StepState, String>,
    /// The value that is there now, of a step that sets one.
    pub now: Option<String>,
}

impl JournalStatus {
    /// Looks at what a store says of `standing`. This only reads; writers hold the lock.
    ///
    /// # Errors
    /// [`HostError::Journal`]: the journal cannot be read. [`HostError::Linux`]: the host cannot be looked at.
    pub fn of(store: &Store, standing: Option<&OpenTransaction>) -> Result<JournalStatus, HostError> {
        let account = store.account();
        let mut seen = match (standing, &account) {
            (Some(_), Ok(Account::Stands { .. }) | Err(_)) => JournalStatus::of_journal(store)?,
            (Some(_) | None, _) => JournalStatus::default(),
        };
        match account {
            Ok(account) => {
                seen.doubt = account.doubt().map(str::to_owned);
                seen.is_restarted = account == Account::Restarted;
            }
            Err(error) => seen.doubt = Some(format!("could not {error}")),
        }
        Ok(seen)
    }

    fn of_journal(store: &Store) -> Result<JournalStatus, HostError> {
        let path = store.journal_path();
        if !path.exists() {
            return Ok(JournalStatus::default());
        }
        let mut open: BTreeMap<u64, Intent> = BTreeMap::new();
        let mut damaged = Vec::new();
        for Salvaged { line, entry } in plan::salvage(&path)? {
            match entry {
                Ok(Entry::Intent(intent)) => drop(open.insert(intent.seq, intent)),
                Ok(Entry::Undone { seq, outcome, .. }) if outcome.is_final() => {
                    open.remove(&seq);
                }
                Ok(Entry::Header(_) | Entry::Done { .. } | Entry::Undone { .. }) => {}
                Err(why) => damaged.push((line, why)),
            }
        }
        let placed = open.into_values().map(|intent| intent.placed).collect();
        let mut kernel = Kernel::new()?;
        let steps = plan::last_of_each(placed).into_iter().map(|placed| look(placed, &mut kernel)).collect();
        Ok(JournalStatus { steps, damaged, ..JournalStatus::default() })
    }
}

fn look(placed: Placed, kernel: &mut Kernel) -> StepStatus {
    let look = plan::look(&placed, kernel).map_err(|error| error.to_string());
    let now = plan::preview(&placed, kernel).ok().flatten().map(|preview| preview.old);
    StepStatus { placed, look, now }
}
