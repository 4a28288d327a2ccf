//! What a plugin reads from its standard input: the configuration that a runtime derives for it (section 3).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{AddResult, Conflist};

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
    fn the_result_before_is_handed_on_with_fields_that_nobody_knows() {
        let request = request(r#"{"type":"x"}"#, &json!({}));
        assert_eq!(request.after(None), request);
        let result = AddResult::read(r#"{"ips":[],"new":[7]}"#).unwrap();
        let text = r#"{"cniVersion":"0.4.0","name":"a","prevResult":{"ips":[],"new":[7]},"type":"x"}"#;
        assert_eq!(request.after(Some(&result)).to_string(), text);
    }
}
