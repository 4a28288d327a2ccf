//! Numbers of 16 bits for things that have long names: links, tables and Ethernet addresses are called by them.
//!
//! Each number is a symbolic link that leads to the name of its holder. To make one is atomic and fails if it is there,
//! so no lock is held. A holder exists before it takes a number and until it has given it back: a number whose holder
//! is gone was left by a process that was killed.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Numbers that are given to holders, from 1 to 65535.
#[derive(Debug)]
pub(crate) struct Numbers {
    directory: PathBuf,
}

impl Numbers {
    pub(crate) fn at(directory: PathBuf) -> Numbers {
        Numbers { directory }
    }

    /// A number for a holder. The search begins at one that follows from the name and ends at the first that is free or
    /// the holder's own, so that the same holder mostly gets the same one again.
    ///
    /// # Errors
    /// The directory cannot be written, or all numbers are taken.
    pub(crate) fn take(&self, holder: &str) -> io::Result<u16> {
        fs::create_dir_all(&self.directory)?;
        for number in wanted(holder) {
            match symlink(holder, self.path(number)) {
                Ok(()) => return Ok(number),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if self.is_of(number, holder)? {
                        return Ok(number);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(self.all_taken())
    }

    /// The number that [`Numbers::take`] would give the holder. Nothing is written.
    ///
    /// # Errors
    /// The directory cannot be read, or all numbers are taken.
    pub(crate) fn preview(&self, holder: &str) -> io::Result<u16> {
        for number in wanted(holder) {
            match fs::read_link(self.path(number)) {
                Ok(found) if found == Path::new(holder) => return Ok(number),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(number),
                Err(error) => return Err(error),
            }
        }
        Err(self.all_taken())
    }

    fn all_taken(&self) -> io::Error {
        io::Error::other(format!("all numbers in {} are taken", self.directory.display()))
    }

    /// Gives a number back. It is no error if the holder does not have it.
    pub(crate) fn give_back(&self, number: u16, holder: &str) -> io::Result<()> {
        if !self.is_of(number, holder)? {
            return Ok(());
        }
        match fs::remove_file(self.path(number)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives back the numbers of holders that are not there any more.
    pub(crate) fn sweep(&self, is_there: impl Fn(&str) -> bool) -> io::Result<()> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(number) = number else { continue };
            let holder = match fs::read_link(self.path(number)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                holder => holder?,
            };
            let Some(holder) = holder.to_str() else { continue };
            if !is_there(holder) {
                self.give_back(number, holder)?;
            }
        }
        Ok(())
    }

    fn is_of(&self, number: u16, holder: &str) -> io::Result<bool> {
        match fs::read_link(self.path(number)) {
            Ok(found) => Ok(found == Path::new(holder)),
            // It was given back meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn path(&self, number: u16) -> PathBuf {
        self.directory.join(number.to_string())
    }
}

/// All numbers, in the order in which a holder wants them.
fn wanted(holder: &str) -> impl Iterator<Item = u16> {
    let all = u32::from(u16::MAX);
    let first = hash(holder) % all;
    (0..all).map(move |step| u16::try_from((first + step) % all + 1).expect("1 to 65535"))
}

/// FNV-1a, 32 bits: the same in every build, unlike the standard library's.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_holder_keeps_its_number_and_no_two_have_one() {
        let root = tempfile::tempdir().unwrap();
        let numbers = Numbers::at(root.path().join("numbers"));
        let names: Vec<String> = (0..300).map(|at| format!("container{at}.eth0")).collect();
        let given: Vec<u16> = names.iter().map(|name| numbers.take(name).unwrap()).collect();
        assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), 300);
        assert!(given.iter().all(|number| *number > 0));
        assert_eq!(numbers.take("container7.eth0").unwrap(), given[7]);
        numbers.give_back(given[7], "container8.eth0").unwrap();
        assert_eq!(numbers.take("container7.eth0").unwrap(), given[7], "only its holder gives it back");
        assert_eq!(numbers.preview("container7.eth0").unwrap(), given[7]);
        let next = numbers.preview("container300.eth0").unwrap();
        assert!(!given.contains(&next) && !numbers.path(next).is_symlink(), "it is only shown");
        numbers.give_back(given[7], "container7.eth0").unwrap();
        numbers.give_back(given[7], "container7.eth0").unwrap();
        assert!(!numbers.is_of(given[7], "container7.eth0").unwrap());
        numbers.sweep(|holder| holder == "container9.eth0").unwrap();
        let left = fs::read_dir(root.path().join("numbers")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), [given[9].to_string().as_str()]);
    }

    #[test]
    fn numbers_that_hash_alike_go_to_the_next() {
        let root = tempfile::tempdir().unwrap();
        let numbers = Numbers::at(root.path().to_owned());
        let first = numbers.take("a").unwrap();
        // Another holder is where "b" would begin.
        let wanted = u16::try_from(hash("b") % 65535 + 1).unwrap();
        symlink("somebody", numbers.path(wanted)).unwrap();
        let second = numbers.take("b").unwrap();
        assert!(second != first && second != wanted);
    }
}
