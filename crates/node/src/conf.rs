//! The plugin's own part of a network configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use cni::{Failure, Request};
use datapath::{ATTACHES, AntiSpoofing, DEVICE, DataPath, GuardHook, PodRoute, Prefixes, gateway_in};
use ipam::{Range, RangeSets, Reserved};
use ipnet::IpNet;
use linux::IfName;
use record::{did_you_mean, nearest};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::delegate::{self, Given};
use crate::failures::{invalid_conf, unsupported};
use crate::parameters::Parameters;
use crate::{dropin, readiness, resolv, routes};

/// What a network's configuration says.
#[derive(Debug, Clone)]
pub(crate) struct Conf {
    /// How pods reach the node.
    pub(crate) path: &'static DataPath,
    /// The name of the bridge, for the attach that has one; `None`: one that is made of the network's number.
    pub(crate) bridge: Option<IfName>,
    /// Whether a network of this name may have several bridges: the CNI project's plugin knows no networks.
    pub(crate) has_a_unit_per_bridge: bool,
    /// Whether pods of the node do not reach each other by the bridge.
    pub(crate) port_isolation: bool,
    /// Whether the node has a link of its own beside the pods', so that it and they reach each other.
    pub(crate) host_link: bool,
    /// The link to other nodes; `None`: that of the default route.
    pub(crate) wire: Option<IfName>,
    /// The node's number in the network; `None`: the end of its address.
    pub(crate) node: Option<u16>,
    /// The pods' MTU in bytes; `None`: what the wire leaves.
    pub(crate) mtu: Option<u32>,
    /// Whether what pods send out of the network gets the node's address.
    pub(crate) masquerade: bool,
    /// Whether a pod's packets with other addresses than its own are dropped, where the attach leaves that open.
    pub(crate) anti_spoofing: Option<GuardHook>,
    /// Whether the pods' default routes go by this network.
    pub(crate) default_route: bool,
    /// What else the pods reach by this network.
    pub(crate) routes: Vec<PodRoute>,
    /// The prefixes of all nodes' pods.
    pub(crate) prefixes: Prefixes,
    /// The prefixes of this node's pods.
    pub(crate) pods: Prefixes,
    /// Where pods get their addresses within them, one of each family at most.
    pub(crate) addresses: AddressSource,
    /// How pods resolve names; it is handed to the runtime as it is.
    pub(crate) dns: Option<Value>,
    /// The file that says so where nothing else does.
    resolv_conf: Option<PathBuf>,
    /// The pods' kernel parameters.
    pub(crate) parameters: Parameters,
    /// The device that a pod gets where the runtime names none, for the attach that hands one over.
    pub(crate) device: Option<String>,
    /// What the switch of its card is to hold it to, where it is a virtual function.
    pub(crate) vlan: Option<u16>,
    /// Likewise whether it drops frames from another Ethernet address than the function's.
    pub(crate) spoof_check: Option<bool>,
}

/// Where pods get their addresses.
#[derive(Debug, Clone)]
pub(crate) enum AddressSource {
    /// From the plugin's own store, one of each set of ranges.
    Store(RangeSets),
    /// From another plugin: what it gave for the container at hand, nothing before ADD.
    Delegate(Vec<Reserved>),
}

/// The keys of the configuration, and those of its `ipam`.
const KEYS: [&str; 18] = [
    "anti_spoofing",
    "attach",
    "bridge",
    "default_route",
    "deviceID",
    "dns",
    "host_link",
    "ipam",
    "masquerade",
    "mtu",
    "node",
    "port_isolation",
    "prefixes",
    readiness::KEY,
    "spoof_check",
    "sysctl",
    "vlan",
    "wire",
];
const IPAM_KEYS: [&str; 5] = ["dataDir", "ranges", "resolvConf", "routes", "type"];

/// The greatest identifier of a VLAN (IEEE 802.1Q).
const VLAN_MAX: u16 = 4094;

/// What errors call the routes of a configuration.
const ROUTES: &str = "`ipam.routes`";

