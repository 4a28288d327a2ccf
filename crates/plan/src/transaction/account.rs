//! What the files of a store prove of what stands, before anything is taken back by them.
//!
//! Each file shows whether a program or a disk has changed it: the lines of the journal have checksums and an order;
//! `standing.json` has a checksum, and knows by a [`Seal`](crate::Seal) what the journal was when all was done. Until
//! then it is unknown how much it would have been: a death, and a journal that lost whole lines at its end, look the
//! same. Both must agree on the run of the machine, too. If they contradict each other, that is an error and nothing is
//! touched; what one of them alone says is taken back, with the doubt that stays.

use super::{OpenTransaction, Store, TransactionError, state, this_boot};
use crate::entry::Intent;
use crate::journal::{Sound, open_intents};

/// What stands, as far as the files prove it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Account {
    /// No step of a tuning stands.
    Nothing,
    /// Something stood, and a restart of the machine has taken all of it back.
    Restarted,
    /// Some steps were done in this run of the kernel and not taken back.
    Stands {
        /// Those that are not taken back yet, in the order of their doing.
        open: Vec<Intent>,
        /// Why these may not be all of them; `None`: they are.
        doubt: Option<String>,
    },
}

impl Store {
    /// What the files prove. They are only read; a change at this moment may be seen half-way.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or contradicts the other.
    pub fn account(&self) -> Result<Account, TransactionError> {
        self.account_in(&this_boot()?)
    }

    /// As [`Store::account`], in a run of the kernel with another id.
    ///
    /// # Errors
    /// As there.
    pub fn account_in(&self, boot_id: &str) -> Result<Account, TransactionError> {
        let files = Files { store: self, boot_id };
        // The journal last: it may have grown since, and then begins as it was.
        let standing = state::read(&self.standing_path());
        let journal = Sound::read(&self.journal_path());
        match standing {
            Ok(Some(standing)) if standing.boot_id != boot_id => match journal {
                Ok(Some((journal, _))) if journal.header.boot_id == boot_id => Err(files
                    .contradiction("its steps are newer than the last restart, and standing.json is older")),
                Ok(_) | Err(_) => Ok(Account::Restarted),
            },
            Ok(Some(standing)) => files.of_this_run(&standing, journal?),
            Ok(None) => match journal? {
                // A process that died at the beginning, or while all was forgotten, leaves it so.
                Some((journal, _)) if open_intents(&journal.entries).next().is_some() => {
                    Ok(files.of_journal(&journal, "standing.json is not there"))
                }
                Some(_) | None => Ok(Account::Nothing),
            },
            Err(damaged) => match journal? {
                Some((journal, _)) => Ok(files.of_journal(&journal, &damaged.to_string())),
                None => Err(damaged),
            },
        }
    }
}

/// The files, and the run of the machine in which they are read.
struct Files<'a> {
    store: &'a Store,
    boot_id: &'a str,
}

impl Files<'_> {
    /// Both are to be there: of the two the journal is made first and removed last.
    fn of_this_run(
        &self,
        standing: &OpenTransaction,
        journal: Option<(Sound, Vec<u8>)>,
    ) -> Result<Account, TransactionError> {
        let Some((journal, bytes)) = journal else {
            let why = "it is gone, and with it the way back; what was set stays as it is";
            return Err(self.contradiction(why));
        };
        if journal.header.boot_id != self.boot_id {
            let why = "it is older than the last restart, and standing.json is newer";
            return Err(self.contradiction(why));
        }
        standing.seal.check(&journal.seal, &bytes).map_err(|why| self.contradiction(&why))?;
        Ok(Account::Stands { open: open_intents(&journal.entries).cloned().collect(), doubt: None })
    }

    /// What the journal proves where `standing.json` is missing.
    fn of_journal(&self, journal: &Sound, why_alone: &str) -> Account {
        if journal.header.boot_id != self.boot_id {
            return Account::Restarted;
        }
        let doubt =
            format!("{why_alone}, and a journal does not show by itself that its last steps are lost");
        Account::Stands { open: open_intents(&journal.entries).cloned().collect(), doubt: Some(doubt) }
    }

    fn contradiction(&self, why: &str) -> TransactionError {
        TransactionError::Damaged { path: self.store.journal_path(), why: why.to_owned() }
    }
}

impl Account {
    /// Why what stands may not be all that was set.
    pub fn doubt(&self) -> Option<&str> {
        match self {
            Account::Stands { doubt, .. } => doubt.as_deref(),
            Account::Nothing | Account::Restarted => None,
        }
    }
}
