//! What a plugin reads from its standard input: the configuration that a runtime derives for it (section 3).
//!
//! A runtime makes it by [`Request::new`]; a plugin reads it by [`Request::read`].

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::name::{RULE, is_name};
use crate::{AddResult, Conflist, ErrorCode, Failure, UnknownVersion, Version};

/// The input of a plugin: its part of the network configuration, and what the runtime puts in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Request(Map<String, Value>);

impl Request {
    /// Derives a plugin's input from its part of a network's configuration. The network's name and version come in.
    /// Of what the runtime offers (`ipRanges`, `portMappings`) the plugin gets as `runtimeConfig` what it has the
    /// capability for.
    pub fn new(mut conf: Map<String, Value>, network: &Conflist, offered: Map<String, Value>) -> Request {
        let capabilities = conf.remove("capabilities").unwrap_or_default();
        let is_wanted = |name: &str| capabilities.get(name) == Some(&Value::Bool(true));
        let wanted: Map<String, Value> = offered.into_iter().filter(|(name, _)| is_wanted(name)).collect();
        if !wanted.is_empty() {
            conf.insert("runtimeConfig".to_owned(), wanted.into());
        }
        conf.insert("name".to_owned(), network.name.as_str().into());
        conf.insert("cniVersion".to_owned(), network.version.as_str().into());
        Request(conf)
    }

    /// Reads a plugin's input.
    ///
    /// # Errors
    /// Code 6 if it is no JSON object, 7 if it has no name or version, 1 if the version is none that is spoken.
    pub fn read(text: &str) -> Result<Request, Failure> {
        let decoding =
            |why| Failure::new(ErrorCode::DECODING_FAILURE, format!("read the configuration: {why}"));
        let conf = match serde_json::from_str(text) {
            Ok(Value::Object(conf)) => conf,
            Ok(_) => return Err(decoding("it is not a JSON object".to_owned())),
            Err(error) => return Err(decoding(error.to_string())),
        };
        let request = Request(conf);
        request.version()?;
        request.name()?;
        Ok(request)
    }

    /// The version that is spoken. Without one it is 0.1.0 by the specification, which is not.
    ///
    /// # Errors
    /// Code 1, with the version and those that are spoken.
    pub fn version(&self) -> Result<Version, Failure> {
        let text = self.text("cniVersion")?.unwrap_or("0.1.0");
        text.parse().map_err(|error: UnknownVersion| {
            Failure::new(ErrorCode::INCOMPATIBLE_VERSION, format!("`cniVersion` is {error}"))
        })
    }

    /// The network's name.
    ///
    /// # Errors
    /// Code 7 if there is none, or if it could not be the name of a file.
    pub fn name(&self) -> Result<&str, Failure> {
        let name = self.text("name")?.unwrap_or_default();
        if !is_name(name) {
            let why = format!("`name` is {name:?}; {RULE}");
            return Err(Failure::new(ErrorCode::INVALID_NETWORK_CONFIG, why));
        }
        Ok(name)
    }

    /// The result of the plugins before at ADD, of all of them at DEL and CHECK; `None` if there is none.
    pub fn previous(&self) -> Option<AddResult> {
        let Value::Object(previous) = self.0.get("prevResult")? else { return None };
        Some(AddResult::from(previous.clone()))
    }

    /// What the runtime offers for a capability of the plugin, with keys as the conventions have them (`hostPort`).
    /// containerd writes them with a capital letter (`HostPort`), since plugins in Go read either.
    pub fn runtime(&self, capability: &str) -> Option<Value> {
        let offered = self.0.get("runtimeConfig")?.get(capability);
        offered.filter(|value| !value.is_null()).map(uncapitalised)
    }

    /// What concerns addresses (section 4).
    pub fn ipam(&self) -> Option<&Value> {
        self.0.get("ipam")
    }

    /// What the configuration asks for by the convention of `args` (CONVENTIONS.md of the CNI project).
    pub fn argument(&self, name: &str) -> Option<&Value> {
        self.0.get("args")?.get("cni")?.get(name).filter(|value| !value.is_null())
    }

