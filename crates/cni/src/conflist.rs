//! The network configuration: a list of plugins (`.conflist`), or before 1.0.0 a single one (`.conf`) too (section 1).

use serde_json::{Map, Value};

use crate::name::{RULE, is_name};
use crate::{UnknownVersion, Version};

/// A network configuration, checked as far as it can be without its plugins.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Conflist {
    pub name: String,
    /// The version of the specification in which plugins are spoken to.
    pub version: Version,
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

/// Why a text is no network configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConflistError {
    /// The text is no JSON.
    #[error("it is not JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// It is JSON, and no object.
    #[error("it is not a JSON object")]
    NoObject,
    /// A value has another type than it should.
    #[error(transparent)]
    NoText(#[from] NoText),
    /// The network has no name.
    #[error("it has no `name`")]
    NoName,
    /// The name has other signs than a name may have.
    #[error("`name` is {0:?}; {RULE}")]
    Name(String),
    /// No version is given.
    #[error("it has no `cniVersion`; {list} are understood", list = Version::list())]
    NoVersion,
    /// The version is none that we know.
    #[error("`cniVersion` is {0}")]
    Version(#[from] UnknownVersion),
    /// The versions are no list.
    #[error("`cniVersions` is not a list")]
    VersionsNoList,
    /// The plugins are no list.
    #[error("`plugins` is not a list")]
    PluginsNoList,
    /// There are no plugins.
    #[error("it has neither `plugins`, a list, nor `type`, a single plugin")]
    NoPlugins,
    /// The list of plugins is empty, or much too long.
    #[error("`plugins` has {0} entries; 1 to {PLUGINS_MAX} are expected")]
    PluginCount(usize),
    /// A plugin's part is no object.
    #[error("plugin {0} is not an object")]
    PluginNoObject(usize),
    /// A plugin's part is wrong.
    #[error("plugin {number}: {source}")]
    Plugin {
        /// Its place in the list, from 1.
        number: usize,
        /// What is wrong with the plugin's part.
        source: PluginError,
    },
}

/// Why a plugin's part of a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// A value has another type than it should.
    #[error(transparent)]
    NoText(#[from] NoText),
    /// What concerns addresses is no object.
    #[error("`ipam` is not an object")]
    IpamNoObject,
    /// The plugin is not named.
    #[error("it has no `type`, the name of the plugin's executable")]
    NoType,
    /// The name would lead out of the directories of plugins.
    #[error("`type` is {0:?}; the name of an executable without a path is expected")]
    Type(String),
}

/// A value that should be a text.
#[derive(Debug, thiserror::Error)]
#[error("`{key}` is {found}, and a text is expected")]
#[expect(missing_docs, reason = "the names say it")]
pub struct NoText {
    pub key: &'static str,
    /// The value in the text's place.
    pub found: Value,
}

/// The longest list. Real ones have two to five.
const PLUGINS_MAX: usize = 32;

impl Plugin {
    /// The plugin for addresses that this one calls (section 4).
    pub fn ipam(&self) -> Option<&str> {
        self.conf.get("ipam")?.get("type")?.as_str().filter(|kind| !kind.is_empty())
    }
}

impl Conflist {
    /// Reads a text.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str) -> Result<Conflist, ConflistError> {
        let whole: Value = serde_json::from_str(text).map_err(ConflistError::Json)?;
        let Value::Object(whole) = whole else {
            return Err(ConflistError::NoObject);
        };
        let name = name(&whole)?;
        let version = version(&whole)?;
        let plugins = match (whole.get("plugins"), whole.get("type")) {
            (Some(Value::Array(plugins)), _) => plugins.clone(),
            (Some(_), _) => return Err(ConflistError::PluginsNoList),
            // The older form: the plugin's configuration is the file.
            (None, Some(_)) => vec![Value::Object(whole)],
            (None, None) => return Err(ConflistError::NoPlugins),
        };
        if !(1..=PLUGINS_MAX).contains(&plugins.len()) {
            return Err(ConflistError::PluginCount(plugins.len()));
        }
        let plugins = (1..).zip(plugins).map(|(number, conf)| match conf {
            Value::Object(conf) => plugin(conf).map_err(|source| ConflistError::Plugin { number, source }),
            _ => Err(ConflistError::PluginNoObject(number)),
        });
        Ok(Conflist { name, version, plugins: plugins.collect::<Result<_, _>>()? })
    }

    /// The names of all executables: each plugin, and behind it the one for addresses that it calls.
    pub fn executables(&self) -> impl Iterator<Item = &str> {
        self.plugins.iter().flat_map(|plugin| std::iter::once(plugin.kind.as_str()).chain(plugin.ipam()))
    }
}

