//! The host as its knobs see it: a namespace, a link, the routes over it, the card behind it.

use ipnet::IpNet;
use linux::interrupts::Interrupts;
use linux::netlink::{RouteInfo, RouteMetric};
use linux::sysfs::{NetSysfs, Queue};
use linux::{CpuSet, IfName, Netlink, Netns, NetnsName};
use plan::Place;
use serde::{Deserialize, Serialize};
use tune::{Lives, Nic, Setting, Site};

use crate::HostError;

/// The numbers of the kernel's main table and of routes that lead somewhere (linux/rtnetlink.h).
const MAIN_TABLE: u32 = 254;
const UNICAST: u8 = 1;
/// The number of a protocol there: router advertisements (`RTPROT_RA`).
const ANNOUNCED: u8 = 9;

/// The place in which settings are made: a namespace and its link to the network.
pub struct Host {
    /// The namespace; `None` for the one in which this process is.
    pub netns: Option<NetnsName>,
    /// The link to the network, where one is known.
    pub device: Option<Device>,
    /// The facts that steps need. If no link is known, its link's name is that of no existing link.
    pub site: Site,
    /// The driver's limit for the link's MTU, if it has one.
    pub mtu_max: Option<u32>,
    /// Destinations of routes that a router has announced: settings on them are lost with the next announcement.
    pub announced: Vec<IpNet>,
    /// Destinations to which routes over other links lead too, or several over this one: a setting says nothing
    /// of which it means.
    pub shared: Vec<IpNet>,
}

/// Identifies a link: another link may get its name later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Device {
    pub name: String,
    /// Its index, which no other link of the namespace gets later.
    pub index: u32,
    /// Its Ethernet address, where it has one.
    pub mac: Option<String>,
    /// The driver of its device, or the kind of a virtual link.
    pub driver: Option<String>,
}

impl Host {
    /// Reads the state of the host: of the named namespace, or else of this one; of the named link, or else of that of
    /// the default route.
    ///
    /// # Errors
    /// [`HostError::BadRequest`]: there is no such namespace or link. Others: the kernel does not show it.
    pub fn look(netns: Option<&str>, device: Option<&str>) -> Result<Host, HostError> {
        let bad = |error: linux::NameError| HostError::BadRequest(error.to_string());
        let name = netns.map(NetnsName::new).transpose().map_err(bad)?;
        let netns = match &name {
            Some(name) if !linux::netns::exists(name) => {
                return Err(HostError::BadRequest(format!("there is no network namespace {name}")));
            }
            Some(name) => Netns::open(name)?,
            None => Netns::current()?,
        };
        let place = name.clone().map_or(Place::Host, Place::Netns);
        let netlink = Netlink::open_in(&netns)?;
        let link = match device {
            Some(dev) => Some(IfName::new(dev).map_err(bad)?),
            None => netlink.link_of_default_route()?.map(|link| link.name),
        };
        let (online, isolated) = (linux::cpu::online()?, linux::cpu::isolated()?);
        let Some(wire) = link else {
            let cpus = own_cpus(&online, None, &isolated);
            let wire = IfName::new("none").expect("a constant name is valid");
            let (process, node) = (place.clone(), place);
            let nic = Nic { rx: 0, tx: 0, interrupts: Vec::new() };
            let site = Site { process, node, wire, cpus, nic, routes: Vec::new() };
            return Ok(Host {
                netns: name,
                device: None,
                site,
                mtu_max: None,
                announced: vec![],
                shared: vec![],
            });
        };
        let found = netlink.link(&wire)?;
        let found = found.ok_or_else(|| {
            HostError::BadRequest(format!("there is no link {wire} in {}", netns.describe()))
        })?;
        let sysfs = NetSysfs::open(&netns).map_err(HostError::Queues)?;
        let cpus = own_cpus(&online, sysfs.local_cpus(&wire).as_ref(), &isolated);
        let queues = sysfs.queues(&wire)?;
        let rx = queues.iter().filter(|queue| matches!(queue, Queue::Rx(_))).count();
        let mut interrupts = Interrupts::kernel().list()?;
        let own = sysfs.interrupts(&wire)?;
        interrupts.retain(|one| own.contains(&one.number));
        let count = |queues: usize| u16::try_from(queues).unwrap_or(u16::MAX);
        let nic = Nic { rx: count(rx), tx: count(queues.len() - rx), interrupts };
        let device = Device {
            name: wire.to_string(),
            index: found.index,
            mac: found.mac.map(|mac| mac.to_string()),
            driver: sysfs.driver(&wire).or(found.kind),
        };
        let RoutesOver { announced, shared, ours } = routes_over(&netlink, found.index)?;
        let routes = ours.into_iter().map(|dst| (dst, wire.clone())).collect();
        let (process, node) = (place.clone(), place);
        let site = Site { process, node, wire, cpus, nic, routes };
        Ok(Host { netns: name, device: Some(device), site, mtu_max: found.mtu_max, announced, shared })
    }

