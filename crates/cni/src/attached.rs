//! What a plugin made, as the result that it prints (section 5, "Success").

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use crate::{AddResult, Version};

/// What a plugin added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attached {
    /// The interfaces, those of the node too.
    pub interfaces: Vec<Interface>,
    /// The addresses of the container, and which interface has each.
    pub ips: Vec<AttachedAddress>,
    /// The routes of the container, as they were asked for or made.
    pub routes: Vec<AttachedRoute>,
    /// How the container resolves names, in the specification's own form.
    pub dns: Option<Value>,
}

/// An interface that the plugin made, or that an address is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name in its own namespace.
    pub name: String,
    /// Its Ethernet address, as `02:00:00:00:00:01`.
    pub mac: String,
    /// Its MTU in bytes, which is said since 1.1.0.
    pub mtu: u32,
    /// The path of its namespace as in `CNI_NETNS`; `None`: the node's.
    pub sandbox: Option<String>,
}

/// An address of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedAddress {
    /// The address with its prefix length.
    pub address: IpNet,
    /// The next hop of its family.
    pub gateway: Option<IpAddr>,
    /// Its interface: an index into [`Attached::interfaces`].
    pub interface: usize,
}

/// A route of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedRoute {
    /// The destinations that the route is for; a prefix of length 0 makes it the default route.
    pub dst: IpNet,
    /// The next hop; `None`: the destination is on the link.
    pub gw: Option<IpAddr>,
    /// The path MTU in bytes, which is said since 1.1.0.
    pub mtu: Option<u32>,
    /// Its order among routes to the same destination, lowest first, which is said since 1.1.0.
    pub priority: Option<u32>,
}

impl Attached {
    /// The result in a version, behind that of the plugins before: interfaces, addresses and routes are appended to
    /// theirs.
    pub fn result(&self, version: Version, previous: Option<&AddResult>) -> AddResult {
        let mut object = previous.map_or_else(Map::new, |previous| previous.as_json().clone());
        object.insert("cniVersion".to_owned(), version.as_str().into());
        let before = list(&mut object, "interfaces").len();
        list(&mut object, "interfaces").extend(self.interfaces.iter().map(|one| interface(one, version)));
        list(&mut object, "ips").extend(self.ips.iter().map(|one| address(one, before, version)));
        list(&mut object, "routes").extend(self.routes.iter().map(|one| route(one, version)));
        if let Some(dns) = &self.dns {
            object.insert("dns".to_owned(), dns.clone());
        }
        AddResult::from(object)
    }
}

/// The list of a key, made if it is missing or `null`.
fn list<'o>(object: &'o mut Map<String, Value>, key: &str) -> &'o mut Vec<Value> {
    let entry = object.entry(key.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
    if !entry.is_array() {
        *entry = Value::Array(Vec::new());
    }
    entry.as_array_mut().expect("it is a list")
}

fn interface(of: &Interface, version: Version) -> Value {
    let mut object = json!({ "name": of.name, "mac": of.mac });
    if let Some(sandbox) = &of.sandbox {
        object["sandbox"] = sandbox.as_str().into();
    }
    if version >= Version::V1_1_0 {
        object["mtu"] = of.mtu.into();
    }
    object
}

/// Before 1.0.0 the family stands beside an address.
fn address(of: &AttachedAddress, before: usize, version: Version) -> Value {
    let mut object = json!({ "address": of.address.to_string(), "interface": before + of.interface });
    if version < Version::V1_0_0 {
        object["version"] = if of.address.addr().is_ipv4() { "4" } else { "6" }.into();
    }
    if let Some(gateway) = of.gateway {
        object["gateway"] = gateway.to_string().into();
    }
    object
}

fn route(of: &AttachedRoute, version: Version) -> Value {
    let mut object = json!({ "dst": of.dst.to_string() });
    if let Some(gw) = of.gw {
        object["gw"] = gw.to_string().into();
    }
    for (key, value) in [("mtu", of.mtu), ("priority", of.priority)] {
        if let Some(value) = value.filter(|_| version >= Version::V1_1_0) {
            object[key] = value.into();
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attached() -> Attached {
        let interface = |name: &str, sandbox: Option<&str>| Interface {
            name: name.to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            mtu: 1500,
            sandbox: sandbox.map(str::to_owned),
        };
        Attached {
            interfaces: vec![interface("hgp1", None), interface("eth0", Some("/run/netns/a"))],
            ips: vec![AttachedAddress {
                address: "fd00::2/64".parse().unwrap(),
                gateway: Some("fe80::1".parse().unwrap()),
                interface: 1,
            }],
            routes: vec![AttachedRoute {
                dst: "::/0".parse().unwrap(),
                gw: None,
                mtu: Some(1400),
                priority: None,
            }],
            dns: None,
        }
    }

    #[test]
    fn each_version_has_its_fields() {
        let result = |version| Value::from(attached().result(version, None).as_json().clone());
        let old = result(Version::V0_4_0);
        assert_eq!(
            old["ips"][0],
            json!({"version": "6", "address": "fd00::2/64", "gateway": "fe80::1", "interface": 1})
        );
        assert_eq!(
            old["interfaces"][1],
            json!({"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/a"})
        );
        let new = result(Version::V1_1_0);
        assert_eq!(new["ips"][0], json!({"address": "fd00::2/64", "gateway": "fe80::1", "interface": 1}));
        assert_eq!(new["interfaces"][0], json!({"name": "hgp1", "mac": "02:00:00:00:00:01", "mtu": 1500}));
        assert_eq!(
            (&new["cniVersion"], &new["routes"]),
            (&json!("1.1.0"), &json!([{"dst": "::/0", "mtu": 1400}]))
        );
        assert_eq!(old["routes"], json!([{"dst": "::/0"}]));
    }

    #[test]
    fn the_result_of_the_plugins_before_stays() {
        let before = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "lo"}], "ips": null, "theirs": 7});
        let before = AddResult::from(before.as_object().unwrap().clone());
        let result = attached().result(Version::V1_0_0, Some(&before));
        let result = Value::from(result.as_json().clone());
        assert_eq!((result["interfaces"].as_array().unwrap().len(), &result["theirs"]), (3, &json!(7)));
        assert_eq!(result["ips"][0]["interface"], 2, "counted from the first interface of all");
    }
}
