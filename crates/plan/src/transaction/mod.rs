//! A plan that stays only if it is confirmed: applied, watched over, confirmed or taken back.
//!
//! A [`Store`] is a directory that holds one transaction at a time: `lock` is held by the process that changes it,
//! `standing.json` says how far it is, `journal` is the way back, `watch` is locked by the process that takes it back
//! unless it is confirmed, and `last.json` says how the one before ended. What is locked nobody else may read: whoever
//! can read a file can lock it, and nothing would be taken back meanwhile.
//!
//! The order in which the files are written is what makes it safe. `standing.json` and the journal are on disk, with
//! room for all of it, before the watcher is started; the watcher says that it watches before the first step is done.
//! So whatever dies, and when, there is a journal, and a process that reads it: the watcher, or after its death too the
//! next command. A restart of the machine takes all of it back by itself, since nothing here outlives the kernel; the
//! journal does, with the boot id, so that the next command can say so.

mod account;
mod error;
mod extend;
mod phase;
mod room;
mod state;
mod watch;

pub use account::Account;
pub use error::TransactionError;
pub use phase::Phase;
pub use state::{EndedTransaction, OpenTransaction, Why};
pub use watch::{WatchEnd, Watcher};

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Journal, Kernel, Placed, Plan, Undone, apply, boot, lock, undo::undo_since};
use state::Extent;

/// How long another command may take until it is an error that it is there: undoing takes some milliseconds.
const LOCK_WAIT: lock::LockWait =
    lock::LockWait { patience: Some(Duration::from_secs(2)), pause: Duration::from_millis(20) };

/// Where a transaction is kept.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

/// The store, locked: no other process changes it meanwhile.
#[derive(Debug)]
pub struct LockedStore {
    store: Store,
    _lock: File,
}

/// How taking back went.
#[derive(Debug)]
pub struct TakenBack {
    /// Each step, last first, and how it went.
    pub steps: Vec<(Placed, Undone)>,
    /// False: some steps failed, and the journal is kept for another attempt.
    pub is_whole: bool,
    /// A restart of the machine had taken all of it back already.
    pub rebooted: bool,
    /// Why these may not have been all the steps.
    pub doubt: Option<String>,
}

impl Store {
    /// A directory, made when something is first kept there.
    pub fn at(root: impl Into<PathBuf>) -> Store {
        Store { root: root.into() }
    }