    /// Opens the namespace; that of the calling thread where none is named.
    pub(crate) fn open(&self) -> Result<Netns, linux::Error> {
        self.netns.as_ref().map_or_else(Netns::current, Netns::open)
    }

    /// The site with only the routes that a setting applies to.
    pub(crate) fn site_for(&self, setting: &Setting, route: Option<IpNet>) -> Site {
        let mut site = self.site.clone();
        match (route, setting.lives) {
            (Some(route), _) => site.routes.retain(|(dst, _)| *dst == route),
            // Over the default route answers may take much longer than within a data centre.
            (None, Lives::Route(RouteMetric::RtoMin)) => site.routes.retain(|(dst, _)| dst.prefix_len() > 0),
            (None, _) => {}
        }
        site
    }
}

/// The CPUs that `node` stands for: those near the card that are online and not isolated; if there are none, all that
/// are online and not isolated, and if there are none of these either, all that are online. If it is not known which
/// are near, all count as near.
fn own_cpus(online: &CpuSet, near: Option<&CpuSet>, isolated: &CpuSet) -> CpuSet {
    let free = online.without(isolated);
    let near: CpuSet = free.iter().filter(|cpu| near.is_none_or(|near| near.contains(*cpu))).collect();
    let first = [near, free].into_iter().find(|cpus| !cpus.is_empty());
    first.unwrap_or_else(|| online.clone())
}

/// The destinations of routes over a link.
struct RoutesOver {
    /// A router has announced them.
    announced: Vec<IpNet>,
    /// There are several routes to them.
    shared: Vec<IpNet>,
    /// A property can be set on them.
    ours: Vec<IpNet>,
}

fn routes_over(netlink: &Netlink, index: u32) -> Result<RoutesOver, linux::Error> {
    let mut all = netlink.routes()?;
    all.retain(|route| route.table == MAIN_TABLE && route.kind == UNICAST);
    let alone = |dst: &IpNet| all.iter().filter(|route| route.dst == *dst).count() == 1;
    // The kernel's own on-link routes (fe80::/64) do not count.
    let local = |dst: &IpNet| matches!(dst, IpNet::V6(net) if net.addr().is_unicast_link_local());
    let over = all.iter().filter(|route| {
        matches!(route.next_hops.as_slice(), [hop] if hop.index == Some(index)) && !local(&route.dst)
    });
    let (alone, several): (Vec<_>, Vec<_>) = over.partition(|route| alone(&route.dst));
    let (announced, ours): (Vec<_>, Vec<_>) =
        alone.into_iter().partition(|route| route.protocol == ANNOUNCED || route.expires);
    let destinations = |routes: Vec<&RouteInfo>| {
        let mut all: Vec<IpNet> = routes.into_iter().map(|route| route.dst).collect();
        all.dedup();
        all
    };
    let [announced, shared, ours] = [announced, several, ours].map(destinations);
    Ok(RoutesOver { announced, shared, ours })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(near: Option<&str>, isolated: &str, expected: &str) {
        let set = |text: &str| -> CpuSet { text.parse().unwrap() };
        let found = own_cpus(&set("0-7"), near.map(set).as_ref(), &set(isolated));
        assert_eq!(found.to_string(), expected, "near {near:?}, isolated {isolated:?}");
    }

    #[test]
    fn a_card_s_cpus_are_those_near_it_that_are_online_and_not_isolated() {
        check(Some("4-11"), "", "4-7");
        check(Some("4-7"), "6-7", "4-5");
        check(None, "2-7", "0-1");
        check(None, "", "0-7");
    }

    #[test]
    fn where_there_are_none_all_that_are_not_isolated_are_meant() {
        check(Some("4-7"), "4-7", "0-3");
        check(Some("8-11"), "", "0-7");
        check(Some("8-11"), "6", "0-5,7");
        check(None, "0-7", "0-7");
    }
}
