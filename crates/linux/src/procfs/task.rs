//! The name and the parent of a process or thread (`/proc/<pid>/stat`).

use super::Procfs;
use crate::Result;

/// A process or thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its name, at most 15 bytes for a thread of a program: `nginx`, `ksoftirqd/0`.
    pub name: String,
    /// The process that started it; 0 for the first ones.
    pub parent: u32,
}

impl Procfs {
    /// A process, or a thread by its own number; `None` if the number is not in use.
    pub fn task(&self, number: u32) -> Result<Option<Task>> {
        let file = format!("{number}/stat");
        let Some(text) = self.read(&file)? else { return Ok(None) };
        task(&text).map(Some).ok_or_else(|| self.misread(&file, text.trim_end()))
    }
}

/// `1234 (name) S 1 …`; a name may hold spaces and brackets.
fn task(text: &str) -> Option<Task> {
    let (before, after) = text.rsplit_once(") ")?;
    let (_, name) = before.split_once(" (")?;
    let parent = after.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Task { name: name.to_owned(), parent })
}

#[cfg(test)]
mod tests {
    use super::super::fake::proc_with;
    use super::*;

    #[test]
    fn a_task_has_a_name_and_a_parent() {
        let files = [("12/stat", "12 (a (b) c) S 7 12 12 0 -1\n"), ("13/stat", "13 (x\n")];
        let (_directory, procfs) = proc_with(&files);
        let expected = Task { name: "a (b) c".to_owned(), parent: 7 };
        assert_eq!(procfs.task(12).unwrap(), Some(expected));
        assert_eq!(procfs.task(14).unwrap(), None);
        assert!(procfs.task(13).is_err());
    }

    #[test]
    fn this_process_is_found() {
        let own = Procfs::kernel().task(std::process::id()).unwrap().unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
    }
}