    /// The directory of its files.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The journal, whether it is there or not.
    pub fn journal_path(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// What stands; `None` if nothing does.
    ///
    /// # Errors
    /// The file cannot be read, or not understood.
    pub fn standing(&self) -> Result<Option<OpenTransaction>, TransactionError> {
        state::read(&self.standing_path())
    }

    /// How the last one ended; `None` if there was none, or if the file cannot be read.
    pub fn last(&self) -> Option<EndedTransaction> {
        state::read_ended(&self.root.join("last.json"))
    }

    /// Whether a watcher lives.
    pub fn is_watched(&self) -> bool {
        File::open(self.watch_path()).is_ok_and(|file| lock::is_held(&file))
    }

    /// Takes the lock, and waits for two seconds if another command has it.
    ///
    /// # Errors
    /// [`TransactionError::InUse`] after that time.
    pub fn hold(&self) -> Result<LockedStore, TransactionError> {
        let held = LOCK_WAIT.until(|| false, || self.try_hold())?;
        held.ok_or_else(|| TransactionError::InUse { path: self.root.clone() })
    }

    /// Takes the lock if it is free.
    fn try_hold(&self) -> Result<Option<LockedStore>, TransactionError> {
        fs::create_dir_all(&self.root).map_err(failed("create", &self.root))?;
        let path = self.root.join("lock");
        let Some(lock) = lock::try_exclusive(&path).map_err(failed("lock", &path))? else { return Ok(None) };
        // Of an earlier version. Whoever can lock them can keep what stands from being taken back.
        for path in [self.journal_path(), self.watch_path()] {
            lock::close_to_others(&path).map_err(failed("close to others", &path))?;
        }
        Ok(Some(LockedStore { store: self.clone(), _lock: lock }))
    }

    fn standing_path(&self) -> PathBuf {
        self.root.join("standing.json")
    }

    fn watch_path(&self) -> PathBuf {
        self.root.join("watch")
    }
}

impl LockedStore {
    /// The store that is held.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Writes down that a transaction begins, and makes room for its journal: until this returns, and until a watcher
    /// watches, nothing may be changed. The watcher holds the limit on the latency of CPUs, in microseconds, if one is
    /// given. `about` is for the caller to remember.
    ///
    /// # Errors
    /// One stands already, or the files cannot be written.
    pub fn begin(
        &self,
        plan: &Plan,
        cpu_latency_us: Option<u32>,
        about: serde_json::Value,
    ) -> Result<(OpenTransaction, Journal), TransactionError> {
        if let Some(standing) = self.store.standing()? {
            return Err(TransactionError::Stands { id: standing.id, phase: standing.phase });
        }
        let path = self.store.journal_path();
        // A process that forgot one, since it was taken back or a restart had reset it, died before the journal was
        // gone too.
        if matches!(self.store.account(), Ok(Account::Nothing | Account::Restarted)) {
            self.forget()?;
        }
        if path.exists() {
            let why = "found a journal without standing.json".to_owned();
            return Err(TransactionError::Damaged { path, why });
        }
        self.reserve(plan)?;
        // The journal first: from here on, standing.json without a journal means that the journal was lost.
        let begun = Journal::create_private(&path).map_err(TransactionError::from).and_then(|journal| {
            let standing = OpenTransaction::begin(journal.seal(), cpu_latency_us, about)?;
            state::write(&self.store.standing_path(), &standing)?;
            Ok((standing, journal))
        });
        match begun {
            Ok(begun) => Ok(begun),
            Err(error) => {
                let _ = self.forget();
                Err(error)
            }
        }
    }

    /// Does the plan that [`LockedStore::begin`] or [`LockedStore::extend`] has written down. If a step fails, those of
    /// this plan before it are taken back at once.
    ///
    /// # Errors
    /// [`TransactionError::Apply`] with how taking back went.
    pub fn apply(
        &self,
        standing: &OpenTransaction,
        plan: &Plan,
        journal: Journal,
        kernel: &mut Kernel,
    ) -> Result<(), TransactionError> {
        let mut journal = journal;
        match apply(plan, &mut journal, kernel) {
            Ok(_) => Ok(()),
            Err(why) => {
                let back = self.undo(journal, kernel, Why::Failed, standing.loose(), None)?;
                Err(TransactionError::Apply { why: Box::new(why), back })
            }
        }
    }

