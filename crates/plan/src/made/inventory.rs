//! What a namespace holds, without what changes by itself.

use std::fmt::Debug;

use linux::netlink::{AddressInfo, FdbInfo, LinkInfo, NeighbourInfo, RouteInfo, RuleInfo};

use crate::kernel::OpenNetns;
use crate::listing::Listing;

/// The lists of a namespace at one moment. Two that are equal: nothing was added, changed or taken away in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inventory {
    links: Vec<LinkInfo>,
    addresses: Vec<AddressInfo>,
    routes: Vec<RouteInfo>,
    neighbours: Vec<NeighbourInfo>,
    fdb: Vec<FdbInfo>,
    rules: Vec<RuleInfo>,
    qdiscs: Vec<Discipline>,
    programs: Vec<Program>,
    /// Of the nftables rules.
    generation: Option<u32>,
}

/// A queueing discipline, without its options.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Discipline {
    link: u32,
    kind: String,
    root: bool,
    major: u16,
    minor: u16,
}

/// A program at a link.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    link: u32,
    hook: &'static str,
    id: u32,
}

/// Routes with this protocol are the kernel's own (`RTPROT_KERNEL`), those of this table too (`RT_TABLE_LOCAL`).
const OF_KERNEL: u8 = 2;
const LOCAL: u32 = 255;

impl Inventory {
    pub(super) fn of(opened: &OpenNetns, listing: &Listing) -> Result<Inventory, linux::Error> {
        // The carrier follows the other end, which may be no link of the plan.
        let links = listing.links(opened)?.iter().map(|link| LinkInfo { carrier: false, ..link.clone() });
        let links: Vec<LinkInfo> = links.collect();
        let addresses = listing.addresses(opened)?.iter().filter(|info| !is_link_local(info));
        let discipline = |qdisc: linux::netlink::QdiscCounters| Discipline {
            link: qdisc.index,
            kind: qdisc.kind,
            root: qdisc.root,
            major: qdisc.major,
            minor: qdisc.minor,
        };
        // Those without a number are the kernel's own choice.
        let qdiscs = opened.netlink.qdisc_counters()?.into_iter().filter(|qdisc| qdisc.major != 0);
        Ok(Inventory {
            addresses: addresses.cloned().map(AddressInfo::steady).collect(),
            routes: listing.routes(opened)?.iter().filter(|route| is_lasting(route)).cloned().collect(),
            neighbours: configured(listing.neighbours(opened)?, |entry| entry.permanent || entry.proxy),
            fdb: configured(listing.fdb(opened)?, |entry| entry.permanent && entry.mac.0[0] & 1 == 0),
            rules: opened.netlink.rules()?,
            qdiscs: qdiscs.map(discipline).collect(),
            programs: programs(opened, &links)?,
            generation: opened.nftables()?.generation()?,
            links,
        })
    }

    /// The first difference in a later one, in words.
    pub(super) fn difference(&self, later: &Inventory) -> Option<String> {
        let name = |index: u32| {
            let of = |links: &[LinkInfo]| {
                links.iter().find(|link| link.index == index).map(|link| link.name.to_string())
            };
            of(&later.links).or_else(|| of(&self.links)).unwrap_or_else(|| format!("number {index}"))
        };
        let has_changed = |link: &&LinkInfo| {
            let now = later.links.binary_search_by_key(&link.index, |now| now.index);
            now.is_ok_and(|now| later.links[now] != **link)
        };
        let changed = self.links.iter().find(has_changed);
        if let Some(link) = changed {
            return Some(format!("link {} has other properties", link.name));
        }
        difference(&self.links, &later.links, |link| format!("link {}", link.name))
            .or_else(|| {
                difference(&self.addresses, &later.addresses, |info| {
                    format!("address {} of link {}", info.address, name(info.index))
                })
            })
            .or_else(|| {
                difference(&self.routes, &later.routes, |route| {
                    let hop = route.next_hops.first().and_then(|hop| hop.index);
                    let by = hop.map_or(String::new(), |index| format!(" by link {}", name(index)));
                    format!("the route to {}{by} in table {}", route.dst, route.table)
                })
            })
            .or_else(|| {
                difference(&self.rules, &later.rules, |rule| {
                    format!("the policy rule of priority {}", rule.priority)
                })
            })
            .or_else(|| {
                difference(&self.neighbours, &later.neighbours, |entry| {
                    format!("neighbour {} of link {}", entry.ip, name(entry.index))
                })
            })
            .or_else(|| {
                difference(&self.fdb, &later.fdb, |entry| {
                    format!("the forwarding entry for {} of link {}", entry.mac, name(entry.index))
                })
            })
            .or_else(|| {
                difference(&self.programs, &later.programs, |program| {
                    format!("a program at {} of link {}", program.hook, name(program.link))
                })
            })
            .or_else(|| {
                difference(&self.qdiscs, &later.qdiscs, |qdisc| {
                    format!("queueing discipline {} of link {}", qdisc.kind, name(qdisc.link))
                })
            })
            .or_else(|| {
                (self.generation != later.generation).then(|| "the nftables rules have changed".to_owned())
            })
    }
}

/// What is gone, or else what is new. The kernel's lists keep their order: what both begin and end with is not
/// searched.
fn difference<T: PartialEq>(was: &[T], is: &[T], name: impl Fn(&T) -> String) -> Option<String> {
    let begin = was.iter().zip(is).take_while(|(was, is)| was == is).count();
    let (was, is) = (&was[begin..], &is[begin..]);
    let end = was.iter().rev().zip(is.iter().rev()).take_while(|(was, is)| was == is).count();
    let (was, is) = (&was[..was.len() - end], &is[..is.len() - end]);
    let gone = was.iter().find(|one| !is.contains(one)).map(|one| format!("{} is gone", name(one)));
    gone.or_else(|| is.iter().find(|one| !was.contains(one)).map(|one| format!("{} is new", name(one))))
}

fn configured<T: Clone + Debug>(all: &[T], is_configured: impl Fn(&T) -> bool) -> Vec<T> {
    all.iter().filter(|one| is_configured(one)).cloned().collect()
}

fn programs(opened: &OpenNetns, links: &[LinkInfo]) -> Result<Vec<Program>, linux::Error> {
    let ask = || {
        let mut programs = Vec::new();
        for link in links {
            let found = bpf::program_ids_at(link.index)?;
            programs.extend(found.into_iter().map(|(hook, id)| Program { link: link.index, hook, id }));
        }
        Ok(programs)
    };
    opened.netns.run(ask)?
}

/// The kernel gives a link its own address when it has its carrier.
fn is_link_local(info: &AddressInfo) -> bool {
    matches!(info.address, ipnet::IpNet::V6(net) if net.addr().is_unicast_link_local())
}

/// False for what ends by itself, and for the IPv6 routes that the kernel makes when it has looked at an address: they
/// come and go with the address, which is listed.
fn is_lasting(route: &RouteInfo) -> bool {
    let settles = route.dst.addr().is_ipv6()
        && route.protocol == OF_KERNEL
        && (route.table == LOCAL
            || matches!(route.dst, ipnet::IpNet::V6(net) if net.addr().is_unicast_link_local()));
    !settles && !route.expires
}
