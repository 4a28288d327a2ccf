//! The journal: what is about to be done, written and synchronised before it is done.
//!
//! A file of lines, `CRC32 JSON`, that only grows. A crash can cut the last line at any byte, and then the line was
//! never answered for: its step was not begun, or its result is found again by looking. So a damaged last line counts
//! as never written. A damaged line further up means that a program or a disk has changed the file, and undo by half
//! the truth is worse than none: that is an error. So is a line that is missing (`order`). A journal that lost whole
//! lines at its end looks like a shorter one; a [`Seal`] of it shows the difference.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, RenameFlags};

use crate::JournalError;
use crate::boot;
use crate::entry::{Entry, Header, Intent, VERSION};
use crate::lock::PRIVATE;

mod lines;
mod order;
mod seal;
mod v2;

pub(crate) use lines::Sound;
pub use lines::{Salvaged, salvage};
pub use seal::Seal;

/// Between two attempts to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// What others may do with a journal that is no unit's: read it.
const READABLE: u32 = 0o644;

impl Header {
    fn of_this_process(boot_id: &Path) -> Result<Header, JournalError> {
        Ok(Header { version: VERSION, boot_id: boot::boot_id(boot_id)?, pid: std::process::id() })
    }
}

/// An open journal. One process at a time holds one (`flock`); the kernel lets go of it when the process dies.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    header: Header,
    entries: Vec<Entry>,
    /// Of the file up to the last sound line.
    seal: Seal,
    /// A failed write that could not be taken back, or outcomes that are only remembered: nothing may
    /// follow in the file.
    broken: bool,
    /// The file goes once all of it is undone.
    is_ending: bool,
}

impl Journal {
    /// Makes a journal; the file must not exist.
    ///
    /// The header is written to a neighbouring file that is then renamed, so that a journal without a header is never
    /// seen under `path`.
    pub fn create(path: &Path) -> Result<Journal, JournalError> {
        Journal::create_with_boot_id(path, Path::new(boot::BOOT_ID))
    }

    /// The same for a journal that nobody else may read, and so lock.
    pub(crate) fn create_private(path: &Path) -> Result<Journal, JournalError> {
        let header = Header::of_this_process(Path::new(boot::BOOT_ID))?;
        Journal::write_new(path, header, Vec::new(), RenameFlags::NOREPLACE, PRIVATE)
    }

    /// As [`Journal::create`], with another file to read the boot id from.
    pub fn create_with_boot_id(path: &Path, boot_id: &Path) -> Result<Journal, JournalError> {
        let header = Header::of_this_process(boot_id)?;
        Journal::write_new(path, header, Vec::new(), RenameFlags::NOREPLACE, READABLE)
    }

    /// Puts another file in the journal's place, with the same header and these lines.
    pub(crate) fn replaced_by(self, entries: Vec<Entry>) -> Result<Journal, JournalError> {
        let header = Header { version: VERSION, ..self.header.clone() };
        let of_file = self.file.metadata().map_or(PRIVATE, |found| found.mode() & 0o777);
        Journal::write_new(&self.path, header, entries, RenameFlags::empty(), of_file)
    }

    fn write_new(
        path: &Path,
        header: Header,
        entries: Vec<Entry>,
        flags: RenameFlags,
        mode: u32,
    ) -> Result<Journal, JournalError> {
        let failed = |why| JournalError::File { attempted: "create", path: path.to_owned(), why };
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(format!(".new-{}", std::process::id()));
        let fresh = PathBuf::from(fresh);
        // A leftover of a dead process with our number; nothing was ever done under it.
        let _ = std::fs::remove_file(&fresh);
        let mut options = OpenOptions::new();
        let file =
            options.read(true).append(true).create_new(true).mode(mode).open(&fresh).map_err(failed)?;
        let mut journal = Journal {
            path: fresh.clone(),
            file,
            header: header.clone(),
            entries: Vec::new(),
            seal: Seal::default(),
            broken: false,
            is_ending: false,
        };
        let named = lock(&journal.file).map_err(failed).and_then(|()| {
            journal.append_all([vec![Entry::Header(header)], entries].concat())?;
            let cwd = rustix::fs::CWD;
            rustix::fs::renameat_with(cwd, &fresh, cwd, path, flags).map_err(|errno| failed(errno.into()))?;
            sync_directory(path).map_err(failed)
        });
        if let Err(error) = named {
            let _ = std::fs::remove_file(&fresh);
            return Err(error);
        }
        journal.path = path.to_owned();
        Ok(journal)
    }