    /// The attachments that GC is to keep: container and interface of each. `None`: the runtime says nothing of them,
    /// as `cnitool gc` does.
    ///
    /// # Errors
    /// Code 7 if there is something else than a list, or an entry lacks one of the two.
    pub fn valid_attachments(&self) -> Result<Option<Vec<(String, String)>>, Failure> {
        const KEY: &str = "cni.dev/valid-attachments";
        let wrong = |why: String| Failure::new(ErrorCode::INVALID_NETWORK_CONFIG, format!("`{KEY}` {why}"));
        // libcni writes an empty list as `null`.
        let list = match self.0.get(KEY) {
            None => return Ok(None),
            Some(Value::Null) => return Ok(Some(Vec::new())),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(wrong("is not a list".to_owned())),
        };
        let entry = |entry: &Value| {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            let pair = text("containerID").zip(text("ifname"));
            pair.ok_or_else(|| wrong(format!("has {entry}, where `containerID` and `ifname` are expected")))
        };
        list.iter().map(entry).collect::<Result<_, _>>().map(Some)
    }

    /// The part of it that is the plugin's own: without the keys of the specification and those that begin with
    /// `cni.dev/`. Runtimes leave keys there that are for them alone (`capabilities`).
    pub fn own(&self) -> Map<String, Value> {
        const OF_PROTOCOL: [&str; 11] = [
            "cniVersion",
            "cniVersions",
            "name",
            "type",
            "capabilities",
            "prevResult",
            "runtimeConfig",
            "args",
            "disableCheck",
            "disableGC",
            "loadOnlyInlinedPlugins",
        ];
        let is_own = |key: &str| !OF_PROTOCOL.contains(&key) && !key.starts_with("cni.dev/");
        self.0
            .iter()
            .filter(|(key, _)| is_own(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    fn text(&self, key: &'static str) -> Result<Option<&str>, Failure> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(found) => Err(Failure::new(
                ErrorCode::INVALID_NETWORK_CONFIG,
                format!("`{key}` is {found}, and a text is expected"),
            )),
        }
    }

    /// The same with a result: at ADD that of the plugin before, at DEL that of the whole ADD.
    #[must_use]
    pub fn after(&self, previous: Option<&AddResult>) -> Request {
        let mut conf = self.0.clone();
        if let Some(previous) = previous {
            conf.insert("prevResult".to_owned(), previous.as_json().clone().into());
        }
        Request(conf)
    }
}

