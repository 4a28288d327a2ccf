//! Configurations for plugins that are known by name.

use serde_json::{Map, Value, json};

use crate::ConformanceError;
use crate::node::LINK;

/// What a default configuration leaves open.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// How `hostgap` joins containers to the node: `bridge`, `ptp`, …
    pub attach: String,
}

/// The plugins for which there is a default.
pub const KNOWN: [&str; 5] = ["hostgap", "bridge", "ptp", "macvlan", "ipvlan"];

/// The configuration of a plugin by the name of its executable.
///
/// # Errors
/// There is none for this name.
pub(crate) fn configuration(name: &str, defaults: &Defaults) -> Result<Map<String, Value>, ConformanceError> {
    let conf = match name {
        // The second is what its program is called where it is built.
        "hostgap" | "hostgap-cni" => own(&defaults.attach),
        "bridge" => json!({ "type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": host_local() }),
        "ptp" => json!({ "type": "ptp", "ipam": host_local() }),
        "macvlan" => json!({ "type": "macvlan", "master": LINK, "mode": "bridge", "ipam": host_local() }),
        "ipvlan" => json!({ "type": "ipvlan", "master": LINK, "mode": "l2", "ipam": host_local() }),
        _ => return Err(ConformanceError::NoDefault { name: name.to_owned(), known: KNOWN.join(", ") }),
    };
    match conf {
        Value::Object(conf) => Ok(conf),
        _ => unreachable!("each of them is an object"),
    }
}

fn own(attach: &str) -> Value {
    let mut ranges = vec![json!([{ "subnet": "10.244.1.0/24" }])];
    if linux::features::has_ipv6() {
        ranges.push(json!([{ "subnet": "fd00:244:0:1::/64" }]));
    }
    json!({ "type": "hostgap", "attach": attach, "ipam": { "type": "hostgap", "ranges": ranges } })
}

/// One family: plugins of the CNI project wait a second or two for each IPv6 address.
fn host_local() -> Value {
    json!({
        "type": "host-local",
        "ranges": [[{ "subnet": "10.244.1.0/24" }]],
        "routes": [{ "dst": "0.0.0.0/0" }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_plugin_has_one_and_an_error_for_others_names_them() {
        let defaults = Defaults { attach: "ptp".to_owned() };
        for name in KNOWN {
            assert_eq!(configuration(name, &defaults).unwrap()["type"], *name);
        }
        let error = configuration("calico", &defaults).unwrap_err().to_string();
        assert!(error.contains("\"calico\"") && error.contains("bridge, ptp"), "{error}");
    }
}