    /// Opens a journal to undo what it holds, or to go on with it. A cut or damaged last line is removed.
    pub fn open(path: &Path) -> Result<Journal, JournalError> {
        let failed = |attempted| move |why| JournalError::File { attempted, path: path.to_owned(), why };
        let mut file = OpenOptions::new().read(true).append(true).open(path).map_err(failed("open"))?;
        let locked = lock_patiently(&file);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed("read"))?;
        let Sound { header, entries, seal } = lines::parse(path, &bytes)?;
        match locked {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(JournalError::InUse { path: path.to_owned(), pid: header.pid });
            }
            Err(error) => return Err(failed("lock")(error)),
        }
        if seal.bytes < bytes.len() as u64 {
            file.set_len(seal.bytes)
                .and_then(|()| file.sync_data())
                .map_err(failed("cut the damaged end off"))?;
        }
        Ok(Journal { path: path.to_owned(), file, header, entries, seal, broken: false, is_ending: false })
    }

    /// The path under which it was made or opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The boot id under which its steps were done.
    pub fn boot_id(&self) -> &str {
        &self.header.boot_id
    }

    /// All lines so far, the header first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// True if undo has nothing left to do.
    pub fn is_undone(&self) -> bool {
        self.is_undone_since(0)
    }

    /// True if undo has nothing left to do about this step and those after it.
    pub(crate) fn is_undone_since(&self, first: u64) -> bool {
        !self.open_intents().any(|intent| intent.seq >= first)
    }

    /// The steps that no final [`Entry::Undone`] answers, in the order of their doing.
    pub(crate) fn open_intents(&self) -> impl DoubleEndedIterator<Item = &Intent> {
        open_intents(&self.entries)
    }

    /// The number that the next step gets.
    pub(crate) fn next_seq(&self) -> u64 {
        self.seal.steps
    }

    /// Its content so far, as a number: later it shows whether the journal has lost lines or is another one.
    pub(crate) fn seal(&self) -> Seal {
        self.seal
    }

    /// Writes lines and waits once until the disk has them: those of steps of which none has begun, or of outcomes,
    /// which an interrupted undo finds again by looking.
    pub(crate) fn append_all(&mut self, entries: Vec<Entry>) -> Result<(), JournalError> {
        if entries.is_empty() {
            return Ok(());
        }
        let failed =
            |path: &Path, why| JournalError::File { attempted: "append to", path: path.to_owned(), why };
        if self.broken {
            return Err(failed(
                &self.path,
                io::Error::other("an earlier write failed and could not be taken back"),
            ));
        }
        let text: String = entries.iter().map(lines::line).collect();
        if let Err(error) = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data()) {
            // Half a line (a full disk) must not end up in the middle of the file.
            self.broken = self.file.set_len(self.seal.bytes).and_then(|()| self.file.sync_data()).is_err();
            return Err(failed(&self.path, error));
        }
        let steps = entries.iter().filter(|entry| matches!(entry, Entry::Intent(_))).count();
        self.seal = self.seal.and(text.as_bytes(), steps);
        self.entries.extend(entries);
        Ok(())
    }

    /// Says that the file goes once all of it is undone. From now on a disk without room is no obstacle: outcomes
    /// that it does not take are remembered by this value, and undo finds them again by looking if this process dies
    /// before the file goes.
    pub(crate) fn end_with_undo(&mut self) {
        self.is_ending = true;
    }

    /// Writes outcomes of undo, as [`Journal::append_all`] does.
    pub(crate) fn append_outcomes(&mut self, outcomes: Vec<Entry>) -> Result<(), JournalError> {
        if !self.is_ending {
            return self.append_all(outcomes);
        }
        if self.append_all(outcomes.clone()).is_err() {
            self.broken = true;
            self.entries.extend(outcomes);
        }
        Ok(())
    }

    /// Removes the file; to be called when undo has left nothing, or when what was done is to stay for good.
    pub fn remove(self) -> Result<(), JournalError> {
        let removed = std::fs::remove_file(&self.path).and_then(|()| sync_directory(&self.path));
        removed.map_err(|why| JournalError::File { attempted: "remove", path: self.path.clone(), why })
    }
}

impl Drop for Journal {
    /// A process that another thread is just starting holds a copy of the descriptor until it runs its program; with
    /// that copy the lock would outlive this value.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// The steps that no final [`Entry::Undone`] answers, in the order of their doing.
pub(crate) fn open_intents(entries: &[Entry]) -> impl DoubleEndedIterator<Item = &Intent> {
    let closed: BTreeSet<u64> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Undone { seq, outcome, .. } if outcome.is_final() => Some(*seq),
            Entry::Header(_) | Entry::Intent(_) | Entry::Done { .. } | Entry::Undone { .. } => None,
        })
        .collect();
    let open = move |intent: &&Intent| !closed.contains(&intent.seq);
    entries.iter().filter_map(Entry::intent).filter(open)
}

fn lock(file: &File) -> io::Result<()> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from)
}

/// Waits a moment: the lock of a killed process is held for some milliseconds by a child that was about to run its
/// program.
fn lock_patiently(file: &File) -> io::Result<()> {
    const ATTEMPTS: u32 = 20;
    for _ in 1..ATTEMPTS {
        match lock(file) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOCK_PAUSE),
            result => return result,
        }
    }
    lock(file)
}

/// Makes a new or removed name in the file's directory outlive a power failure.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests;
