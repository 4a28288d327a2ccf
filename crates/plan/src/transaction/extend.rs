//! More for a transaction that is confirmed: a link appeared again, and gets what its predecessor had.
//!
//! There is one way back for both. The journal that stands is opened again and the new steps are written behind the old
//! ones, each before it is done; the old value of a new step is what is there now. Taking back goes from the last to
//! the first: the steps of the new link are undone on it (a link is known by its index, never by its name alone), those
//! of the link that is gone are reported as gone, and a parameter that was set twice goes back by way of what it was
//! between.
//!
//! # What a death leaves
//!
//! `standing.json` is written twice, and the journal grows between. Whichever process dies, the lock is free
//! afterwards, and what is on disk is one of these:
//!
//! 1. *Confirmed*, the journal as it was, perhaps a file `room`: nothing was begun. The next command writes that file
//!    again or removes it.
//! 2. *Extending from n*, and the journal ends with step n − 1, somewhere in a step, or with the last one. The steps
//!    from
//!    n on are taken back, and `standing.json` says *confirmed* again. The watcher does that, or if it is dead too, the
//!    next command that takes the lock. Whether step n − 1 was whole need not be asked: what was confirmed was whole.
//! 3. As 2, and some of the steps from n on are answered for in the journal as undone: taking back was interrupted. It
//!    is done again, which a step that is answered for does not notice.
//! 4. *Confirmed*, and the journal has steps from n on that are all done, or all undone: it was whole, or it was taken
//!    back whole. Both stand as they should.
//!
//! The last write is the border between 2 and 4: a death between the last step and it takes back what was done, which
//! is the safe side. Only a user who asks for all of it takes the steps before n back, by `rollback`, which needs
//! neither the number nor the phase.
//!
//! A program of before this that finds *extending* does not know the word, says that the file is damaged, and touches
//! nothing.

use super::{Account, LockedStore, OpenTransaction, Phase, TransactionError};
use crate::{Journal, Plan};

impl LockedStore {
    /// Writes down that a plan is added to what is confirmed, and makes room for its journal. The plan is
    /// done by [`LockedStore::apply`], and stays from [`LockedStore::await_confirmation`] on, which has
    /// nothing to wait for then.
    ///
    /// # Errors
    /// Nothing stands, or it is not confirmed; there is no room; the journal cannot be gone on with. Nothing was
    /// changed then.
    pub fn extend(&self, plan: &Plan) -> Result<(OpenTransaction, Journal), TransactionError> {
        let Some(standing) = self.store.standing()? else {
            return Err(TransactionError::Nothing { what: "added to" });
        };
        if standing.phase != Phase::Confirmed || !matches!(self.store.account()?, Account::Stands { .. }) {
            return Err(TransactionError::Stands { id: standing.id, phase: standing.phase });
        }
        let journal = Journal::open(&self.store.journal_path())?;
        self.reserve(plan)?;
        let from = journal.next_seq();
        match self.enter(standing, Phase::Extending { from }) {
            Ok(standing) => Ok((standing, journal)),
            Err(error) => {
                self.give_up_room();
                Err(error)
            }
        }
    }

    /// Opens the journal of what is being applied once more: for steps that were not known before the first ones were
    /// done, such as those for interrupts of queues that were not there. They are done by [`LockedStore::apply`] too,
    /// and taken back with the first.
    ///
    /// # Errors
    /// There is no room, or the journal cannot be gone on with.
    pub fn go_on(&self, plan: &Plan) -> Result<Journal, TransactionError> {
        let journal = Journal::open(&self.store.journal_path())?;
        self.reserve(plan)?;
        Ok(journal)
    }
}
