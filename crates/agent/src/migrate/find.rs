//! What flannel has on a node, read from its environment file and the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ipnet::IpNet;
use linux::netlink::{LinkInfo, Netlink, RouteInfo};
use linux::{IfName, Link, LinkKind, Netns, Vxlan, netns, nft, sysctl};
use plan::{Place, Plan, SetSysctl, Step};

use super::error::MigrateError;
use crate::desired::{FLANNEL_PART, NODE_PART};
use crate::files::Environment;

/// How the names of flannel's devices begin: `flannel.1`, `flannel-v6.1`.
const DEVICES: &str = "flannel";
/// The name of its process.
const PROCESS: &str = "flanneld";

/// What flannel has on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flannel {
    /// What it says to plugins.
    pub environment: Environment,
    /// Its tunnel devices, one for each family; none with the backend `host-gw`.
    pub tunnels: Vec<Link>,
    /// How many routes lead to pods by another node on the link: without a tunnel the backend is `host-gw`,
    /// unless there are none.
    pub ways: usize,
    /// The bridge of its pods; `None`: there never was one.
    pub bridge: Option<Bridge>,
}

/// The bridge that flannel's plugin has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// Its name, which is `cni0` unless flannel's configuration has another.
    pub name: IfName,
    /// How many pods are attached to it.
    pub ports: usize,
}

/// Looks for what flannel has in the calling thread's network namespace.
///
/// # Errors
/// It has not run here, or with a backend that cannot be taken over.
pub fn find(subnet_env: &Path) -> Result<Flannel, MigrateError> {
    let environment = Environment::read(subnet_env).map_err(MigrateError::file("read", subnet_env))?;
    if environment.gateways.is_empty() || environment.networks.is_empty() {
        return Err(MigrateError::NoPrefix { path: subnet_env.to_owned() });
    }
    let netlink = Netlink::open()?;
    let links = netlink.links()?;
    let devices = links.iter().filter(|link| link.name.as_str().starts_with(DEVICES));
    let tunnels = devices.map(|link| tunnel(link, &links)).collect::<Result<_, _>>()?;
    let bridge = bridge(&environment, &netlink, &links)?;
    let ways = ways(&environment, &netlink.routes()?);
    Ok(Flannel { environment, tunnels, ways, bridge })
}

/// A device as the step has it that uses it.
fn tunnel(device: &LinkInfo, links: &[LinkInfo]) -> Result<Link, MigrateError> {
    let backend = || MigrateError::Backend {
        link: device.name.to_string(),
        kind: device.kind.clone().unwrap_or_else(|| "no vxlan".to_owned()),
    };
    let found = device.vxlan.ok_or_else(backend)?;
    let parent = links.iter().find(|link| Some(link.index) == found.parent).ok_or_else(backend)?;
    let (vni, port, learning) = (found.vni, found.port, found.learning);
    let (local, parent) = (found.local.ok_or_else(backend)?, parent.name.clone());
    let kind = LinkKind::Vxlan(Vxlan { vni, parent, local, port, learning });
    Ok(Link { name: device.name.clone(), kind, mtu: None, mac: device.mac })
}

/// Routes into the pods' network by a neighbour.
fn ways(environment: &Environment, routes: &[RouteInfo]) -> usize {
    let is_way = |route: &&RouteInfo| {
        let is_in = environment.networks.iter().any(|network| network.contains(&route.dst));
        route.table == RouteInfo::MAIN && is_in && route.next_hops.iter().any(|hop| hop.via.is_some())
    };
    routes.iter().filter(is_way).count()
}

/// The bridge that has the node's own address in its pods' network.
fn bridge(
    environment: &Environment,
    netlink: &Netlink,
    links: &[LinkInfo],
) -> Result<Option<Bridge>, MigrateError> {
    let is_gateway =
        |address: &IpNet| environment.gateways.iter().any(|gateway| gateway.addr() == address.addr());
    let addresses = netlink.addresses()?;
    let holders: BTreeSet<u32> =
        addresses.iter().filter(|found| is_gateway(&found.address)).map(|found| found.index).collect();
    let is_it = |link: &&LinkInfo| link.kind.as_deref() == Some("bridge") && holders.contains(&link.index);
    Ok(links.iter().find(is_it).map(|bridge| Bridge {
        name: bridge.name.clone(),
        ports: links.iter().filter(|link| link.master == Some(bridge.index)).count(),
    }))
}

/// # Errors
/// `flanneld` runs in the calling thread's network namespace.
pub(super) fn refuse_running() -> Result<(), MigrateError> {
    let is_flanneld = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == PROCESS)
    };
    match netns::pids_in(&[Netns::current()?])?.into_iter().find(is_flanneld) {
        Some(pid) => Err(MigrateError::Runs { pid }),
        None => Ok(()),
    }
}

impl Flannel {
    /// What goes into the journals of the network. Nothing of it is made, but that pods of the bridge
    /// find those beside it.
    pub fn parts(&self) -> BTreeMap<String, Plan> {
        let mut node = Plan::new();
        for tunnel in &self.tunnels {
            node.push(&Place::Host, Step::EnsureLink(tunnel.clone()));
        }
        let mut beside = Plan::new();
        let has_v4 = self.environment.gateways.iter().any(|gateway| gateway.addr().is_ipv4());
        if let Some(Bridge { name, .. }) = self.bridge.as_ref().filter(|_| has_v4) {
            // A pod of the bridge takes all pods of the node for its neighbours, and asks for their Ethernet addresses
            // there. For those elsewhere the node answers, at once.
            for (key, value) in [
                (format!("net/ipv4/neigh/{name}/proxy_delay"), "0"),
                (format!("net/ipv4/conf/{name}/proxy_arp"), "1"),
            ] {
                let key = sysctl::Key::new(key).expect("a constant path with a link's name in it is a key");
                beside.push(&Place::Host, SetSysctl { key, value: value.to_owned() });
            }
        }
        BTreeMap::from([(FLANNEL_PART.to_owned(), beside), (NODE_PART.to_owned(), node)])
    }

    /// flannel's rules in nftables, those of iptables that are kept there too, as `nft list` calls them. They stay.
    ///
    /// # Errors
    /// The program `nft` is not there, or cannot list them.
    pub fn rules() -> Result<Vec<String>, linux::Error> {
        let all = nft::dump(&Netns::current()?)?;
        let word =
            |object: &serde_json::Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let mut found = BTreeSet::new();
        for object in all.as_array().into_iter().flatten() {
            let (table, chain) = (&object["table"], &object["chain"]);
            if word(table, "name").starts_with("flannel-") {
                found.insert(format!("table {} {}", word(table, "family"), word(table, "name")));
            }
            if word(chain, "name").starts_with("FLANNEL-") {
                let place = [word(chain, "family"), word(chain, "table"), word(chain, "name")].join(" ");
                found.insert(format!("chain {place}"));
            }
        }
        Ok(found.into_iter().collect())
    }
}
