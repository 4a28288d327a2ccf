//! A unit that this process holds: its journals, and how it ends.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::{Book, BookError, HOLD, OWNER, Owner, entries};
use crate::overwrite::overwrite;
use crate::{Journal, JournalError, Kernel, Placed, Undone, lock, undo};

/// How the name of a journal's file ends.
const JOURNAL: &str = "journal";

/// A unit, held until it is left standing, ended or dropped.
#[derive(Debug)]
pub struct Unit {
    book: Book,
    id: String,
    dir: PathBuf,
    owner: File,
    /// Locked as long as this process holds the unit.
    hold: File,
    /// What it was called when it was left standing, before this process took it over.
    note: Option<String>,
    /// It outlives this process on purpose, is gone already, or goes by [`Unit::end`] alone.
    settled: bool,
}

/// How taking back the steps of one journal went.
#[derive(Debug)]
pub struct TakenBackJournal {
    /// The journal. Its file is gone if all of it was taken back.
    pub path: PathBuf,
    /// Each step that was not taken back before, last first, and how it went; or why the journal cannot be used.
    pub steps: Result<Vec<(Placed, Undone)>, JournalError>,
}

/// The file of a journal in a unit's directory.
pub(super) fn journal_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.{JOURNAL}"))
}

impl TakenBackJournal {
    /// Whether the journal can be read and steps of it could not be taken back: another attempt may do better.
    pub fn is_kept(&self) -> bool {
        let failed = |(_, undone): &(Placed, Undone)| !undone.is_final();
        self.steps.as_ref().is_ok_and(|steps| steps.iter().any(failed))
    }
}

impl Unit {
    /// Called with the book's guard held.
    pub(super) fn begin(book: &Book, id: &str, dir: &Path) -> Result<Unit, BookError> {
        let path = dir.join(OWNER);
        let owner = File::create_new(&path).map_err(BookError::file("create", &path));
        let begun = owner.and_then(|owner| Unit::hold(book, id, dir.to_owned(), owner, None));
        // A full disk may have taken the directory and no word of its owner.
        begun.inspect_err(|_| drop(remove(dir)))
    }

    /// Called with the book's guard held, for a unit that no process holds.
    pub(super) fn take_over(
        book: &Book,
        id: &str,
        dir: PathBuf,
        note: Option<String>,
    ) -> Result<Unit, BookError> {
        let path = dir.join(OWNER);
        let owner = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let is_of_this_form = dir.join(HOLD).exists();
        let unit = Unit::hold(book, id, dir, owner.map_err(BookError::file("open", &path))?, note)?;
        if !is_of_this_form {
            for path in unit.journals()? {
                let kept = fs::set_permissions(&path, Permissions::from_mode(lock::PRIVATE));
                kept.map_err(BookError::file("close to others", &path))?;
            }
        }
        Ok(unit)
    }

    fn hold(
        book: &Book,
        id: &str,
        dir: PathBuf,
        owner: File,
        note: Option<String>,
    ) -> Result<Unit, BookError> {
        let path = dir.join(HOLD);
        let hold = lock::private(&path).map_err(BookError::file("open", &path))?;
        if !lock::take(&hold, FlockOperation::NonBlockingLockExclusive)
            .map_err(BookError::file("lock", &path))?
        {
            return Err(BookError::Held { path: dir, pid: 0 });
        }
        // For processes of earlier versions, which ask this one. Anybody can have locked it.
        let _ = lock::take(&owner, FlockOperation::NonBlockingLockExclusive);
        // Settled until it is whole: to drop it would wait for the guard, which the caller holds.
        let mut unit = Unit {
            book: book.clone(),
            id: id.to_owned(),
            dir,
            owner,
            hold,
            note: note.clone(),
            settled: true,
        };
        unit.write(note)?;
        unit.settled = false;
        Ok(unit)
    }

    /// The id, of which names can be made.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The unit's directory, in which its owner may keep files of its own.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a journal of the unit, `<name>.journal` in its directory. Of several journals the last by name
    /// is taken back first.
    ///
    /// # Errors
    /// There is one of that name, or it cannot be written.
    pub fn journal(&self, name: &str) -> Result<Journal, JournalError> {
        Journal::create_private(&journal_of(&self.dir, name))
    }

    /// The journal of that name, as it is, or a new one.
    ///
    /// # Errors
    /// It cannot be used, or cannot be made.
    pub fn journal_or_new(&self, name: &str) -> Result<Journal, JournalError> {
        let path = journal_of(&self.dir, name);
        if path.exists() { Journal::open(&path) } else { Journal::create_private(&path) }
    }

