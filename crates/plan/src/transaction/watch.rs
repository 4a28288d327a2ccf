//! The watcher: a process of its own that takes a transaction back unless it is confirmed.
//!
//! It shares nothing with the process that applies but the store, so that this may die at any moment. It acts on what
//! the files say and holds the lock while it does.

use std::fs::File;
use std::time::{Duration, Instant};

use linux::latency::{self, Hold};

use super::{LOCK_WAIT, Phase, Store, TakenBack, TransactionError, Why, failed};
use crate::{Kernel, lock};

/// How long to sleep between two looks at the files.
const PAUSE: Duration = Duration::from_millis(50);

/// How long to wait after a first attempt that failed, and at most after later ones. Each attempt makes the journal
/// longer.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// A process that watches, as others see it by its lock.
#[derive(Debug)]
pub struct Watcher {
    store: Store,
    id: String,
    _lock: File,
    /// What ends with the watcher.
    hold: Option<Hold>,
}

/// Why a watcher ended.
#[derive(Debug)]
pub enum WatchEnd {
    /// It was confirmed, or taken back by another process.
    Settled,
    /// The watcher has taken it back.
    TakenBack(Why, TakenBack),
}

impl Watcher {
    /// Becomes the watcher of what stands. From here on the process that applies may go on.
    ///
    /// # Errors
    /// Nothing stands, or it has a watcher.
    pub fn of(store: &Store) -> Result<Watcher, TransactionError> {
        let Some(standing) = store.standing()? else {
            return Err(TransactionError::Nothing { what: "watched over" });
        };
        let path = store.watch_path();
        // The watcher of one that was taken back a moment ago may not have seen that yet.
        let taken = LOCK_WAIT.until(|| false, || lock::try_exclusive(&path));
        let taken = taken.map_err(failed("lock", &path))?;
        let lock = taken.ok_or(TransactionError::InUse { path })?;
        let hold = standing.cpu_latency_us.map(latency::hold).transpose()?;
        Ok(Watcher { store: store.clone(), id: standing.id, _lock: lock, hold })
    }

    /// Watches until it is confirmed or taken back. When `stop` returns true, this process is to end: what is
    /// unconfirmed is then taken back at once, since nothing would watch over it any more.
    ///
    /// What cannot be taken back is tried again, less and less often, as long as this process may: a driver that is
    /// busy and a machine without memory recover, and a user who is cut off can do nothing.
    ///
    /// # Errors
    /// It could not be taken back when this process was to end; the journal is kept.
    pub fn watch(self, kernel: &mut Kernel, stop: impl Fn() -> bool) -> Result<WatchEnd, TransactionError> {
        let mut retry = Retry::default();
        loop {
            match self.phase() {
                None => return Ok(WatchEnd::Settled),
                // What is held must go on being held.
                Some(Phase::Confirmed) if self.hold.is_none() || stop() => return Ok(WatchEnd::Settled),
                Some(
                    Phase::Confirmed | Phase::Applying | Phase::Unconfirmed { .. } | Phase::Extending { .. },
                ) => {}
            }
            if self.reason(&stop).is_some() && (retry.is_due() || stop()) {
                match self.take_back(kernel, &stop) {
                    Ok(None) => {}
                    Ok(Some((why, back))) if back.is_whole => {
                        // What was there before something was added to it still stands, and so does what is held.
                        if self.phase() != Some(Phase::Confirmed) {
                            return Ok(WatchEnd::TakenBack(why, back));
                        }
                        retry = Retry::default();
                    }
                    Ok(Some((why, back))) if stop() => return Ok(WatchEnd::TakenBack(why, back)),
                    Err(error) if stop() => return Err(error),
                    Ok(Some(_)) | Err(_) => retry.put_off(),
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Takes it back if there is a reason and no other process is at work on it. Only the holder of the lock changes
    /// anything: with it in hand, what the files say is how it is.
    fn take_back(
        &self,
        kernel: &mut Kernel,
        stop: &impl Fn() -> bool,
    ) -> Result<Option<(Why, TakenBack)>, TransactionError> {
        let Some(held) = self.store.try_hold()? else { return Ok(None) };
        let Some(why) = self.reason(stop) else { return Ok(None) };
        Ok(Some((why, held.take_back(kernel, why)?)))
    }

    /// Why it is to be taken back now, if it is: a reason to try for the lock, and to act with it.
    fn reason(&self, stop: &impl Fn() -> bool) -> Option<Why> {
        match self.phase()? {
            // If the lock is free, it is not whole, and the process that was at work on it is dead.
            Phase::Applying | Phase::Extending { .. } => Some(Why::Died),
            Phase::Unconfirmed { .. } if stop() => Some(Why::Unwatched),
            Phase::Unconfirmed { deadline_ns } if linux::clock::boot_ns() >= deadline_ns => {
                Some(Why::Unconfirmed)
            }
            Phase::Unconfirmed { .. } | Phase::Confirmed => None,
        }
    }

    /// How far the transaction is that is watched over; `None` if it is no more. A file that cannot be read counts as
    /// unconfirmed and due: what is in doubt must not stay.
    fn phase(&self) -> Option<Phase> {
        match self.store.standing() {
            Ok(Some(standing)) if standing.id == self.id => Some(standing.phase),
            Ok(_) => None,
            Err(_) => Some(Phase::Unconfirmed { deadline_ns: 0 }),
        }
    }
}

/// When to try again what has failed.
struct Retry {
    due: Option<Instant>,
    pause: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { due: None, pause: RETRY }
    }
}

impl Retry {
    fn is_due(&self) -> bool {
        self.due.is_none_or(|due| Instant::now() >= due)
    }

    fn put_off(&mut self) {
        self.due = Some(Instant::now() + self.pause);
        self.pause = RETRY_MAX.min(2 * self.pause);
    }
}
