//! Configurations of the CNI project's plugins, for when the program is called by one of their names: each becomes the
//! plugin's own form, or is refused for what would not be as it says.

use std::net::IpAddr;

use cni::Failure;
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::failures::{invalid_conf, unsupported};

/// The names that take another plugin's configuration.
pub(crate) const NAMES: [&str; 4] = [BRIDGE, "ptp", "macvlan", "ipvlan"];
/// The one whose configuration names a bridge.
pub(crate) const BRIDGE: &str = "bridge";
/// The name of the plugin for addresses whose files ours are.
pub(crate) const HOST_LOCAL: &str = "host-local";
/// The `type` of the addresses that the plugin itself keeps.
pub(crate) const OWN_IPAM: &str = "hostgap";

/// The keys of the CNI project's plugin: <https://www.cni.dev/plugins/current/main/ptp/>
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Ptp {
    #[serde(default)]
    ip_masq: bool,
    /// Which program writes the rules is not seen from outside.
    #[serde(rename = "ipMasqBackend")]
    _ip_masq_backend: Option<String>,
    #[serde(default)]
    mtu: u32,
    ipam: Value,
    dns: Option<Value>,
}

/// The keys of the CNI project's plugin: <https://www.cni.dev/plugins/current/main/bridge/>
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Bridge {
    #[serde(default = "cni0")]
    bridge: String,
    #[serde(default)]
    is_gateway: bool,
    #[serde(default)]
    is_default_gateway: bool,
    /// The bridge has the addresses of the configuration, and no others.
    #[serde(rename = "forceAddress")]
    _force_address: Option<bool>,
    #[serde(default)]
    ip_masq: bool,
    #[serde(rename = "ipMasqBackend")]
    _ip_masq_backend: Option<String>,
    #[serde(default)]
    mtu: u32,
    /// Ports are in that mode anyway, for Services that lead a container to itself.
    #[serde(rename = "hairpinMode")]
    _hairpin_mode: Option<bool>,
    #[serde(default)]
    promisc_mode: bool,
    #[serde(default)]
    vlan: u16,
    #[serde(default)]
    vlan_trunk: Vec<Value>,
    /// What it says of VLANs matters where there are some.
    #[serde(rename = "preserveDefaultVlan")]
    _preserve_default_vlan: Option<bool>,
    #[serde(default, rename = "macspoofchk")]
    mac_spoof_check: bool,
    #[serde(default, rename = "enabledad")]
    enable_dad: bool,
    #[serde(default)]
    disable_container_interface: bool,
    #[serde(default)]
    port_isolation: bool,
    ipam: Value,
    dns: Option<Value>,
}

/// <https://www.cni.dev/plugins/current/main/macvlan/>
/// and <https://www.cni.dev/plugins/current/main/ipvlan/>
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OnWire {
    master: Option<String>,
    mode: Option<String>,
    #[serde(default)]
    mtu: u32,
    #[serde(default)]
    link_in_container: bool,
    /// Of macvlan alone, as the next.
    #[serde(default)]
    mac: String,
    #[serde(default, rename = "bcqueuelen")]
    broadcast_queue_length: u32,
    ipam: Value,
    dns: Option<Value>,
}

/// The keys of the CNI project's plugin: <https://www.cni.dev/plugins/current/ipam/host-local/>
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HostLocal {
    #[serde(rename = "type")]
    _kind: String,
    subnet: Option<IpNet>,
    range_start: Option<IpAddr>,
    range_end: Option<IpAddr>,
    gateway: Option<IpAddr>,
    #[serde(default)]
    ranges: Vec<Vec<Value>>,
    routes: Option<Value>,
    data_dir: Option<Value>,
    resolv_conf: Option<String>,
}

fn cni0() -> String {
    "cni0".to_owned()
}

/// The configuration of the plugin of this name, one of [`NAMES`], in our own form.
///
/// # Errors
/// Code 7 for a key or a value that the other plugin would not know either, 2 for one that we do not follow.
pub(crate) fn own_form(name: &str, theirs: Map<String, Value>) -> Result<Map<String, Value>, Failure> {
    let own = match name {
        "ptp" => ptp(read(name, theirs)?),
        BRIDGE => bridge(&read(name, theirs)?),
        _ => on_wire(name, read(name, theirs)?),
    };
    let Value::Object(mut own) = own? else { unreachable!("each is made as an object") };
    own.retain(|_, value| !value.is_null());
    Ok(own)
}

fn read<T: DeserializeOwned>(name: &str, mut theirs: Map<String, Value>) -> Result<T, Failure> {
    // Programs in Go write it for what they do not have.
    theirs.retain(|_, value| !value.is_null());
    serde_json::from_value(theirs.into())
        .map_err(|error| invalid_conf(format!("read the configuration of {name}: {error}")))
}