/// The value, in whose objects no key begins with a capital letter.
fn uncapitalised(value: &Value) -> Value {
    let key = |key: &str| {
        let (first, rest) = key.split_at(key.chars().next().map_or(0, char::len_utf8));
        first.to_lowercase() + rest
    };
    match value {
        Value::Object(object) => {
            object.iter().map(|(name, value)| (key(name), uncapitalised(value))).collect()
        }
        Value::Array(list) => list.iter().map(uncapitalised).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// As JSON, in one line.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(&self.0).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(plugin: &str, offered: &Value) -> Request {
        let list = format!(r#"{{"cniVersion":"0.4.0","name":"a","plugins":[{plugin}]}}"#);
        let list = Conflist::parse(&list).unwrap();
        let offered = offered.as_object().unwrap().clone();
        Request::new(list.plugins[0].conf.clone(), &list, offered)
    }

    #[track_caller]
    fn check(plugin: &str, offered: &Value, expected: &Value) {
        let request: Value = serde_json::from_str(&request(plugin, offered).to_string()).unwrap();
        assert_eq!(request, *expected);
    }

    #[test]
    fn a_plugin_gets_of_what_is_offered_that_for_which_it_has_the_capability() {
        let offered = json!({"ipRanges": [[{"subnet": "10.0.0.0/24"}]], "bandwidth": {}});
        check(
            r#"{"type":"x","mtu":9,"capabilities":{"ipRanges":true,"bandwidth":false,"portMappings":true}}"#,
            &offered,
            &json!({
                "cniVersion": "0.4.0", "name": "a", "type": "x", "mtu": 9,
                "runtimeConfig": {"ipRanges": [[{"subnet": "10.0.0.0/24"}]]},
            }),
        );
        let bare = json!({"cniVersion": "0.4.0", "name": "a", "type": "x"});
        check(r#"{"type":"x","capabilities":{"portMappings":true}}"#, &offered, &bare);
        check(r#"{"type":"x"}"#, &offered, &bare);
    }

    #[test]
    fn a_plugin_reads_what_a_runtime_derived() {
        let text = r#"{"cniVersion":"1.1.0","name":"pods","type":"x","attach":"ptp","ipam":{},
            "runtimeConfig":{"mac":"02:00:00:00:00:01","ips":null},"prevResult":{"ips":[]},
            "cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]}"#;
        let request = Request::read(text).unwrap();
        assert_eq!((request.name().unwrap(), request.version().unwrap()), ("pods", Version::V1_1_0));
        assert_eq!(request.own().keys().collect::<Vec<_>>(), ["attach", "ipam"]);
        assert_eq!(request.runtime("mac"), Some(json!("02:00:00:00:00:01")));
        assert_eq!((request.runtime("ips"), request.runtime("dns")), (None, None));
        assert_eq!(request.valid_attachments().unwrap().unwrap(), [("c1".to_owned(), "eth0".to_owned())]);
        assert!(request.previous().is_some());
    }

    /// As containerd 1.6 and 2.4 write it (the types of go-cni have no names for JSON).
    #[test]
    fn keys_that_begin_with_a_capital_letter_are_read() {
        let text = r#"{"cniVersion":"1.0.0","name":"pods","runtimeConfig":{"portMappings":[
            {"HostPort":8080,"ContainerPort":80,"Protocol":"tcp","HostIP":"A"}]}}"#;
        let ports = Request::read(text).unwrap().runtime("portMappings").unwrap();
        let expected = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "A"}]);
        assert_eq!(ports, expected);
    }

    #[test]
    fn input_that_is_wrong_is_refused_with_the_code_of_the_specification() {
        let code = |text: &str| Request::read(text).unwrap_err().code.unwrap().0;
        assert_eq!([code(""), code("[]"), code("{")], [6, 6, 6]);
        assert_eq!([code("{}"), code(r#"{"cniVersion":"9.0.0","name":"a"}"#)], [1, 1]);
        assert_eq!(code(r#"{"cniVersion":7,"name":"a"}"#), 7);
        assert_eq!(code(r#"{"cniVersion":"1.0.0"}"#), 7);
        assert_eq!(code(r#"{"cniVersion":"1.0.0","name":"../a"}"#), 7);
        let none = r#"{"cniVersion":"1.1.0","name":"a","capabilities":{"ipRanges":true},"cni.dev/valid-attachments":null}"#;
        let none = Request::read(none).unwrap();
        assert!(none.valid_attachments().unwrap().unwrap().is_empty() && none.own().is_empty());
        let request = Request::read(r#"{"cniVersion":"1.1.0","name":"a"}"#).unwrap();
        assert_eq!(request.valid_attachments().unwrap(), None);
        let wrong =
            Request::read(r#"{"cniVersion":"1.1.0","name":"a","cni.dev/valid-attachments":7}"#).unwrap();
        assert_eq!(wrong.valid_attachments().unwrap_err().code, Some(ErrorCode(7)));
    }

    #[test]
    fn the_previous_result_is_handed_on_with_its_unknown_fields() {
        let request = request(r#"{"type":"x"}"#, &json!({}));
        assert_eq!(request.after(None), request);
        let result = AddResult::read(r#"{"ips":[],"new":[7]}"#).unwrap();
        let text = r#"{"cniVersion":"0.4.0","name":"a","prevResult":{"ips":[],"new":[7]},"type":"x"}"#;
        assert_eq!(request.after(Some(&result)).to_string(), text);
    }
}
