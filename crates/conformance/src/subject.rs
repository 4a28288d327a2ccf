//! The plugin that is judged, with its configuration.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cni::{Conflist, Plugin};
use serde_json::{Map, Value};

use crate::ConformanceError;
use crate::defaults::{Defaults, configuration};

/// A plugin, its configuration, and the plugins that are called before it.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its executable, as an absolute path.
    pub program: PathBuf,
    /// Its part of the configuration, without the network's name and version.
    pub conf: Map<String, Value>,
    /// The name of the network.
    pub network: String,
    /// The plugins before it in the list, with their executables. Their ADD is called before its own.
    pub(crate) before: Vec<(PathBuf, Plugin)>,
    /// The directories of plugins.
    pub dirs: Vec<PathBuf>,
}

/// The network's name in default configurations.
const NETWORK: &str = "conformance";
/// The directory that cases have to themselves.
const HIDDEN: &str = "/run";

/// The directories in which plugins are searched that this one calls: those of `CNI_PATH` if it is given, and the
/// plugin's own and the usual ones otherwise.
pub fn search_path(program: &Path, given: Option<&str>) -> Vec<PathBuf> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match given {
        Some(given) => std::env::split_paths(given)
            .filter(|dir| !dir.as_os_str().is_empty())
            .map(|dir| absolute(&dir))
            .collect(),
        None => {
            let own = absolute(program).parent().map(Path::to_owned);
            own.into_iter().chain(["/opt/cni/bin".into(), "/usr/lib/cni".into()]).collect()
        }
    }
}

impl Subject {
    /// A plugin with the default configuration for its name.
    ///
    /// # Errors
    /// It is no executable, or there is no default for it.
    pub fn by_name(
        program: &Path,
        dirs: Vec<PathBuf>,
        defaults: &Defaults,
    ) -> Result<Subject, ConformanceError> {
        let program = found(program)?;
        let conf = configuration(&name_of(&program), defaults)?;
        Ok(Subject { program, conf, network: NETWORK.to_owned(), before: Vec::new(), dirs })
    }

    /// A plugin with its part of a network configuration: the first whose `type` is the executable's name, or the only
    /// one, whatever its type.
    ///
    /// # Errors
    /// It is no executable, the text is no configuration, or not one of this plugin.
    pub fn with_conf(program: &Path, dirs: Vec<PathBuf>, text: &str) -> Result<Subject, ConformanceError> {
        let program = found(program)?;
        let list = Conflist::parse(text).map_err(|source| ConformanceError::Conf { source })?;
        let name = name_of(&program);
        let place = match list.plugins.iter().position(|plugin| plugin.kind == name) {
            Some(place) => place,
            None if list.plugins.len() == 1 => 0,
            None => {
                let kinds: Vec<&str> = list.plugins.iter().map(|plugin| plugin.kind.as_str()).collect();
                return Err(ConformanceError::NotInConf { name, kinds: kinds.join(", ") });
            }
        };
        let before = list.plugins[..place]
            .iter()
            .map(|plugin| Ok((predecessor(&plugin.kind, &dirs)?, plugin.clone())));
        let before = before.collect::<Result<_, ConformanceError>>()?;
        let mut conf = list.plugins[place].conf.clone();
        for key in ["name", "cniVersion", "cniVersions"] {
            conf.remove(key);
        }
        Ok(Subject { program, conf, network: list.name, before, dirs })
    }

    /// The value for `CNI_PATH`: the directories, joined by colons.
    pub(crate) fn cni_path(&self) -> String {
        let dirs: Vec<_> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
        dirs.join(":")
    }

    /// The plugin for addresses that it calls; `None` if it calls none, because it keeps addresses itself or has none.
    pub(crate) fn delegate(&self) -> Option<&str> {
        let own = self.conf.get("type").and_then(Value::as_str);
        self.conf.get("ipam")?.get("type")?.as_str().filter(|kind| !kind.is_empty() && Some(*kind) != own)
    }

