//! The plugin's own part of a network configuration.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cni::{Failure, Request};
use datapath::{ATTACHES, DataPath, Prefixes};
use ipam::{Range, RangeSets};
use ipnet::IpNet;
use linux::IfName;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::dropin;
use crate::failures::{invalid_conf, unsupported};
use crate::parameters::Parameters;

/// What a network's configuration says.
#[derive(Debug, Clone)]
pub(crate) struct Conf {
    /// How pods reach the node.
    pub(crate) path: &'static DataPath,
    /// The name of the bridge, for the attach that has one; `None`: one that is made of the network's number.
    pub(crate) bridge: Option<IfName>,
    /// The link to other nodes; `None`: that of the default route.
    pub(crate) wire: Option<IfName>,
    /// The node's number in the network; `None`: the end of its address.
    pub(crate) node: Option<u16>,
    /// The pods' MTU in bytes; `None`: what the wire leaves.
    pub(crate) mtu: Option<u32>,
    /// Whether what pods send out of the network gets the node's address.
    pub(crate) masquerade: bool,
    /// Whether the pods' default routes go by this network.
    pub(crate) default_route: bool,
    /// The prefixes of all nodes' pods.
    pub(crate) prefixes: Prefixes,
    /// The prefixes of this node's pods.
    pub(crate) pods: Prefixes,
    /// The ranges within them from which pods get their addresses, one of each set.
    pub(crate) ranges: RangeSets,
    /// How pods resolve names; it is handed to the runtime as it is.
    pub(crate) dns: Option<Value>,
    /// The pods' kernel parameters.
    pub(crate) parameters: Parameters,
}

/// The keys of the configuration, and those of its `ipam`.
const KEYS: [&str; 11] = [
    "attach",
    "bridge",
    "default_route",
    "dns",
    "ipam",
    "masquerade",
    "mtu",
    "node",
    "prefixes",
    "sysctl",
    "wire",
];
const IPAM_KEYS: [&str; 2] = ["ranges", "type"];

#[derive(Deserialize)]
struct Written {
    attach: String,
    bridge: Option<IfName>,
    wire: Option<IfName>,
    node: Option<u16>,
    mtu: Option<u32>,
    #[serde(default)]
    masquerade: bool,
    default_route: Option<bool>,
    #[serde(default)]
    prefixes: Vec<IpNet>,
    ipam: WrittenIpam,
    dns: Option<Value>,
    #[serde(default)]
    sysctl: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct WrittenIpam {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default = "no_ranges")]
    ranges: Value,
}

fn no_ranges() -> Value {
    Value::Array(Vec::new())
}

/// The `type` of the addresses that the plugin itself keeps.
pub(crate) const OWN_IPAM: &str = "hostgap";

impl Conf {
    /// Reads a plugin's input. `name` is that by which the program was called: those of other plugins take their
    /// configurations.
    ///
    /// # Errors
    /// Code 2 for a key or value that is not supported, 7 for one that makes no sense; the message names it.
    pub(crate) fn read(request: &Request, name: &str) -> Result<Conf, Failure> {
        let mut own = request.own();
        if dropin::NAMES.contains(&name) {
            own = dropin::own_form(name, own)?;
        }
        check_keys(&own, &KEYS, "")?;
        if let Some(Value::Object(ipam)) = own.get("ipam") {
            check_keys(ipam, &IPAM_KEYS, "ipam.")?;
        }
        let written: Written =
            serde_json::from_value(own.into()).map_err(|error| invalid_conf(error.to_string()))?;
        let path = path(&written)?;
        if written.ipam.kind != OWN_IPAM {
            let why = format!("`ipam.type` is {:?}; {OWN_IPAM:?} is expected", written.ipam.kind);
            return Err(unsupported(why));
        }
        let sets = sets(request, written.ipam.ranges)?;
        check_sets(&sets)?;
        let ranges = range_sets(&sets)?;
        let mut subnets: Vec<IpNet> = sets.iter().flatten().map(|range| range.subnet).collect();
        subnets.sort_unstable();
        subnets.dedup();
        let pods: Prefixes = subnets.into_iter().collect();
        let prefixes =
            if written.prefixes.is_empty() { pods.clone() } else { written.prefixes.into_iter().collect() };
        Ok(Conf {
            path,
            bridge: written.bridge,
            wire: written.wire,
            node: written.node,
            mtu: written.mtu,
            masquerade: written.masquerade,
            default_route: written.default_route.unwrap_or(path.attach.leads_out()),
            prefixes,
            pods,
            ranges,
            dns: written.dns,
            parameters: Parameters::read(&written.sysctl)?,
        })
    }

