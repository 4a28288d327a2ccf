//! The search for plugins in directories.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::LabError;

/// Directories of plugins, in the order in which they are searched; written as in `CNI_PATH`, with colons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginDirs(Vec<PathBuf>);

impl PluginDirs {
    /// Where runtimes keep plugins, and where Debian's package has them.
    pub const USUAL: &str = "/opt/cni/bin:/usr/lib/cni";

    /// Reads a list with colons. Plugins are started from another working directory, so the names become absolute.
    pub fn parse(text: &str) -> PluginDirs {
        let dirs = text.split(':').filter(|dir| !dir.is_empty());
        PluginDirs(dirs.map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.into())).collect())
    }

    /// The executable of a plugin.
    ///
    /// # Errors
    /// [`LabError::NoPlugin`] if no directory has one.
    pub fn find(&self, plugin: &str) -> Result<PathBuf, LabError> {
        let paths = self.0.iter().map(|dir| dir.join(plugin));
        paths
            .into_iter()
            .find(|path| is_executable(path))
            .ok_or_else(|| LabError::NoPlugin { plugin: plugin.to_owned(), dirs: self.to_string() })
    }
}

impl Default for PluginDirs {
    fn default() -> PluginDirs {
        PluginDirs::parse(PluginDirs::USUAL)
    }
}

impl fmt::Display for PluginDirs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dirs: Vec<_> = self.0.iter().map(|dir| dir.display().to_string()).collect();
        f.write_str(&dirs.join(":"))
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_directory_with_an_executable_wins_and_an_error_names_them_all() {
        let root = tempfile::tempdir().unwrap();
        for (dir, mode) in [("a", 0o644), ("b", 0o755), ("c", 0o755)] {
            let path = root.path().join(dir).join("ptp");
            std::fs::create_dir(root.path().join(dir)).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let at = root.path().display();
        let dirs = PluginDirs::parse(&format!("{at}/none:{at}/a::{at}/b:{at}/c"));
        assert_eq!(dirs.find("ptp").unwrap(), root.path().join("b/ptp"));
        let error = dirs.find("bridge").unwrap_err().to_string();
        assert!(error.contains("\"bridge\"") && error.contains(&format!("{at}/b:{at}/c")), "{error}");
        assert_eq!(PluginDirs::default().to_string(), "/opt/cni/bin:/usr/lib/cni");
    }
}