    /// Writes down that all is done, and until when it is to be confirmed; `None`: it was confirmed before.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn await_confirmation(
        &self,
        standing: OpenTransaction,
        patience: Option<Duration>,
    ) -> Result<OpenTransaction, TransactionError> {
        self.give_up_room();
        let phase = patience.map_or(Phase::Confirmed, |patience| Phase::Unconfirmed {
            deadline_ns: linux::clock::boot_ns()
                .saturating_add(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX)),
        });
        let seal = Journal::open(&self.store.journal_path())?.seal();
        self.enter(OpenTransaction { seal, ..standing }, phase)
    }

    /// Lets it stay.
    ///
    /// # Errors
    /// None stands that is unconfirmed, or the machine was restarted since, or the files do not prove it.
    pub fn confirm(&self) -> Result<OpenTransaction, TransactionError> {
        match (self.store.account()?, self.store.standing()?) {
            (Account::Stands { .. }, Some(standing)) => match standing.phase {
                Phase::Unconfirmed { .. } => self.enter(standing, Phase::Confirmed),
                Phase::Confirmed | Phase::Extending { .. } => {
                    Err(TransactionError::Stands { id: standing.id, phase: standing.phase })
                }
                Phase::Applying => Err(TransactionError::Nothing { what: "confirmed" }),
            },
            (Account::Nothing | Account::Restarted | Account::Stands { .. }, _) => {
                Err(TransactionError::Nothing { what: "confirmed" })
            }
        }
    }

    /// Takes it back, by the journal alone: all of it if a user asks for that, otherwise only what is not
    /// confirmed. What another program has changed meanwhile is left alone.
    ///
    /// # Errors
    /// There is none, or [`Store::account`] cannot say what stands. Nothing was changed then.
    pub fn take_back(&self, kernel: &mut Kernel, why: Why) -> Result<TakenBack, TransactionError> {
        let doubt = match self.store.account()? {
            Account::Nothing => return Err(TransactionError::Nothing { what: "rolled back" }),
            Account::Restarted => {
                let standing = self.store.standing().ok().flatten();
                self.note_end(&EndedTransaction::restarted(standing.as_ref(), why));
                self.forget()?;
                return Ok(TakenBack { steps: Vec::new(), is_whole: true, rebooted: true, doubt: None });
            }
            Account::Stands { doubt, .. } => doubt,
        };
        let extent = match self.store.standing() {
            Ok(Some(standing)) if why != Why::Asked => standing.loose(),
            Ok(_) | Err(_) => Extent::All,
        };
        let journal = Journal::open(&self.store.journal_path())?;
        self.undo(journal, kernel, why, extent, doubt)
    }

    /// Forgets what stands without taking it back: for a journal that cannot be read any more.
    ///
    /// # Errors
    /// The files cannot be removed.
    pub fn forget(&self) -> Result<(), TransactionError> {
        // What says that it stands goes first: a journal that is left alone says itself whether all of it is taken
        // back.
        for path in [self.store.standing_path(), self.store.journal_path(), self.room_path()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path)(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn undo(
        &self,
        journal: Journal,
        kernel: &mut Kernel,
        why: Why,
        extent: Extent,
        doubt: Option<String>,
    ) -> Result<TakenBack, TransactionError> {
        // The outcomes are written too, and the disk may be full by now.
        self.give_up_room();
        let mut journal = journal;
        if extent == Extent::All {
            // What is confirmed has no room to give up any more, and the journal is to go.
            journal.end_with_undo();
        }
        let steps = undo_since(&mut journal, extent.first(), kernel);
        let is_whole = journal.is_undone_since(extent.first());
        drop(journal);
        if is_whole {
            let standing = self.store.standing().ok().flatten();
            self.note_end(&EndedTransaction::now(standing.as_ref(), extent, why, &steps, doubt.clone()));
            self.end(extent, standing)?;
        }
        Ok(TakenBack { steps, is_whole, rebooted: false, doubt })
    }

    /// How it ended is for people: that it cannot be written must not keep it from ending.
    fn note_end(&self, ended: &EndedTransaction) {
        let _ = state::write(&self.store.root.join("last.json"), ended);
    }

    fn end(&self, extent: Extent, standing: Option<OpenTransaction>) -> Result<(), TransactionError> {
        match (extent, standing) {
            (Extent::Addition { .. }, Some(standing)) => self.enter(standing, Phase::Confirmed).map(drop),
            (Extent::Addition { .. }, None) | (Extent::All, _) => self.forget(),
        }
    }

    fn enter(&self, standing: OpenTransaction, phase: Phase) -> Result<OpenTransaction, TransactionError> {
        let standing = OpenTransaction { phase, ..standing };
        state::write(&self.store.standing_path(), &standing)?;
        Ok(standing)
    }
}

fn failed(attempted: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TransactionError {
    move |why| TransactionError::File { attempted, path: path.to_owned(), why }
}

/// The id of this run of the kernel.
fn this_boot() -> Result<String, TransactionError> {
    Ok(boot::boot_id(Path::new(boot::BOOT_ID))?)
}