#[derive(Deserialize)]
struct Written {
    attach: String,
    bridge: Option<IfName>,
    #[serde(default)]
    port_isolation: bool,
    #[serde(default)]
    host_link: bool,
    wire: Option<IfName>,
    node: Option<u16>,
    mtu: Option<u32>,
    #[serde(default)]
    masquerade: bool,
    anti_spoofing: Option<AskedCheck>,
    default_route: Option<bool>,
    #[serde(default)]
    prefixes: Vec<IpNet>,
    ipam: WrittenIpam,
    dns: Option<Value>,
    #[serde(rename = "deviceID")]
    device: Option<String>,
    vlan: Option<u16>,
    spoof_check: Option<bool>,
    #[serde(default)]
    sysctl: BTreeMap<String, Value>,
}

/// The values of `anti_spoofing`.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "`anti_spoofing` is true, false or \"tcx\"")]
enum AskedCheck {
    Whether(bool),
    At(AskedHook),
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AskedHook {
    Tcx,
}

#[derive(Deserialize)]
struct WrittenIpam {
    #[serde(rename = "type")]
    _kind: String,
    #[serde(default = "no_ranges")]
    ranges: Value,
    #[serde(default)]
    routes: Value,
    #[serde(rename = "resolvConf")]
    resolv_conf: Option<PathBuf>,
}

fn no_ranges() -> Value {
    Value::Array(Vec::new())
}

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
        readiness::file(request)?;
        let is_delegated = delegate::kind(request, name).is_some();
        if let Some(Value::Object(ipam)) = own.get("ipam").filter(|_| !is_delegated) {
            check_keys(ipam, &IPAM_KEYS, "ipam.")?;
        }
        let written: Written =
            serde_json::from_value(own.into()).map_err(|error| invalid_conf(error.to_string()))?;
        let path = path(&written)?;
        let anti_spoofing = anti_spoofing(&written, path)?;
        // Another plugin's key of that name is not ours to follow. With host-local an empty one is none.
        let resolv_conf =
            written.ipam.resolv_conf.filter(|path| !is_delegated && !path.as_os_str().is_empty());
        let (addresses, pods) = if is_delegated {
            (AddressSource::Delegate(Vec::new()), Prefixes::default())
        } else {
            let sets = sets(request, written.ipam.ranges)?;
            check_sets(&sets, path)?;
            let subnets = sets.iter().flatten().map(|range| range.subnet);
            (AddressSource::Store(range_sets(&sets)?), prefixes_of(subnets))
        };
        // Another plugin says in its result which of its own there are.
        let routes = if is_delegated { Vec::new() } else { routes::read(&written.ipam.routes, ROUTES)? };
        let prefixes =
            if written.prefixes.is_empty() { pods.clone() } else { written.prefixes.into_iter().collect() };
        Ok(Conf {
            path,
            bridge: written.bridge,
            has_a_unit_per_bridge: name == dropin::BRIDGE,
            port_isolation: written.port_isolation,
            host_link: written.host_link,
            wire: written.wire,
            node: written.node,
            mtu: written.mtu,
            masquerade: written.masquerade,
            anti_spoofing,
            default_route: written.default_route.unwrap_or(path.attach.leads_out() || written.host_link),
            routes: routes::of_attach(path, routes, &pods, ROUTES)?,
            prefixes,
            pods,
            addresses,
            // With the CNI project's plugins an empty object says nothing.
            dns: written.dns.filter(|dns| *dns != Value::Object(Map::new())),
            resolv_conf,
            parameters: Parameters::read(&written.sysctl)?,
            device: written.device,
            vlan: written.vlan,
            spoof_check: written.spoof_check,
        })
    }

    /// The same with what another plugin gave for a container.
    ///
    /// # Errors
    /// Code 2: it gave another gateway than the network's pods have, or a route by a neighbour that they do not.
    pub(crate) fn with_given(self, given: Given) -> Result<Conf, Failure> {
        for Reserved { address, gateway, .. } in &given.addresses {
            require_gateway(self.path, address.trunc(), *gateway)?;
            if self.path.attach.leads_out() && address.addr() == *gateway {
                let why = format!("{address} was given to the container, and is the address of its gateway");
                return Err(unsupported(why));
            }
        }
        let pods = prefixes_of(given.addresses.iter().map(|one| one.address.trunc()));
        let routes = routes::of_attach(self.path, given.routes, &pods, "its result")?;
        Ok(Conf {
            routes,
            prefixes: if self.prefixes.iter().next().is_none() { pods.clone() } else { self.prefixes },
            pods,
            dns: self.dns.or(given.dns),
            addresses: AddressSource::Delegate(given.addresses),
            ..self
        })
    }

    /// How pods resolve names: as the configuration says, or the file that it names.
    ///
    /// # Errors
    /// The file cannot be read, or makes no sense.
    pub(crate) fn name_resolution(&self) -> Result<Option<Value>, Failure> {
        match (&self.dns, &self.resolv_conf) {
            (Some(dns), _) => Ok(Some(dns.clone())),
            (None, file) => file.as_deref().map(resolv::read).transpose(),
        }
    }

    /// Whether a configuration leaves its ranges to the runtime, which gives them at ADD alone.
    pub(crate) fn awaits_ranges(request: &Request) -> bool {
        let none = |key: &str| {
            let ranges = request.ipam().and_then(|ipam| ipam.get(key));
            ranges.is_none_or(|ranges| ranges.is_null() || *ranges == no_ranges())
        };
        request.runtime("ipRanges").is_none() && none("ranges") && none("subnet")
    }
}