fn text<'a>(object: &'a Map<String, Value>, key: &'static str) -> Result<Option<&'a str>, NoText> {
    match object.get(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(found) => Err(NoText { key, found: found.clone() }),
    }
}

fn name(whole: &Map<String, Value>) -> Result<String, ConflistError> {
    let name = text(whole, "name")?.ok_or(ConflistError::NoName)?;
    if !is_name(name) {
        return Err(ConflistError::Name(name.to_owned()));
    }
    Ok(name.to_owned())
}

/// The highest version that both know, of `cniVersion` and `cniVersions` (since 1.1.0) together.
fn version(whole: &Map<String, Value>) -> Result<Version, ConflistError> {
    let alone = text(whole, "cniVersion")?;
    if let Some(offered) = whole.get("cniVersions") {
        let offered = offered.as_array().ok_or(ConflistError::VersionsNoList)?;
        let is_offered = |known: &Version| {
            alone == Some(known.as_str()) || offered.iter().any(|one| one == known.as_str())
        };
        if let Some(best) = Version::ALL.into_iter().rev().find(is_offered) {
            return Ok(best);
        }
    }
    Ok(alone.ok_or(ConflistError::NoVersion)?.parse()?)
}

fn plugin(conf: Map<String, Value>) -> Result<Plugin, PluginError> {
    let kind = text(&conf, "type")?.unwrap_or_default().to_owned();
    executable(&kind)?;
    if let Some(ipam) = conf.get("ipam") {
        let Value::Object(ipam) = ipam else { return Err(PluginError::IpamNoObject) };
        // For some plugins an empty `ipam` means that there are no addresses to assign.
        if let Some(kind) = text(ipam, "type")?.filter(|kind| !kind.is_empty()) {
            executable(kind)?;
        }
    }
    Ok(Plugin { kind, conf })
}

/// A `type` becomes a path: it must stay below the directories of plugins.
fn executable(kind: &str) -> Result<(), PluginError> {
    if kind.is_empty() {
        return Err(PluginError::NoType);
    }
    if kind.contains(['/', '\0']) || kind == "." || kind == ".." {
        return Err(PluginError::Type(kind.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, says: &str) {
        let error = Conflist::parse(text).expect_err(text).to_string();
        assert!(error.contains(says), "{says:?} is not in {error:?}");
    }

    #[test]
    fn a_list_and_a_single_plugin_are_read() {
        let list = r#"{"cniVersion":"1.0.0","name":"a","disableCheck":true,"plugins":[
            {"type":"ptp","ipam":{"type":"host-local"}},{"type":"tuning","ipam":{}}]}"#;
        let list = Conflist::parse(list).unwrap();
        assert_eq!((list.name.as_str(), list.version), ("a", Version::V1_0_0));
        assert_eq!(list.executables().collect::<Vec<_>>(), ["ptp", "host-local", "tuning"]);
        let single = Conflist::parse(r#"{"cniVersion":"0.3.1","name":"a.b-c_9","type":"macvlan"}"#).unwrap();
        assert_eq!(single.executables().collect::<Vec<_>>(), ["macvlan"]);
    }

    #[test]
    fn the_newest_version_that_both_know_is_spoken() {
        let with = |versions: &str| {
            Conflist::parse(&format!(r#"{{{versions},"name":"a","type":"ptp"}}"#)).map(|list| list.version)
        };
        assert_eq!(
            with(r#""cniVersion":"0.4.0","cniVersions":["0.4.0","1.1.0","9.0.0"]"#).unwrap(),
            Version::V1_1_0
        );
        assert_eq!(with(r#""cniVersion":"0.4.0","cniVersions":["9.0.0"]"#).unwrap(), Version::V0_4_0);
        assert_eq!(with(r#""cniVersion":"1.1.0","cniVersions":["0.4.0","1.0.0"]"#).unwrap(), Version::V1_1_0);
        assert!(with(r#""cniVersion":"0.2.0""#).unwrap_err().to_string().contains("0.3.0, 0.3.1"));
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
    }
}