    /// Whether a configuration leaves its ranges to the runtime, which gives them at ADD alone.
    pub(crate) fn awaits_ranges(request: &Request) -> bool {
        let none = |key: &str| {
            let ranges = request.ipam().and_then(|ipam| ipam.get(key));
            ranges.is_none_or(|ranges| ranges == &Value::Array(vec![]))
        };
        request.runtime("ipRanges").is_none() && none("ranges") && none("subnet")
    }
}

/// Ranges as they are written, or those that the runtime gives instead (`ipRanges`).
pub(crate) fn sets(request: &Request, written: Value) -> Result<Vec<Vec<Range>>, Failure> {
    let (name, value) = match request.runtime("ipRanges") {
        Some(given) => ("`runtimeConfig.ipRanges`", given.clone()),
        None => ("`ipam.ranges`", written),
    };
    serde_json::from_value(value).map_err(|error| invalid_conf(format!("{name}: {error}")))
}

/// # Errors
/// Code 7: no address could be given from them.
pub(crate) fn range_sets(sets: &[Vec<Range>]) -> Result<RangeSets, Failure> {
    RangeSets::new(sets).map_err(|error| invalid_conf(format!("`ipam.ranges`: could not {error}")))
}

fn check_keys(object: &Map<String, Value>, known: &[&str], within: &str) -> Result<(), Failure> {
    let unknown = object.iter().find(|(key, _)| !known.contains(&key.as_str()));
    unknown.map_or(Ok(()), |(key, value)| {
        Err(unsupported(format!(
            "`{within}{key}` is {value}, and there is no such key; there are {}",
            known.join(", ")
        )))
    })
}

/// The attach, if it can do what else is asked of it.
fn path(written: &Written) -> Result<&'static DataPath, Failure> {
    let path = ATTACHES.iter().find(|path| path.name == written.attach).ok_or_else(|| {
        let names: Vec<&str> = ATTACHES.iter().map(|path| path.name).collect();
        invalid_conf(format!("`attach` is {:?}; one of {} is expected", written.attach, names.join(", ")))
    })?;
    let name = path.name;
    if written.masquerade && !path.attach.masquerades() {
        return Err(unsupported(format!(
            "`masquerade` is true, and what pods of {name} send keeps its address"
        )));
    }
    if written.default_route == Some(true) && !path.attach.leads_out() {
        let why = format!(
            "`default_route` is true, and pods of {name} are neighbours on the wire without a gateway"
        );
        return Err(unsupported(why));
    }
    Ok(path)
}

/// Refuses what would be reserved and then not be used: an interface has one address of each family, and the gateway is
/// the first address of a subnet.
fn check_sets(sets: &[Vec<Range>]) -> Result<(), Failure> {
    let family = |set: &Vec<Range>| set.first().map(|range| range.subnet.addr().is_ipv4());
    for (index, set) in sets.iter().enumerate() {
        if sets[..index].iter().any(|earlier| family(earlier) == family(set)) {
            let why = format!(
                "`ipam.ranges` has several sets of one family; set {index} would be a second address"
            );
            return Err(unsupported(why));
        }
        for Range { subnet, gateway, .. } in set {
            let first = subnet.hosts().next();
            if gateway.is_some() && *gateway != first {
                let wanted = gateway.map(|gateway: IpAddr| gateway.to_string()).unwrap_or_default();
                let why = format!("`gateway` is {wanted}; that of {subnet} is its first address");
                return Err(unsupported(why));
            }
        }
    }
    Ok(())
}
