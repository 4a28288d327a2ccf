//! A plan in the making at one place: the vocabulary in which drivers read aloud.

use std::net::IpAddr;

use ipnet::IpNet;
use linux::{FdbEntry, IfName, Link, LinkKind, Mac, Neighbour, Route, nft, sysctl};
use plan::{Place, Plan, SetLinkMtu, SetLinkUp, SetSysctl, Step};

use crate::check::MTU_MIN_IPV6;
use crate::{Addresses, Family, Network, Pod, PodRoute, Prefixes, links, rules};

/// Steps at one place, for packets of some families. What is said of other families is left out: the kernel may not
/// have them.
pub(crate) struct Draft<'a> {
    place: &'a Place,
    families: &'static [Family],
    plan: Plan,
}

impl<'a> Draft<'a> {
    pub(crate) fn at(place: &'a Place, families: &'static [Family]) -> Draft<'a> {
        Draft { place, families, plan: Plan::new() }
    }

    pub(crate) fn into_plan(self) -> Plan {
        self.plan
    }

    pub(crate) fn step(&mut self, step: impl Into<Step>) {
        self.plan.push(self.place, step);
    }

    pub(crate) fn link(&mut self, name: &IfName, kind: LinkKind, mtu: u32, mac: Option<Mac>) {
        self.step(Step::AddLink(Link { name: name.clone(), kind, mtu: Some(mtu), mac }));
    }

    /// Uses a link that another program has made, whose MTU may be another. Should it be gone, it is made as it was.
    pub(crate) fn found_link(&mut self, name: &IfName, kind: LinkKind, mtu: u32, mac: Mac) {
        self.step(Step::EnsureLink(Link { name: name.clone(), kind, mtu: None, mac: Some(mac) }));
        self.step(SetLinkMtu { link: name.clone(), mtu });
    }

    /// Makes a pod's interface in the pod, on a parent of another place.
    pub(crate) fn interface_on(
        &mut self,
        parent_in: &Place,
        pod: &Pod,
        kind: LinkKind,
        mtu: u32,
        mac: Option<Mac>,
    ) {
        let born = links::born(pod);
        let link = Link { name: born.clone(), kind, mtu: Some(mtu), mac };
        self.step(Step::AddLinkOn { link, parent_in: parent_in.clone() });
        self.step(Step::MoveLink { link: born, to: self.place.clone(), name: pod.ifname.clone() });
    }

    /// Brings a link up with IPv6 addresses that are usable at once, by switching duplicate address
    /// detection off for it.
    ///
    /// It would keep the link-local address from use for one to two seconds, and a node that forwards has no other
    /// source address for its neighbour solicitations: the first packets would be lost. The addresses are derived from
    /// unique ids, so there is nothing to detect.
    pub(crate) fn up(&mut self, link: &IfName) {
        if self.families.contains(&Family::V6) {
            let key = accept_dad(link.as_str());
            self.step(parameter(&key, "0"));
        }
        self.step(SetLinkUp { link: link.clone() });
    }

    /// The same for a link that other networks may want as well.
    pub(crate) fn shared_up(&mut self, link: &IfName) {
        if self.families.contains(&Family::V6) {
            self.shared(&accept_dad(link.as_str()), "0");
        }
        self.share(SetLinkUp { link: link.clone() }.into());
    }

    /// The same for links that another program makes here: they begin with the value of `default`, which is the whole
    /// place's.
    pub(crate) fn later_links_without_detection(&mut self) {
        if self.families.contains(&Family::V6) {
            self.shared(&accept_dad("default"), "0");
        }
    }

    /// Lets the node take no router advertisement that arrives at a link, where the network wants that: a pod
    /// would lead the node's own packets to itself by one (CVE-2020-10749). A node has IPv6 on a link though its
    /// pods have IPv4 alone, unless its MTU is too small for IPv6: then there is no such parameter. It comes
    /// before the link is up.
    pub(crate) fn refuse_routers(&mut self, network: &Network, (link, mtu): (&IfName, u32), of: OfLink) {
        if network.refuses_routers && mtu >= MTU_MIN_IPV6 {
            let step = parameter(&format!("net/ipv6/conf/{link}/accept_ra"), "0");
            match of {
                OfLink::Own => self.step(step),
                OfLink::Shared => self.share(step),
            }
        }
    }

    /// Lets a pod take no router advertisement at a link, which comes before the link is up: its routes are ours.
    pub(crate) fn ignore_routers(&mut self, link: &IfName) {
        if self.families.contains(&Family::V6) {
            self.step(parameter(&format!("net/ipv6/conf/{link}/accept_ra"), "0"));
        }
    }

    /// Brings up a link that is not to have any address: from IPv6 it would get one of its own.
    pub(crate) fn up_without_ipv6(&mut self, link: &IfName) {
        if self.families.contains(&Family::V6) {
            self.step(parameter(&format!("net/ipv6/conf/{link}/disable_ipv6"), "1"));
        }
        self.step(SetLinkUp { link: link.clone() });
    }

    /// Does a step for the whole place, which other networks may want as well: it stays done as long as one does.
    pub(crate) fn share(&mut self, step: Step) {
        self.step(Step::Share(Box::new(step)));
    }

    /// Sets a parameter of the whole place, as [`Draft::share`].
    pub(crate) fn shared(&mut self, key: &str, value: &str) {
        self.share(parameter(key, value));
    }

    /// Lets the place forward packets.
    pub(crate) fn forwarding(&mut self) {
        for family in self.families {
            match family {
                Family::V4 => self.shared("net/ipv4/ip_forward", "1"),
                Family::V6 => self.shared("net/ipv6/conf/all/forwarding", "1"),
            }
        }
    }

    pub(crate) fn addresses(&mut self, link: &IfName, addresses: impl IntoIterator<Item = IpNet>) {
        for address in addresses {
            self.step(Step::AddAddress { link: link.clone(), address });
        }
    }

    /// The same for a link that may have them.
    pub(crate) fn found_addresses(&mut self, link: &IfName, addresses: impl IntoIterator<Item = IpNet>) {
        for address in addresses {
            self.step(Step::EnsureAddress { link: link.clone(), address });
        }
    }

    /// Destinations on the link itself.
    pub(crate) fn routes_on(&mut self, link: &IfName, destinations: impl IntoIterator<Item = IpNet>) {
        for dst in destinations {
            self.step(Step::AddRoute(Route::on_link(dst, link.clone())));
        }
    }

    /// Destinations by way of the next hop of their family; those of a family without one are left out.
    pub(crate) fn routes_via(&mut self, link: &IfName, destinations: &Prefixes, hops: &Addresses) {
        for (dst, via) in with_hops(destinations, hops) {
            self.step(Step::AddRoute(Route::via(dst, via, link.clone())));
        }
    }

    /// As [`Draft::routes_via`], though no route says that the next hop is on the link.
    pub(crate) fn routes_via_onlink(&mut self, link: &IfName, destinations: &Prefixes, hops: &Addresses) {
        for (dst, via) in with_hops(destinations, hops) {
            self.step(Step::AddRoute(Route { onlink: true, ..Route::via(dst, via, link.clone()) }));
        }
    }

    /// A pod's own routes: by the neighbour that they name, else by the hop of their family, else on the link. Where
    /// the hop is not `onlink`, an address of the link says that it is a neighbour.
    pub(crate) fn own_routes(&mut self, pod: &Pod, hops: &Addresses, onlink: bool) {
        for PodRoute { dst, via, mtu, metric } in pod.routes.iter().copied() {
            let family = Family::of(dst.addr());
            if !self.families.contains(&family) || pod.addresses.of(family).is_none() {
                continue;
            }
            let hop = hops.of(family);
            let route = Route {
                via: via.or(hop),
                onlink: onlink && via.is_none() && hop.is_some(),
                mtu,
                metric,
                ..Route::on_link(dst.trunc(), pod.ifname.clone())
            };
            self.step(Step::AddRoute(route));
        }
    }

    /// Permanent neighbours with one Ethernet address.
    pub(crate) fn neighbours(&mut self, link: &IfName, ips: impl IntoIterator<Item = IpAddr>, mac: Mac) {
        for ip in ips {
            self.step(Step::AddNeighbour(Neighbour { dev: link.clone(), ip, mac: Some(mac) }));
        }
    }

    pub(crate) fn fdb(&mut self, link: &IfName, mac: Mac, dst: IpAddr) {
        self.step(Step::AddFdb(FdbEntry { dev: link.clone(), mac, dst }));
    }

    /// Leads ports of the node to a pod's. The tables for it stand as long as a pod publishes ports.
    pub(crate) fn publish(&mut self, pod: &Pod, tables: impl IntoIterator<Item = nft::Table>) {
        for table in tables {
            self.share(Step::AddNftTable(table));
        }
        for element in rules::ports::elements(pod) {
            self.step(Step::AddNftElement(element));
        }
    }

    /// Leads ports of the node's 127.0.0.1 to a pod's, out by the link toward the pod. The table that keeps others away
    /// from there comes before the parameter.
    pub(crate) fn publish_on_loopback(&mut self, pod: &Pod, link: &IfName, of: OfLink) {
        let elements = rules::ports::loopback_elements(pod);
        if elements.is_empty() {
            return;
        }
        self.share(Step::AddNftTable(rules::ports::loopback()));
        let step = parameter(&format!("net/ipv4/conf/{link}/route_localnet"), "1");
        match of {
            OfLink::Own => self.step(step),
            OfLink::Shared => self.share(step),
        }
        for element in elements {
            self.step(Step::AddNftElement(element));
        }
    }

    pub(crate) fn tables(&mut self, tables: impl IntoIterator<Item = nft::Table>) {
        for table in tables {
            self.step(Step::AddNftTable(table));
        }
    }
}

/// Whether other pods or networks want the same of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfLink {
    /// The link is of one pod alone.
    Own,
    /// The link is a bridge, which pods share.
    Shared,
}

fn accept_dad(link: &str) -> String {
    format!("net/ipv6/conf/{link}/accept_dad")
}

fn parameter(key: &str, value: &str) -> Step {
    let key = sysctl::Key::new(key).expect("a constant path with a link's name in it is a key");
    Step::from(SetSysctl { key, value: value.to_owned() })
}

/// Each destination with the hop of its family.
pub(crate) fn with_hops(destinations: &Prefixes, hops: &Addresses) -> Vec<(IpNet, IpAddr)> {
    let hop = |dst: IpNet| hops.of(Family::of(dst.addr())).map(|via| (dst, via));
    destinations.iter().filter_map(hop).collect()
}
