//! The configuration file: a list of plugins (`.conflist`) or a single one (`.conf`).

use std::path::Path;

use serde_json::{Map, Value};

use super::values;
use crate::LabError;

/// A network configuration, checked as far as it can be without its plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflist {
    /// The network's name.
    pub name: String,
    /// The version of the specification in which plugins are spoken to.
    pub version: String,
    /// The plugins in the order in which they add.
    pub plugins: Vec<Plugin>,
}

/// One plugin of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// The name of its executable: `ptp`.
    pub kind: String,
    /// Its part of the file, as it stands there.
    pub conf: Map<String, Value>,
}

/// Versions whose results have a list of addresses, the oldest first. Before 0.3.0 there was one of each family.
const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// The longest name, in bytes: namespaces are called after it, and their names may have 64.
const NAME_BYTES_MAX: usize = 40;
/// The greatest file in bytes. Real ones have hundreds; a file of a gigabyte is a mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The longest list. Real ones have two to five.
const PLUGINS_MAX: usize = 32;

impl Plugin {
    /// The plugin for addresses that this one calls.
    pub fn ipam(&self) -> Option<&str> {
        self.conf.get("ipam")?.get("type")?.as_str().filter(|kind| !kind.is_empty())
    }
}

impl Conflist {
    /// Reads a file.
    ///
    /// # Errors
    /// [`LabError::Conflist`] with the first thing that is wrong.
    pub fn read(file: &Path) -> Result<Conflist, LabError> {
        let wrong = |why: String| LabError::Conflist { file: file.to_owned(), why };
        let found = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?;
        if !found.is_file() || found.len() > FILE_BYTES_MAX {
            return Err(wrong(format!("a file of at most {FILE_BYTES_MAX} bytes is expected")));
        }
        let bytes = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        Conflist::parse(&text).map_err(wrong)
    }

    /// Reads a text; the error says what is wrong, in words.
    pub fn parse(text: &str) -> Result<Conflist, String> {
        let whole: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let Value::Object(whole) = whole else {
            return Err("it is not a JSON object".to_owned());
        };
        let name = name(&whole)?;
        let version = version(&whole)?;
        let plugins = match (whole.get("plugins"), whole.get("type")) {
            (Some(Value::Array(plugins)), _) => plugins.clone(),
            (Some(_), _) => return Err("`plugins` is not a list".to_owned()),
            // The older form: the plugin's configuration is the file.
            (None, Some(_)) => vec![Value::Object(whole)],
            (None, None) => {
                return Err("it has neither `plugins`, a list, nor `type`, a single plugin".to_owned());
            }
        };
        if !(1..=PLUGINS_MAX).contains(&plugins.len()) {
            return Err(format!("`plugins` has {} entries; 1 to {PLUGINS_MAX} are expected", plugins.len()));
        }
        let plugins = plugins.into_iter().enumerate().map(|(index, conf)| plugin(index, conf));
        Ok(Conflist { name, version, plugins: plugins.collect::<Result<_, _>>()? })
    }
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match object.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("`{key}` is {other}, and a text is expected")),
    }
}

/// "Must start with an alphanumeric character, optionally followed by any combination of one or more alphanumeric
/// characters, underscore, dot (.) or hyphen (-)" (specification, section 1).
fn name(whole: &Map<String, Value>) -> Result<String, String> {
    let name = text(whole, "name")?.ok_or("it has no `name`")?;
    let inner = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(inner) {
        return Err(format!(
            "`name` is {name:?}; letters, digits, `_`, `.` and `-` are expected, and a letter or digit first"
        ));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!(
            "`name` has {} bytes; namespaces are called after it, {NAME_BYTES_MAX} are the most",
            name.len()
        ));
    }
    Ok(name.to_owned())
}

/// The highest version that both know: of `cniVersions` (since 1.1.0), else `cniVersion`.
fn version(whole: &Map<String, Value>) -> Result<String, String> {
    let known = || VERSIONS.join(", ");
    if let Some(offered) = whole.get("cniVersions") {
        let offered = offered.as_array().ok_or("`cniVersions` is not a list")?;
        let best = VERSIONS.iter().rev().find(|known| offered.iter().any(|one| one == **known));
        if let Some(best) = best {
            return Ok((*best).to_owned());
        }
    }
    match text(whole, "cniVersion")? {
        None => Err(format!("it has no `cniVersion`; {} are understood", known())),
        Some(version) if VERSIONS.contains(&version) => Ok(version.to_owned()),
        Some(version) => Err(format!("`cniVersion` is {version:?}; {} are understood", known())),
    }
}

fn plugin(index: usize, conf: Value) -> Result<Plugin, String> {
    let which = format!("plugin {}", index + 1);
    let Value::Object(conf) = conf else {
        return Err(format!("{which} is not an object"));
    };
    let in_it = |why: String| format!("{which}: {why}");
    let kind = text(&conf, "type").map_err(in_it)?.unwrap_or_default().to_owned();
    executable(&kind).map_err(in_it)?;
    if let Some(ipam) = conf.get("ipam") {
        let Value::Object(ipam) = ipam else { return Err(in_it("`ipam` is not an object".to_owned())) };
        // For some plugins an empty `ipam` means that there are no addresses to assign.
        if let Some(kind) = text(ipam, "type").map_err(in_it)?.filter(|kind| !kind.is_empty()) {
            executable(kind).map_err(in_it)?;
        }
    }
    let plugin = Plugin { kind, conf };
    values::check(&plugin.conf).map_err(in_it)?;
    Ok(plugin)
}