    /// The unit's journals, whether they can be read or not.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn journals(&self) -> Result<Vec<PathBuf>, BookError> {
        let mut paths = entries(&self.dir)?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == JOURNAL));
        paths.sort();
        Ok(paths)
    }

    /// Takes back the steps of all the unit's journals, the last by name first. What another program has changed
    /// meanwhile is left alone. A journal of which a step failed stays, and so does one that cannot be read. It needs
    /// no room on the disk.
    ///
    /// # Errors
    /// The directory cannot be listed, or a journal that is done with cannot be removed.
    pub fn take_back(&self, kernel: &mut Kernel) -> Result<Vec<TakenBackJournal>, BookError> {
        let mut outcomes = Vec::new();
        for path in self.journals()?.into_iter().rev() {
            let opened = Journal::open(&path);
            let steps = opened.map(|mut journal| {
                journal.end_with_undo();
                (undo(&mut journal, kernel), journal.is_undone_since(0))
            });
            if let Ok((_, true)) = &steps {
                fs::remove_file(&path).map_err(BookError::file("remove", &path))?;
            }
            outcomes.push(TakenBackJournal { path, steps: steps.map(|(steps, _)| steps) });
        }
        Ok(outcomes)
    }

    /// Says that the unit is to go: from now on it is that of a dead owner whenever it is let go of, also if it
    /// stood before, until it is ended. To be called before the first of its steps is taken back, so that what is
    /// only half there does not count as standing if this process dies. What its owner keeps in its directory
    /// stays until the end.
    ///
    /// # Errors
    /// That cannot be written down; nothing has changed then.
    pub fn give_up(&mut self) -> Result<(), BookError> {
        // As of `leave_standing`.
        let _guard = self.book.guard()?;
        self.write(None)?;
        self.settled = true;
        Ok(())
    }

    /// Lets go of the unit and leaves it standing; `note` says what stands, for those that list it.
    ///
    /// # Errors
    /// The note cannot be written; the unit then counts as that of a dead owner.
    pub fn leave_standing(mut self, note: &str) -> Result<(), BookError> {
        self.settled = true;
        // A process that looks at it meanwhile would find neither an owner nor a note.
        let _guard = self.book.guard()?;
        self.write(Some(note.to_owned()))
    }

    /// Ends the unit: its directory goes.
    ///
    /// # Errors
    /// [`BookError::NotUndone`] if it has a journal still. The unit then counts as that of a dead owner.
    pub fn end(mut self) -> Result<(), BookError> {
        self.settled = true;
        self.remove()
    }

    /// Ends the unit whatever its journals say, for an owner that has other means to see that nothing of it is left.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub fn discard(mut self) -> Result<(), BookError> {
        self.settled = true;
        let _guard = self.book.guard()?;
        remove(&self.dir)
    }

    fn remove(&self) -> Result<(), BookError> {
        let _guard = self.book.guard()?;
        match self.journals()?.into_iter().next() {
            Some(journal) => Err(BookError::NotUndone { journal }),
            None => remove(&self.dir),
        }
    }

    fn write(&mut self, standing: Option<String>) -> Result<(), BookError> {
        let text = serde_json::to_string(&Owner { pid: std::process::id(), standing })
            .expect("a number and a text can be written as JSON");
        let written = overwrite(&self.owner, &text).and_then(|()| self.owner.set_len(text.len() as u64));
        written.map_err(BookError::file("write", &self.dir.join(OWNER)))
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // Reached unsettled only on an error or a panic, whose own message matters more. What could not be undone keeps
        // its journal and the directory, and the next look finds a dead owner's unit.
        if !self.settled && self.note.is_none() {
            let _ = self.remove();
        }
        // A child that another thread has just forked holds the lock, too, until it has loaded its program.
        let _ = flock(&self.owner, FlockOperation::Unlock);
        let _ = flock(&self.hold, FlockOperation::Unlock);
    }
}

/// Removes a unit's directory. The file that makes it a unit goes last, so that it stays one if we die meanwhile.
fn remove(dir: &Path) -> Result<(), BookError> {
    for path in entries(dir)? {
        if path.ends_with(OWNER) {
            continue;
        }
        let is_dir = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(BookError::file("remove", &path))?;
    }
    fs::remove_dir_all(dir).map_err(BookError::file("remove", dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FoundUnit, UnitState};

    /// Dies between the two parts of writing down the owner of a unit that stands; what its book then says of it.
    fn found_after_a_death(note: &str) -> FoundUnit {
        let root = tempfile::tempdir().unwrap();
        let book = Book::at(root.path());
        book.begin_as("pod").unwrap().leave_standing("a pod").unwrap();
        let mut unit = book.take_over("pod").unwrap();
        let owner = Owner { pid: std::process::id(), standing: Some(note.to_owned()) };
        overwrite(&unit.owner, &serde_json::to_string(&owner).unwrap()).unwrap();
        unit.settled = true;
        drop(unit);
        book.units().unwrap().remove(0)
    }

    /// Taken over and given up with a journal that is taken back already; then its process dies, or leaves it.
    #[test]
    fn a_unit_that_is_given_up_no_longer_stands_and_stays_until_its_end() {
        let root = tempfile::tempdir().unwrap();
        let book = Book::at(root.path());
        let state = || book.find("pod").unwrap().map(|found| (found.state, found.note));
        book.begin_as("pod").unwrap().leave_standing("a pod").unwrap();
        let mut unit = book.take_over("pod").unwrap();
        fs::write(unit.dir().join("record"), "whose").unwrap();
        unit.give_up().unwrap();
        drop(unit);
        assert_eq!(state(), Some((UnitState::Dead, None)));
        assert!(root.path().join("pod/record").exists());
        let mut unit = book.take_over_dead("pod").unwrap().unwrap();
        unit.give_up().unwrap();
        unit.end().unwrap();
        assert_eq!(state(), None);
    }

    #[test]
    fn a_death_while_the_owner_is_written_keeps_what_stands() {
        for note in ["", "a pod", "a pod with a longer note than before"] {
            let found = found_after_a_death(note);
            assert_eq!((found.state, found.note.as_deref()), (UnitState::Standing, Some(note)));
        }
    }
}
