//! A folder in a parent that goes with the last one in it, while other processes make and remove theirs.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::Attempt;
use crate::{Error, Result};

/// How often others may be quicker before it is given up.
const TRIES: u32 = 100;

/// Makes a folder, and its parent if it is missing. `AlreadyExists` if the folder exists.
///
/// An existing parent is no error and is not inspected: `create_dir_all` checks whether it is a directory, and fails
/// if another program has just removed it.
pub fn create(folder: &Path) -> io::Result<()> {
    let parent = folder.parent().expect("it lies below another");
    let mut created = Ok(());
    for _ in 0..TRIES {
        match fs::create_dir(parent) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        created = fs::create_dir(folder);
        match &created {
            // Another process removed the last one, and with it the parent, in between.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => break,
        }
    }
    created
}

/// Removes a folder with all in it, and its parent with the last. None is no error.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::new(format!("remove {}", folder.display()), error));
        }
        _ => {}
    }
    // While there is another, it stays.
    let _ = fs::remove_dir(folder.parent().expect("it lies below another"));
    Ok(())
}

/// The names of all folders in a parent; none where that is missing.
pub(crate) fn names(parent: &Path) -> Result<Vec<String>> {
    let attempted = || format!("list {}", parent.display());
    let listed = match fs::read_dir(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.attempt(attempted)?,
    };
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    listed.map(name).collect::<io::Result<_>>().attempt(attempted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_the_last_does_not_disturb_others() {
        let top = tempfile::tempdir().unwrap();
        let parent = top.path().join("parent");
        std::thread::scope(|scope| {
            for name in ["a", "b", "c"] {
                let folder = parent.join(name);
                scope.spawn(move || {
                    for _ in 0..2000 {
                        create(&folder).unwrap();
                        assert_eq!(create(&folder).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
                        fs::remove_dir(&folder).unwrap();
                        let _ = fs::remove_dir(folder.parent().unwrap());
                    }
                });
            }
        });
        assert!(!parent.exists());
    }

    #[test]
    fn a_parent_that_cannot_be_made_is_an_error() {
        let top = tempfile::tempdir().unwrap();
        let error = create(&top.path().join("missing/parent/folder")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