/// A `type` becomes a path: it must stay below the directories of plugins.
fn executable(kind: &str) -> Result<(), String> {
    if kind.is_empty() {
        return Err("it has no `type`, the name of the plugin's executable".to_owned());
    }
    if kind.contains(['/', '\0']) || kind == "." || kind == ".." {
        return Err(format!("`type` is {kind:?}; the name of an executable without a path is expected"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, says: &str) {
        let error = Conflist::parse(text).expect_err(text);
        assert!(error.contains(says), "{says:?} is not in {error:?}");
    }

    #[test]
    fn a_list_and_a_single_plugin_are_read() {
        let list = r#"{"cniVersion":"1.0.0","name":"a","disableCheck":true,"plugins":[
            {"type":"ptp","ipam":{"type":"host-local"}},{"type":"tuning","ipam":{}}]}"#;
        let list = Conflist::parse(list).unwrap();
        assert_eq!((list.name.as_str(), list.version.as_str()), ("a", "1.0.0"));
        assert_eq!(list.stands_for(), "CNI ptp + host-local + tuning");
        let single = Conflist::parse(r#"{"cniVersion":"0.3.1","name":"a.b-c_9","type":"macvlan"}"#).unwrap();
        assert_eq!((single.stands_for().as_str(), single.plugins.len()), ("CNI macvlan", 1));
        assert_eq!(single.needs(), [Feature::Macvlan]);
    }

    use linux::features::Feature;

    #[test]
    fn the_newest_version_that_both_know_is_spoken() {
        let with = |versions: &str| {
            Conflist::parse(&format!(r#"{{{versions},"name":"a","type":"ptp"}}"#)).map(|list| list.version)
        };
        assert_eq!(with(r#""cniVersion":"0.4.0","cniVersions":["0.4.0","1.1.0","9.0.0"]"#).unwrap(), "1.1.0");
        assert_eq!(with(r#""cniVersion":"0.4.0","cniVersions":["9.0.0"]"#).unwrap(), "0.4.0");
        assert!(with(r#""cniVersion":"0.2.0""#).unwrap_err().contains("0.3.0, 0.3.1"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        check("", "it is not JSON: EOF");
        check("{\"name\": nonsense}", "it is not JSON: expected");
        check(&"[".repeat(100_000), "it is not JSON: recursion limit");
        check("[]", "it is not a JSON object");
        check(r#"{"cniVersion":"1.0.0","plugins":[]}"#, "it has no `name`");
        check(r#"{"name":7}"#, "`name` is 7, and a text is expected");
        check(r#"{"name":"../etc"}"#, "`name` is \"../etc\"");
        check(&format!(r#"{{"name":"{}"}}"#, "a".repeat(41)), "`name` has 41 bytes");
        check(r#"{"name":"a"}"#, "it has no `cniVersion`");
        check(r#"{"name":"a","cniVersion":1}"#, "`cniVersion` is 1, and a text is expected");
        check(r#"{"name":"a","cniVersion":"2.0.0"}"#, "`cniVersion` is \"2.0.0\"");
        let with = |plugins: &str| format!(r#"{{"cniVersion":"1.0.0","name":"a","plugins":{plugins}}}"#);
        check(r#"{"cniVersion":"1.0.0","name":"a"}"#, "neither `plugins`");
        check(&with("{}"), "`plugins` is not a list");
        check(&with("[]"), "`plugins` has 0 entries");
        check(&with(r#"["ptp"]"#), "plugin 1 is not an object");
        check(&with(r#"[{"type":"ptp"},{}]"#), "plugin 2: it has no `type`");
        check(&with(r#"[{"type":"../../bin/sh"}]"#), "without a path");
        check(&with(r#"[{"type":".."}]"#), "without a path");
        check(&with(r#"[{"type":"ptp","ipam":"host-local"}]"#), "`ipam` is not an object");
        check(&with(r#"[{"type":"ptp","ipam":{"type":"/bin/sh"}}]"#), "without a path");
        check(&with(r#"[{"type":"ptp","mtu":"${MTTU}"}]"#), "`${MTTU}`");
    }

    #[test]
    fn a_file_that_is_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let large = dir.path().join("large.conflist");
        std::fs::File::create(&large).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        let binary = dir.path().join("binary");
        std::fs::write(&binary, [0xff, 0xfe]).unwrap();
        for (file, says) in [
            (dir.path().join("none"), "No such file"),
            (dir.path().to_owned(), "a file of at most"),
            (large, "a file of at most"),
            (binary, "not UTF-8"),
        ] {
            let error = Conflist::read(&file).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(file.to_str().unwrap()), "{error}");
        }
    }
}