fn ptp(theirs: Ptp) -> Result<Value, Failure> {
    Ok(json!({
        "attach": "ptp", "masquerade": theirs.ip_masq, "mtu": given(theirs.mtu), "ipam": addresses(theirs.ipam)?,
        "default_route": false, "dns": theirs.dns, "anti_spoofing": false,
    }))
}

fn bridge(theirs: &Bridge) -> Result<Value, Failure> {
    let refused = [
        (!(theirs.is_gateway || theirs.is_default_gateway), "isGateway` is false", "the bridge is a gateway"),
        (theirs.promisc_mode, "promiscMode` is true", "the bridge sees what is for it"),
        (theirs.vlan != 0, &*format!("vlan` is {}", theirs.vlan), "the bridge has no VLANs"),
        (
            !theirs.vlan_trunk.is_empty(),
            &*format!("vlanTrunk` is {}", Value::from(theirs.vlan_trunk.clone())),
            "the bridge has no VLANs",
        ),
        (theirs.enable_dad, "enabledad` is true", "addresses are usable at once"),
        (
            theirs.disable_container_interface,
            "disableContainerInterface` is true",
            "a container's interface is up",
        ),
    ];
    if let Some((_, what, why)) = refused.iter().find(|(is_so, ..)| *is_so) {
        return Err(unsupported(format!("`{what}; {why} here")));
    }
    Ok(json!({
        "attach": "bridge", "bridge": theirs.bridge, "masquerade": theirs.ip_masq, "mtu": given(theirs.mtu),
        "ipam": addresses(theirs.ipam.clone())?, "default_route": theirs.is_default_gateway, "dns": theirs.dns,
        "port_isolation": theirs.port_isolation.then_some(true),
        // As with that plugin, the ingress qdisc stays free for `bandwidth`.
        "anti_spoofing": if theirs.mac_spoof_check { json!("tcx") } else { json!(false) },
    }))
}

fn on_wire(name: &str, theirs: OnWire) -> Result<Value, Failure> {
    let mode = theirs.mode.as_deref().unwrap_or_default();
    let attach = match (name, mode) {
        ("macvlan", "" | "bridge") => "macvlan",
        ("ipvlan", "" | "l2") => "ipvlan-l2",
        ("ipvlan", "l3") => "ipvlan-l3",
        ("ipvlan", "l3s") => "ipvlan-l3s",
        _ => return Err(unsupported(format!("`mode` is {mode:?}, which {name} does not have here"))),
    };
    if theirs.link_in_container {
        return Err(unsupported("`linkInContainer` is true; the wire is the node's here".to_owned()));
    }
    let refused = [
        (
            !theirs.mac.is_empty(),
            format!("`mac` is {:?}", theirs.mac),
            "all containers of a network would have it; ask for it for each container",
        ),
        (
            theirs.broadcast_queue_length > 0,
            format!("`bcqueuelen` is {}", theirs.broadcast_queue_length),
            "the wire's queue of broadcasts is as long as the kernel makes it here",
        ),
    ];
    if let Some((_, what, why)) = refused.iter().find(|(is_set, ..)| *is_set) {
        return Err(unsupported(format!("{what}; {why}")));
    }
    // Without a route to say so, containers of L3 modes would not leave their network with the other plugin either.
    let wire = theirs.master.filter(|master| !master.is_empty());
    Ok(json!({
        "attach": attach, "wire": wire, "mtu": given(theirs.mtu), "ipam": addresses(theirs.ipam)?,
        "default_route": false, "dns": theirs.dns,
    }))
}

/// In their configurations an MTU of 0 is none.
fn given(mtu: u32) -> Option<u32> {
    (mtu > 0).then_some(mtu)
}

