//! Kernel parameters of the containers of a network, as the CNI project's plugin `tuning` has them (`sysctl`).

use std::collections::BTreeMap;

use cni::Failure;
use linux::{IfName, sysctl};
use plan::{SetSysctl, Step};
use serde_json::Value;

use crate::failures::{invalid_conf, unsupported};

/// What stands for the name of the container's interface in a key.
const INTERFACE: &str = "IFNAME";

/// Keys below `/proc/sys` with their values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Reads an object of keys, with dots or slashes, and values.
    ///
    /// # Errors
    /// Code 7 for a key or a value that is none, 2 for a key that is not of a network namespace: the container shares
    /// it with the machine.
    pub(crate) fn read(written: &BTreeMap<String, Value>) -> Result<Parameters, Failure> {
        let one = |(key, value): (&String, &Value)| {
            let path = if key.contains('/') { key.clone() } else { key.replace('.', "/") };
            // What follows needs no name: it is only to be a valid key.
            sysctl::Key::new(path.replace(INTERFACE, "eth0"))
                .map_err(|error| invalid_conf(format!("`sysctl` has the key {key:?}: {error}")))?;
            if !path.starts_with("net/") {
                let why =
                    format!("`sysctl` has the key {key:?}; only those below `net` are a container's own");
                return Err(unsupported(why));
            }
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                other => {
                    let why = format!("`sysctl` has {other} for {key:?}; a text is expected");
                    return Err(invalid_conf(why));
                }
            };
            Ok((path, value))
        };
        written.iter().map(one).collect::<Result<_, _>>().map(Parameters)
    }

    /// The steps that set them in the namespace of a container with this interface.
    pub(crate) fn steps(&self, ifname: &IfName) -> impl Iterator<Item = Step> {
        self.0.iter().map(|(path, value)| {
            let key = sysctl::Key::new(path.replace(INTERFACE, ifname.as_str()))
                .expect("it was a key with another interface");
            Step::from(SetSysctl { key, value: value.clone() })
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(written: Value) -> Result<Parameters, Failure> {
        Parameters::read(&serde_json::from_value(written).unwrap())
    }

    #[test]
    fn keys_are_written_with_dots_or_slashes() {
        let parameters = read(json!({
            "net.core.somaxconn": "500", "net/ipv4/tcp_fin_timeout": 30, "net.ipv4.conf.IFNAME.arp_filter": "1",
        }));
        let steps: Vec<Step> = parameters.unwrap().steps(&IfName::new("net1").unwrap()).collect();
        let set = |key: &str, value: &str| {
            Step::from(SetSysctl { key: sysctl::Key::new(key).unwrap(), value: value.to_owned() })
        };
        let expected = [
            set("net/core/somaxconn", "500"),
            set("net/ipv4/conf/net1/arp_filter", "1"),
            set("net/ipv4/tcp_fin_timeout", "30"),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn what_is_no_parameter_of_a_container_is_refused() {
        let refused = |written: Value| {
            let failure = read(written).unwrap_err();
            (failure.code.unwrap().0, failure.message)
        };
        assert_eq!(refused(json!({ "kernel.hostname": "a" })).0, 2);
        assert_eq!(refused(json!({ "net.core.somaxconn": ["a"] })).0, 7);
        assert!(refused(json!({ "net/../kernel": "1" })).1.contains("net/../kernel"));
    }
}
