//! The journal: what is about to be done, written and synchronised before it is done.
//!
//! A file of lines, `CRC32 JSON`, that only grows. A crash can cut the last line at any byte, and then the line was
//! never answered for: its step was not begun, or its result is found again by looking. So a damaged last line counts
//! as never written. A damaged line further up means that somebody or a disk has changed the file, and undo by half
//! the truth is worse than none: that is an error.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, RenameFlags};

use crate::boot;
use crate::entry::{Entry, Header, Intent, VERSION};

/// Between two attempts to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// An open journal. One process at a time holds one (`flock`); the kernel lets go of it when the process dies.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    header: Header,
    entries: Vec<Entry>,
    /// The length of the file up to the last sound line, in bytes.
    sound_bytes: u64,
    /// A failed write that could not be taken back: nothing may follow it.
    broken: bool,
}

/// Why a journal could not be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file could not be made, read or written.
    #[error("could not {attempted} journal {path}: {source}")]
    File {
        /// "create", "open", "read", "append to", …
        attempted: &'static str,
        /// The journal.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A line in the middle is damaged.
    #[error("journal {path}, line {line} is damaged ({why}); what it held cannot be undone from it")]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// There is no sound first line.
    #[error("{path} is not a journal: it has no sound header")]
    NoHeader {
        /// The file.
        path: PathBuf,
    },
    /// It was written by another version.
    #[error("journal {path} has format {found}, this program reads {VERSION}; use the version that wrote it")]
    Version {
        /// The journal.
        path: PathBuf,
        /// The version in its header.
        found: u32,
    },
    /// Another process has it open.
    #[error(
        "journal {path} of process {pid} is in use; wait until that process, or an undo of it, has ended"
    )]
    InUse {
        /// The journal.
        path: PathBuf,
        /// The process that made it.
        pid: u32,
    },
    /// In which run of the kernel this is could not be read.
    #[error("could not read {path} for the header of a journal: {source}")]
    BootId {
        /// The file under `/proc`.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl Journal {
    /// Makes a journal; the file must not exist.
    ///
    /// The header is written to a neighbouring file that is then renamed, so that a journal without a header is never
    /// seen under `path`.
    pub fn create(path: &Path) -> Result<Journal, JournalError> {
        Journal::create_with_boot_id(path, Path::new(boot::BOOT_ID))
    }

    /// As [`Journal::create`], with another file to read the boot id from.
    pub fn create_with_boot_id(path: &Path, boot_id: &Path) -> Result<Journal, JournalError> {
        let header = Header { version: VERSION, boot_id: boot::boot_id(boot_id)?, pid: std::process::id() };
        let failed = |source| JournalError::File { attempted: "create", path: path.to_owned(), source };
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(format!(".new-{}", header.pid));
        let fresh = PathBuf::from(fresh);
        // A leftover of a dead process with our number; nothing was ever done under it.
        let _ = std::fs::remove_file(&fresh);
        let file =
            OpenOptions::new().read(true).append(true).create_new(true).open(&fresh).map_err(failed)?;
        let mut journal = Journal {
            path: fresh.clone(),
            file,
            header: header.clone(),
            entries: Vec::new(),
            sound_bytes: 0,
            broken: false,
        };
        let named = lock(&journal.file).map_err(failed).and_then(|()| {
            journal.append(Entry::Header(header))?;
            let cwd = rustix::fs::CWD;
            rustix::fs::renameat_with(cwd, &fresh, cwd, path, RenameFlags::NOREPLACE)
                .map_err(|errno| failed(errno.into()))?;
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
        let failed =
            |attempted| move |source| JournalError::File { attempted, path: path.to_owned(), source };
        let mut file = OpenOptions::new().read(true).append(true).open(path).map_err(failed("open"))?;
        let locked = lock_patiently(&file);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed("read"))?;
        let (entries, sound_bytes) = parse(path, &bytes)?;
        let Some(Entry::Header(header)) = entries.first().cloned() else {
            return Err(JournalError::NoHeader { path: path.to_owned() });
        };
        match locked {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(JournalError::InUse { path: path.to_owned(), pid: header.pid });
            }
            Err(error) => return Err(failed("lock")(error)),
        }
        let sound_bytes = sound_bytes as u64;
        if sound_bytes < bytes.len() as u64 {
            file.set_len(sound_bytes)
                .and_then(|()| file.sync_data())
                .map_err(failed("cut the damaged end off"))?;
        }
        Ok(Journal { path: path.to_owned(), file, header, entries, sound_bytes, broken: false })
    }

    /// Where it is.
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
        let closed: std::collections::BTreeSet<u64> = self
            .entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Undone { seq, outcome, .. } if outcome.is_final() => Some(*seq),
                Entry::Header(_) | Entry::Intent(_) | Entry::Done { .. } | Entry::Undone { .. } => None,
            })
            .collect();
        self.intents().filter(move |intent| !closed.contains(&intent.seq))
    }

    /// The number that the next step gets.
    pub(crate) fn next_seq(&self) -> u64 {
        self.intents().next_back().map_or(0, |intent| intent.seq + 1)
    }

    /// Writes a line and waits until the disk has it.
    pub(crate) fn append(&mut self, entry: Entry) -> Result<(), JournalError> {
        self.append_all(vec![entry])
    }

    /// Writes several lines and waits once; for outcomes only, which an interrupted undo finds again by looking.
    pub(crate) fn append_all(&mut self, entries: Vec<Entry>) -> Result<(), JournalError> {
        let failed = |path: &Path, source| JournalError::File {
            attempted: "append to",
            path: path.to_owned(),
            source,
        };
        if self.broken {
            return Err(failed(
                &self.path,
                io::Error::other("an earlier write failed and could not be taken back"),
            ));
        }
        let text: String = entries.iter().map(line).collect();
        if let Err(error) = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data()) {
            // Half a line (a full disk) must not end up in the middle of the file.
            self.broken = self.file.set_len(self.sound_bytes).and_then(|()| self.file.sync_data()).is_err();
            return Err(failed(&self.path, error));
        }
        self.sound_bytes += text.len() as u64;
        self.entries.extend(entries);
        Ok(())
    }

    /// Removes the file; to be called when undo has left nothing, or when what was done is to stay for good.
    pub fn remove(self) -> Result<(), JournalError> {
        let removed = std::fs::remove_file(&self.path).and_then(|()| sync_directory(&self.path));
        removed.map_err(|source| JournalError::File { attempted: "remove", path: self.path.clone(), source })
    }

    fn intents(&self) -> impl DoubleEndedIterator<Item = &Intent> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Intent(intent) => Some(intent),
            Entry::Header(_) | Entry::Done { .. } | Entry::Undone { .. } => None,
        })
    }
}