/// The value of `ipam` in our own form. What is not host-local's stays as it is.
pub(crate) fn addresses(mut ipam: Value) -> Result<Value, Failure> {
    if ipam.get("type").and_then(Value::as_str) != Some(HOST_LOCAL) {
        return Ok(ipam);
    }
    // As in `read`.
    if let Some(theirs) = ipam.as_object_mut() {
        theirs.retain(|_, value| !value.is_null());
    }
    let theirs: HostLocal = serde_json::from_value(ipam)
        .map_err(|error| invalid_conf(format!("read `ipam`, the configuration of {HOST_LOCAL}: {error}")))?;
    let mut ranges = theirs.ranges;
    if let Some(subnet) = theirs.subnet {
        let range = json!({
            "subnet": subnet, "rangeStart": theirs.range_start, "rangeEnd": theirs.range_end, "gateway": theirs.gateway,
        });
        ranges.insert(0, vec![range]);
    }
    let mut ipam = json!({
        "type": OWN_IPAM, "ranges": ranges, "dataDir": theirs.data_dir, "resolvConf": theirs.resolv_conf,
        "routes": theirs.routes,
    });
    ipam.as_object_mut().expect("it is made as an object").retain(|_, value| !value.is_null());
    Ok(ipam)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(name: &str, theirs: &Value) -> Result<Value, Failure> {
        own_form(name, theirs.as_object().unwrap().clone()).map(Value::from)
    }

    #[track_caller]
    fn refused(name: &str, theirs: &Value, code: u32, says: &str) {
        let failure = form(name, theirs).unwrap_err();
        assert_eq!(failure.code.unwrap().0, code, "{failure}");
        assert!(failure.message.contains(says), "{failure}");
    }

    #[test]
    fn each_plugin_s_configuration_becomes_our_own() {
        let ipam = json!({
            "type": "host-local", "subnet": "10.1.2.0/24", "rangeStart": "10.1.2.10",
            "routes": [{ "dst": "0.0.0.0/0" }], "dataDir": "/var/lib/pods",
        });
        let ranges = json!([[
            { "subnet": "10.1.2.0/24", "rangeStart": "10.1.2.10", "rangeEnd": null, "gateway": null },
        ]]);
        let own = json!({
            "type": "hostgap", "ranges": ranges, "dataDir": "/var/lib/pods", "routes": [{ "dst": "0.0.0.0/0" }],
        });
        assert_eq!(
            form("ptp", &json!({ "ipMasq": true, "mtu": 1400, "ipam": ipam })).unwrap(),
            json!({
                "attach": "ptp", "masquerade": true, "mtu": 1400, "default_route": false, "anti_spoofing": false,
                "ipam": own,
            })
        );
        let quiet = json!({ "type": "host-local", "ranges": [[{ "subnet": "10.1.2.0/24" }]] });
        assert_eq!(
            form("bridge", &json!({ "isGateway": true, "ipam": quiet.clone() })).unwrap(),
            json!({
                "attach": "bridge", "bridge": "cni0", "masquerade": false, "default_route": false,
                "anti_spoofing": false,
                "ipam": { "type": "hostgap", "ranges": [[{ "subnet": "10.1.2.0/24" }]] },
            })
        );
        let checked = json!({ "isGateway": true, "macspoofchk": true, "ipam": quiet.clone() });
        assert_eq!(form("bridge", &checked).unwrap()["anti_spoofing"], "tcx");
        let on_wire = form("ipvlan", &json!({ "master": "eth1", "mode": "l3s", "ipam": quiet })).unwrap();
        assert_eq!((&on_wire["attach"], &on_wire["wire"]), (&json!("ipvlan-l3s"), &json!("eth1")));
    }

    #[test]
    fn what_would_not_be_as_it_says_is_refused() {
        let ipam = json!({ "type": "host-local", "subnet": "10.1.2.0/24" });
        refused("bridge", &json!({ "ipam": ipam }), 2, "`isGateway` is false");
        refused("bridge", &json!({ "isGateway": true, "vlan": 7, "ipam": ipam }), 2, "`vlan` is 7;");
        refused("bridge", &json!({ "isGatway": true, "ipam": ipam }), 7, "unknown field `isGatway`");
        refused("macvlan", &json!({ "mode": "vepa", "ipam": ipam }), 2, "`mode` is \"vepa\"");
        refused("ptp", &json!({ "mtu": -1, "ipam": ipam }), 7, "configuration of ptp");
    }

    #[test]
    fn what_asks_for_nothing_is_no_unknown_key() {
        let ipam = json!({ "type": "host-local", "subnet": "10.1.2.0/24" });
        let quiet = json!({
            "isGateway": true, "vlanTrunk": [], "preserveDefaultVlan": true, "macspoofchk": false, "enabledad": false,
            "disableContainerInterface": false, "portIsolation": false, "dns": null, "ipam": ipam,
        });
        assert_eq!(
            form("bridge", &quiet).unwrap(),
            form("bridge", &json!({ "isGateway": true, "ipam": ipam })).unwrap()
        );
        let with = |key: &str, value: Value| {
            let mut conf = json!({ "isGateway": true, "ipam": ipam });
            conf[key] = value;
            conf
        };
        assert_eq!(form("bridge", &with("portIsolation", json!(true))).unwrap()["port_isolation"], true);
        refused("bridge", &with("vlanTrunk", json!([{ "id": 7 }])), 2, "`vlanTrunk` is [{\"id\":7}];");
        for key in ["enabledad", "disableContainerInterface"] {
            refused("bridge", &with(key, json!(true)), 2, &format!("`{key}` is true"));
        }
        let on_wire = json!({ "mac": "", "bcqueuelen": 0, "linkInContainer": false, "ipam": ipam });
        assert_eq!(form("macvlan", &on_wire).unwrap(), form("macvlan", &json!({ "ipam": ipam })).unwrap());
        refused("macvlan", &json!({ "bcqueuelen": 100, "ipam": ipam }), 2, "`bcqueuelen` is 100;");
        refused(
            "macvlan",
            &json!({ "mac": "02:00:00:00:00:01", "ipam": ipam }),
            2,
            "`mac` is \"02:00:00:00:00:01\";",
        );
        refused("ipvlan", &json!({ "linkInContainer": true, "ipam": ipam }), 2, "`linkInContainer` is true");
    }
}