/// Ranges as they are written, or those that the runtime gives instead (`ipRanges`). In a configuration of host-local
/// they come before those that are written, and a container gets an address of each, as with that plugin
/// (`LoadIPAMConfig` in plugins/ipam/host-local/backend/allocator/config.go of containernetworking/plugins).
pub(crate) fn sets(request: &Request, written: Value) -> Result<Vec<Vec<Range>>, Failure> {
    let read = |name: &str, value: Value| -> Result<Vec<Vec<Range>>, Failure> {
        let sets: Option<_> =
            serde_json::from_value(value).map_err(|error| invalid_conf(format!("{name}: {error}")))?;
        Ok(sets.unwrap_or_default())
    };
    let Some(given) = request.runtime("ipRanges") else { return read("`ipam.ranges`", written) };
    let mut sets = read("`runtimeConfig.ipRanges`", given)?;
    let kind = request.ipam().and_then(|ipam| ipam.get("type")?.as_str());
    if kind == Some(dropin::HOST_LOCAL) {
        sets.extend(read("`ipam.ranges`", written)?);
    }
    Ok(sets)
}

/// # Errors
/// Code 7: no address could be given from them.
pub(crate) fn range_sets(sets: &[Vec<Range>]) -> Result<RangeSets, Failure> {
    RangeSets::new(sets).map_err(|error| invalid_conf(format!("`ipam.ranges`: could not {error}")))
}

fn check_keys(object: &Map<String, Value>, known: &[&str], within: &str) -> Result<(), Failure> {
    let unknown = object.iter().find(|(key, _)| !known.contains(&key.as_str()));
    unknown.map_or(Ok(()), |(key, value)| {
        let near = did_you_mean(nearest(key, known).map(|near| format!("`{within}{near}`")));
        let known = known.join(", ");
        Err(unsupported(format!("`{within}{key}` is {value}, and no such key is among {known}{near}")))
    })
}

fn prefixes_of(subnets: impl Iterator<Item = IpNet>) -> Prefixes {
    let mut subnets: Vec<IpNet> = subnets.collect();
    subnets.sort_unstable();
    subnets.dedup();
    subnets.into_iter().collect()
}