impl Drop for Journal {
    /// A process that another thread is just starting holds a copy of the descriptor until it runs its program; with
    /// that copy the lock would outlive this value.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// What a line of a damaged journal still proves.
#[derive(Debug)]
pub struct Salvaged {
    /// The line, from 1.
    pub line: usize,
    /// Its content, or what is wrong with it.
    pub entry: Result<Entry, String>,
}

/// Every line of a journal by itself, for people: which checksums hold, and what those lines say. Nothing is undone by
/// it, since a damaged line may be the one that says otherwise.
///
/// # Errors
/// The file cannot be read.
pub fn salvage(path: &Path) -> Result<Vec<Salvaged>, JournalError> {
    let bytes = std::fs::read(path).map_err(|source| JournalError::File {
        attempted: "read",
        path: path.to_owned(),
        source,
    })?;
    let entry = |text| {
        let json = sound_json(text)?;
        serde_json::from_str(json).map_err(|error| error.to_string())
    };
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    Ok(lines.map(|(index, text)| Salvaged { line: index + 1, entry: entry(text) }).collect())
}

/// A line as it stands in the file.
fn line(entry: &Entry) -> String {
    let json =
        serde_json::to_string(entry).expect("journal entries have only text keys and no foreign types");
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
}

/// All sound lines and their length in bytes; see the module's header for what is forgiven.
fn parse(path: &Path, bytes: &[u8]) -> Result<(Vec<Entry>, usize), JournalError> {
    let mut entries = Vec::new();
    let mut sound_bytes = 0;
    for (index, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let end = sound_bytes + text.len();
        let damaged = |why| JournalError::Damaged { path: path.to_owned(), line: index + 1, why };
        let json = match sound_json(text) {
            Ok(json) => json,
            Err(_) if end == bytes.len() => break,
            Err(why) => return Err(damaged(why)),
        };
        if index == 0 {
            check_version(path, json)?;
        }
        // A line that came whole and cannot be understood was written by other code: never to be passed over.
        let entry = serde_json::from_str(json).map_err(|error| damaged(error.to_string()))?;
        if matches!(entry, Entry::Header(_)) != (index == 0) {
            return Err(damaged("a header is the first line and no other".to_owned()));
        }
        entries.push(entry);
        sound_bytes = end;
    }
    Ok((entries, sound_bytes))
}

/// Looks at the version alone, since another version's header may hold other things.
fn check_version(path: &Path, json: &str) -> Result<(), JournalError> {
    #[derive(serde::Deserialize)]
    struct AnyHeader {
        header: AnyVersion,
    }
    #[derive(serde::Deserialize)]
    struct AnyVersion {
        version: u32,
    }
    match serde_json::from_str(json) {
        Ok(AnyHeader { header: AnyVersion { version: VERSION } }) => Ok(()),
        Ok(AnyHeader { header: AnyVersion { version: found } }) => {
            Err(JournalError::Version { path: path.to_owned(), found })
        }
        Err(_) => Err(JournalError::NoHeader { path: path.to_owned() }),
    }
}

/// The content of a line whose end and checksum are there.
fn sound_json(text: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let text = text.strip_suffix('\n').ok_or("it has no end")?;
    let (crc, json) = text.split_once(' ').ok_or("no checksum stands before its content")?;
    let expected = format!("{:08x}", crc32fast::hash(json.as_bytes()));
    if crc != expected {
        return Err(format!("its checksum is {crc:?} and its content's is {expected}"));
    }
    Ok(json)
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
