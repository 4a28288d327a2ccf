//! A folder in a parent that goes with the last one in it, while other processes make and remove theirs.

use std::fs;
use std::io;
use std::path::Path;

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