/// The attach, if it can do what else is asked of it.
fn path(written: &Written) -> Result<&'static DataPath, Failure> {
    let all = || ATTACHES.iter().chain([&DEVICE]);
    let path = all().find(|path| path.name == written.attach).ok_or_else(|| {
        let names: Vec<&str> = all().map(|path| path.name).collect();
        let near = did_you_mean(nearest(&written.attach, &names).map(|near| format!("{near:?}")));
        let names = names.join(", ");
        invalid_conf(format!("`attach` is {:?}; one of {names} is expected{near}", written.attach))
    })?;
    let name = path.name;
    if written.host_link && !path.attach.takes_host_link() {
        return Err(unsupported(format!(
            "`host_link` is true, which is for macvlan, ipvlan-l3 and ipvlan-l3s; pods of {name} have no use for it"
        )));
    }
    if written.masquerade && !(path.attach.masquerades() || written.host_link) {
        return Err(unsupported(format!(
            "`masquerade` is true, and what pods of {name} send keeps its address"
        )));
    }
    if name != DEVICE.name {
        let of_device = [
            ("deviceID", written.device.as_ref().map(|device| format!("{device:?}"))),
            ("vlan", written.vlan.map(|vlan| vlan.to_string())),
            ("spoof_check", written.spoof_check.map(|check| check.to_string())),
        ];
        if let Some((key, value)) = of_device.into_iter().find_map(|(key, value)| Some((key, value?))) {
            return Err(unsupported(format!(
                "`{key}` is {value}, which is for {}; {name} takes no device",
                DEVICE.name
            )));
        }
    }
    if let Some(vlan) = written.vlan.filter(|vlan| *vlan > VLAN_MAX) {
        return Err(invalid_conf(format!("`vlan` is {vlan}; 1 to {VLAN_MAX}, or 0 for none, is expected")));
    }
    if written.port_isolation && name != "bridge" {
        return Err(unsupported(format!(
            "`port_isolation` is true, and pods of {name} have no ports of a bridge"
        )));
    }
    Ok(path)
}

impl fmt::Display for AskedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskedCheck::Whether(whether) => write!(f, "{whether}"),
            AskedCheck::At(AskedHook::Tcx) => f.write_str("\"tcx\""),
        }
    }
}

/// Where a network's packets are checked by a program of its own. By default they are where they can be.
fn anti_spoofing(written: &Written, path: &DataPath) -> Result<Option<GuardHook>, Failure> {
    use AskedCheck::{At, Whether};
    let name = path.name;
    match (path.attach.anti_spoofing(), written.anti_spoofing) {
        (AntiSpoofing::Optional, Some(Whether(true)) | None) => Ok(Some(GuardHook::Filter)),
        (AntiSpoofing::Optional, Some(At(AskedHook::Tcx))) => Ok(Some(GuardHook::Tcx)),
        (AntiSpoofing::Always, Some(Whether(false))) => Err(unsupported(format!(
            "`anti_spoofing` is false, and the programs of {name} always check whose address a packet has: by it they know \
             the pod"
        ))),
        (AntiSpoofing::Never, Some(asked @ (Whether(true) | At(_)))) => Err(unsupported(format!(
            "`anti_spoofing` is {asked}, and what pods of {name} send goes to the wire and to each other past every place where \
             the node could check it"
        ))),
        (AntiSpoofing::Optional | AntiSpoofing::Never, Some(Whether(false)))
        | (AntiSpoofing::Always, Some(Whether(true) | At(_)))
        | (AntiSpoofing::Always | AntiSpoofing::Never, None) => Ok(None),
    }
}

/// Refuses what would be reserved and then not be used: an interface has one address of each family.
fn check_sets(sets: &[Vec<Range>], path: &DataPath) -> Result<(), Failure> {
    let family = |set: &Vec<Range>| set.first().map(|range| range.subnet.addr().is_ipv4());
    for (index, set) in sets.iter().enumerate() {
        if sets[..index].iter().any(|earlier| family(earlier) == family(set)) {
            let subnets: Vec<String> = set.iter().map(|range| range.subnet.to_string()).collect();
            let why = format!(
                "`ipam.ranges` has several sets of one family; set {index} would be a second address: {}",
                subnets.join(", ")
            );
            return Err(unsupported(why));
        }
        for Range { subnet, gateway, .. } in set {
            gateway.map_or(Ok(()), |gateway| require_gateway(path, *subnet, gateway))?;
        }
    }
    Ok(())
}

/// Where the attach itself is the gateway, it is the first address of a subnet.
fn require_gateway(path: &DataPath, subnet: IpNet, gateway: IpAddr) -> Result<(), Failure> {
    if path.attach.leads_out() && gateway_in(subnet) != gateway {
        let why = format!("`gateway` is {gateway}; that of {subnet} is its first address with {}", path.name);
        return Err(unsupported(why));
    }
    Ok(())
}
