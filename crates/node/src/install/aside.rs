//! Configurations of another plugin, set aside where runtimes do not read them, and put back.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::InstallError;
use super::files::{configurations_of, network_of, read, remove};

/// What is added to the name of a file that is set aside. No runtime reads a file whose name ends so.
const ASIDE: &str = ".before-hostgap";

/// Where a file is that is set aside.
pub fn aside_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ASIDE);
    name.into()
}

/// Sets the configurations of a plugin aside, and says where they were. A runtime finds each of them or not at all.
///
/// # Errors
/// A file cannot be read or renamed. Those before it are set aside.
pub fn set_aside(plugin: &str, directory: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let mut moved = Vec::new();
    for (path, _) in configurations_of(plugin, directory)? {
        fs::rename(&path, aside_of(&path)).map_err(InstallError::file("set aside", &path))?;
        moved.push(path);
    }
    Ok(moved)
}

/// Puts all back that was set aside in a directory, and says where it is now. Where a newer file has
/// the place, that stays.
///
/// # Errors
/// The directory cannot be read, or a file cannot be renamed. Those before it are back.
pub fn put_back(directory: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let mut back = Vec::new();
    for path in all_aside(directory)? {
        let aside = aside_of(&path);
        if path.exists() {
            remove(&aside).map_err(InstallError::file("remove", &aside))?;
        } else {
            fs::rename(&aside, &path).map_err(InstallError::file("put back", &path))?;
        }
        back.push(path);
    }
    Ok(back)
}

/// The places of what is set aside in a directory.
///
/// # Errors
/// The directory cannot be read.
pub fn all_aside(directory: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let failed = |error| InstallError::file("list", directory)(error);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut places = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let place = name.to_str().and_then(|name| name.strip_suffix(ASIDE));
        places.extend(place.map(|name| directory.join(name)));
    }
    places.sort();
    Ok(places)
}

/// The configurations of a plugin that are set aside in a directory, each by the path that it has
/// there, with its network.
///
/// # Errors
/// The directory or a file cannot be read.
pub fn configurations_aside(plugin: &str, directory: &Path) -> Result<Vec<(PathBuf, String)>, InstallError> {
    let mut found = Vec::new();
    for path in all_aside(directory)?.iter().map(|place| aside_of(place)) {
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

    const FLANNEL: &str = r#"{"name":"cbr0","plugins":[{"type":"flannel"},{"type":"portmap"}]}"#;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_set_aside_is_read_by_no_runtime_and_comes_back_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("10-flannel.conflist"), FLANNEL).unwrap();
        fs::write(at("20-other.conflist"), r#"{"name":"x","plugins":[{"type":"ptp"}]}"#).unwrap();
        assert_eq!(set_aside("flannel", directory.path()).unwrap(), [at("10-flannel.conflist")]);
        assert_eq!(set_aside("flannel", directory.path()).unwrap(), [""; 0].map(PathBuf::from));
        assert_eq!(names(directory.path()), ["10-flannel.conflist.before-hostgap", "20-other.conflist"]);
        let aside = (at("10-flannel.conflist.before-hostgap"), "cbr0".to_owned());
        assert_eq!(configurations_aside("flannel", directory.path()).unwrap(), [aside]);
        assert!(configurations_aside("ptp", directory.path()).unwrap().is_empty());
        assert_eq!(put_back(directory.path()).unwrap(), [at("10-flannel.conflist")]);
        assert_eq!(names(directory.path()), ["10-flannel.conflist", "20-other.conflist"]);
        assert_eq!(fs::read_to_string(at("10-flannel.conflist")).unwrap(), FLANNEL);
        assert!(put_back(&at("none")).unwrap().is_empty());
    }

    #[test]
    fn a_newer_configuration_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("10-flannel.conflist");
        fs::write(&path, FLANNEL).unwrap();
        set_aside("flannel", directory.path()).unwrap();
        fs::write(&path, "newer").unwrap();
        put_back(directory.path()).unwrap();
        assert_eq!(names(directory.path()), ["10-flannel.conflist"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
    }
}
