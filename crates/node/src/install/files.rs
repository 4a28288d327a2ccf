//! Files in a runtime's directories: replaced in one stroke, and distinguished from those of others.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::InstallError;
use crate::conflist::PLUGIN;
use crate::process::ABOUT;

/// The ends of the names of files that runtimes read as configurations (libcni, `ConfFiles`).
const READ_BY_RUNTIMES: [&str; 3] = ["conf", "conflist", "json"];

/// How an executable begins.
const ELF: &[u8] = b"\x7fELF";

/// Replaces a file in one stroke: a program that opens it has the old or the new one, whole. A program that runs
/// keeps its own, and none is open for writing when a runtime starts it (ETXTBSY). One process at a time replaces a
/// file.
///
/// What a killed process leaves is `.NAME.new`, which no runtime reads; the next call replaces it.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let (directory, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    let fresh = directory.join(format!(".{}.new", name.to_string_lossy()));
    let written = remove(&fresh).and_then(|()| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&fresh)?;
        file.write_all(content)?;
        // The umask may have taken bits away.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        drop(file);
        fs::rename(&fresh, path)
    });
    written.inspect_err(|_| drop(remove(&fresh)))?;
    fs::File::open(directory)?.sync_all()
}

/// Removes a file. It is no error if it is not there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The content of a file; `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, InstallError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(InstallError::file("read", path)(error)),
    }
}

/// Whether a file's content is this program, of whatever version.
pub(super) fn is_this_program(content: &[u8]) -> bool {
    content.starts_with(ELF) && memchr::memmem::find(content, ABOUT.as_bytes()).is_some()
}

/// Whether a program of this machine's has all of its bytes: linkers and `strip` write its table of sections last
/// (elf(5): `e_shoff`, `e_shentsize`, `e_shnum` of the 64-bit form; of another form nothing is known).
pub(super) fn is_whole(content: &[u8]) -> bool {
    let Some(header) = content.get(..0x40) else { return false };
    let is_64_bit = header[4] == 2;
    let short = |at: usize| u64::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    let sections = header[0x28..0x30].try_into().map_or(u64::MAX, u64::from_ne_bytes);
    let end = sections.saturating_add(short(0x3a) * short(0x3c));
    !is_64_bit || end <= content.len() as u64
}

/// The files of a directory that runtimes read, in their order. No directory has none.
pub(super) fn configurations(directory: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let failed = |error| InstallError::file("list", directory)(error);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>();
    let mut paths = paths.map_err(failed)?;
    paths.retain(|path| is_read_by_runtimes(path) && !path.is_dir());
    paths.sort();
    Ok(paths)
}

/// The files that runtimes find before a configuration in its directory.
pub(super) fn before(conflist: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let all = configurations(conflist.parent().unwrap_or(Path::new("/")))?;
    Ok(all.into_iter().take_while(|other| *other < *conflist).collect())
}

/// Whether runtimes read a file of such a name.
pub(super) fn is_read_by_runtimes(path: &Path) -> bool {
    let end = path.extension().and_then(|end| end.to_str());
    end.is_some_and(|end| READ_BY_RUNTIMES.contains(&end))
}

/// The name of the network that a configuration has our plugin for; `None` if it is none of ours. One that we would
/// refuse in other respects is still ours.
pub(super) fn network_of_ours(content: &[u8]) -> Option<String> {
    network_of(PLUGIN, content)
}

/// The same for another plugin.
pub(super) fn network_of(plugin: &str, content: &[u8]) -> Option<String> {
    let whole: Value = serde_json::from_slice(content).ok()?;
    let is_meant = |part: &Value| part.get("type").is_some_and(|kind| kind == plugin);
    let plugins = whole.get("plugins").and_then(Value::as_array);
    let has_it = is_meant(&whole) || plugins.is_some_and(|plugins| plugins.iter().any(is_meant));
    has_it.then(|| whole.get("name").and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// The configurations of a directory that have our plugin, each with its network.
pub(super) fn configurations_of_ours(directory: &Path) -> Result<Vec<(PathBuf, String)>, InstallError> {
    configurations_of(PLUGIN, directory)
}

/// The configurations of a directory that have a plugin, by its `type`, each with its network. No directory has none.
///
/// # Errors
/// The directory or a file cannot be read.
pub fn configurations_of(plugin: &str, directory: &Path) -> Result<Vec<(PathBuf, String)>, InstallError> {
    let mut found = Vec::new();
    for path in configurations(directory)? {
        // It may have gone since it was listed.
        if let Some(network) = read(&path)?.and_then(|content| network_of(plugin, &content)) {
            found.push((path, network));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_replaced_and_read_by_no_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("10-pods.conflist");
        let left = dir.path().join(".10-pods.conflist.new");
        assert!(!is_read_by_runtimes(&left));
        fs::write(&left, "{ hal").unwrap();
        fs::set_permissions(&left, Permissions::from_mode(0o400)).unwrap();
        replace(&path, b"whole", 0o644).unwrap();
        assert_eq!((fs::read(&path).unwrap(), left.exists()), (b"whole".to_vec(), false));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
    }

    #[test]
    fn a_link_is_replaced_and_not_what_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let (target, path) = (dir.path().join("target"), dir.path().join("hostgap"));
        fs::write(&target, "another's").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        replace(&path, b"ours", 0o755).unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), fs::read(&target).unwrap()),
            (b"ours".to_vec(), b"another's".to_vec())
        );
    }

    #[test]
    fn a_directory_that_cannot_be_written_keeps_what_it_has() {
        let dir = tempfile::tempdir().unwrap();
        // A directory is where the file should be.
        let path = dir.path().join("hostgap");
        fs::create_dir_all(path.join("inside")).unwrap();
        assert!(replace(&path, b"ours", 0o755).is_err());
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["hostgap"]);
    }

    #[test]
    fn this_program_is_known_by_its_content() {
        let own = fs::read("/proc/self/exe").unwrap();
        assert!(is_this_program(&own), "a test has the code, too");
        assert!(!is_this_program(&fs::read("/bin/sh").unwrap()));
        assert!(!is_this_program(ABOUT.as_bytes()), "a text is no program");
    }

    #[test]
    fn configurations_of_ours_are_distinguished_from_others() {
        let network = |text: &str| network_of_ours(text.as_bytes());
        assert_eq!(
            network(r#"{"name":"a","plugins":[{"type":"x"},{"type":"hostgap"}]}"#),
            Some("a".to_owned())
        );
        assert_eq!(network(r#"{"name":"a","cniVersion":"9","type":"hostgap"}"#), Some("a".to_owned()));
        assert_eq!(network(r#"{"plugins":[{"type":"hostgap"}]}"#), Some(String::new()));
        for other in [
            r#"{"name":"hostgap","type":"ptp"}"#,
            r#"{"plugins":[{"ipam":{"type":"hostgap"}}]}"#,
            "{",
            "",
            "7",
        ] {
            assert_eq!(network(other), None, "{other}");
        }
    }

    #[test]
    fn runtimes_read_files_in_the_order_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["20.conf", "10-b.conflist", "10-a.json", "05.conflist.bak", ".00.conflist.new", "README"]
        {
            fs::write(dir.path().join(name), "{}").unwrap();
        }
        fs::create_dir(dir.path().join("01.conf")).unwrap();
        let names: Vec<_> = configurations(dir.path()).unwrap();
        let names: Vec<_> = names.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["10-a.json", "10-b.conflist", "20.conf"]);
        assert!(configurations(&dir.path().join("none")).unwrap().is_empty());
    }
}