    /// Its configuration with addresses from this subnet alone; `None` if it is not known how to say that.
    pub(crate) fn with_subnet(&self, subnet: &str) -> Option<Map<String, Value>> {
        let ipam = self.conf.get("ipam")?.as_object()?;
        let has_ranges = ipam.get("ranges").is_some_and(Value::is_array) || ipam.get("type")? == "host-local";
        if !has_ranges {
            return None;
        }
        let mut ipam = ipam.clone();
        for key in ["subnet", "rangeStart", "rangeEnd", "gateway"] {
            ipam.remove(key);
        }
        ipam.insert("ranges".to_owned(), serde_json::json!([[{ "subnet": subnet }]]));
        let mut conf = self.conf.clone();
        conf.insert("ipam".to_owned(), ipam.into());
        Some(conf)
    }
}

fn name_of(program: &Path) -> String {
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The absolute path of an executable that cases will see.
fn found(program: &Path) -> Result<PathBuf, ConformanceError> {
    let absolute = std::path::absolute(program).unwrap_or_else(|_| program.to_owned());
    if !is_executable(&absolute) {
        return Err(ConformanceError::NoPlugin { program: program.to_owned() });
    }
    if std::fs::canonicalize(&absolute).is_ok_and(|real| real.starts_with(HIDDEN)) {
        return Err(ConformanceError::Hidden { program: program.to_owned() });
    }
    Ok(absolute)
}

fn predecessor(kind: &str, dirs: &[PathBuf]) -> Result<PathBuf, ConformanceError> {
    let found = dirs.iter().map(|dir| dir.join(kind)).find(|path| is_executable(path));
    found.ok_or_else(|| {
        let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        ConformanceError::NoPredecessor { kind: kind.to_owned(), dirs: dirs.join(":") }
    })
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"cniVersion":"1.0.0","name":"a","plugins":[
        {"type":"sh","ipam":{"type":"host-local","subnet":"10.0.0.0/24","routes":[]}},{"type":"true"}]}"#;

    fn subject(program: &str, text: &str) -> Result<Subject, ConformanceError> {
        Subject::with_conf(Path::new(program), vec!["/bin".into()], text)
    }

    #[test]
    fn the_part_of_the_plugin_is_found_by_its_type() {
        let first = subject("/bin/sh", LIST).unwrap();
        assert_eq!((first.network.as_str(), &first.conf["type"], first.before.len()), ("a", &"sh".into(), 0));
        assert_eq!((first.delegate(), first.cni_path().as_str()), (Some("host-local"), "/bin"));
        let second = subject("/bin/true", LIST).unwrap();
        assert_eq!((second.before.len(), second.before[0].0.as_path()), (1, Path::new("/bin/sh")));
        let only =
            subject("/bin/true", r#"{"cniVersion":"1.0.0","name":"a","type":"wrapped","mtu":9}"#).unwrap();
        assert_eq!(only.conf.keys().collect::<Vec<_>>(), ["mtu", "type"]);
        for (program, text, says) in [
            ("/bin/false", LIST, "none of its plugins is of type \"false\"; it has sh, true"),
            ("/bin/nothing", LIST, "/bin/nothing: it is not an executable"),
            ("/bin/sh", "{", "use the configuration: it is not JSON"),
        ] {
            let error = subject(program, text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn another_subnet_takes_the_place_of_all_ranges() {
        let conf = subject("/bin/sh", LIST).unwrap().with_subnet("10.9.0.0/30").unwrap();
        let ipam = serde_json::json!({"type":"host-local","routes":[],"ranges":[[{"subnet":"10.9.0.0/30"}]]});
        assert_eq!(conf["ipam"], ipam);
        let other = r#"{"cniVersion":"1.0.0","name":"a","type":"x","ipam":{"type":"dhcp"}}"#;
        assert_eq!(subject("/bin/sh", other).unwrap().with_subnet("10.9.0.0/30"), None);
    }

    #[test]
    fn plugins_are_searched_beside_the_plugin_first() {
        let usual = search_path(Path::new("/a/b/bridge"), None);
        assert_eq!(usual, ["/a/b", "/opt/cni/bin", "/usr/lib/cni"].map(PathBuf::from));
        assert_eq!(search_path(Path::new("/a/bridge"), Some("/x::/y")), ["/x", "/y"].map(PathBuf::from));
    }
}
