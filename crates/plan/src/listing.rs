//! What a namespace holds: asked for one by one for a step alone, and once as whole lists for all steps of a plan.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bpf::services::{self, FoundService, ServiceAddress};
use linux::netlink::{AddressInfo, FdbInfo, LinkInfo, NeighbourInfo, RouteInfo, WireGuardDevice};
use linux::{FdbEntry, IfName, PublicKey, Route, sysctl};
use rustix::io::Errno;

use crate::kernel::OpenNetns;
use crate::wireguard_lists::{Lasts, WireGuardLists};

type Result<T> = std::result::Result<T, linux::Error>;

/// What one namespace holds at one moment. Without lists the kernel is asked for each thing by itself.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Each kind is listed when it is first needed.
    has_lists: bool,
    /// It is that of a run over the steps of a plan.
    of_run: bool,
    links: OnceCell<Vec<LinkInfo>>,
    names: OnceCell<BTreeMap<IfName, usize>>,
    addresses: OnceCell<Vec<AddressInfo>>,
    routes: OnceCell<Vec<RouteInfo>>,
    neighbours: OnceCell<Vec<NeighbourInfo>>,
    fdb: OnceCell<Vec<FdbInfo>>,
    devices: WireGuardLists,
    parameters: BTreeMap<sysctl::Key, Option<String>>,
    /// Those of the folder that was asked for first: a node has one.
    services: OnceCell<(PathBuf, BTreeMap<ServiceAddress, FoundService>)>,
}

impl Listing {
    /// Of whole lists, with these kernel parameters read already: to enter a namespace for each costs more than to read
    /// it.
    pub(crate) fn of<'k>(opened: &OpenNetns, keys: impl Iterator<Item = &'k sysctl::Key>) -> Result<Listing> {
        let read = || keys.map(|key| Ok((key.clone(), sysctl::read(key)?))).collect::<Result<_>>();
        Ok(Listing { has_lists: true, parameters: opened.netns.run(read)??, ..Listing::default() })
    }

    /// Of a run over the steps of a plan: each thing is asked for by itself, if the kernel can be asked so.
    pub(crate) fn of_run() -> Listing {
        Listing { of_run: true, ..Listing::default() }
    }

    pub(crate) fn link(&self, opened: &OpenNetns, name: &IfName) -> Result<Option<LinkInfo>> {
        if !self.has_lists {
            return opened.netlink.link(name);
        }
        let links = self.links(opened)?;
        let by_name = |(at, link): (usize, &LinkInfo)| (link.name.clone(), at);
        let names = self.names.get_or_init(|| links.iter().enumerate().map(by_name).collect());
        Ok(names.get(name).map(|at| links[*at].clone()))
    }

    /// The index of a link; `None` if there is none.
    pub(crate) fn index(&self, opened: &OpenNetns, name: &IfName) -> Result<Option<u32>> {
        Ok(self.link(opened, name)?.map(|link| link.index))
    }

    pub(crate) fn link_at(&self, opened: &OpenNetns, index: u32) -> Result<Option<LinkInfo>> {
        if !self.has_lists {
            return opened.netlink.link_at(index);
        }
        Ok(equal(self.links(opened)?, |link| link.index.cmp(&index)).first().cloned())
    }

    pub(crate) fn addresses_of(&self, opened: &OpenNetns, index: u32) -> Result<Vec<AddressInfo>> {
        if !self.has_lists {
            return opened.netlink.addresses_of(index);
        }
        Ok(equal(self.addresses(opened)?, |info| info.index.cmp(&index)).to_vec())
    }

    /// The route of the main table that has the place of one that a step makes, whatever way it leads.
    pub(crate) fn rival(&self, opened: &OpenNetns, route: &Route) -> Result<Option<RouteInfo>> {
        if !self.has_lists {
            return opened.netlink.rival(route);
        }
        let key = (RouteInfo::MAIN, route.dst.trunc());
        let to_there = equal(self.routes(opened)?, |info| (info.table, info.dst).cmp(&key));
        Ok(to_there.iter().find(|info| info.is_rival(route)).cloned())
    }

    pub(crate) fn neighbour(
        &self,
        opened: &OpenNetns,
        index: u32,
        ip: IpAddr,
        proxy: bool,
    ) -> Result<Option<NeighbourInfo>> {
        if !self.has_lists {
            return opened.netlink.neighbour(index, ip, proxy);
        }
        let key = (index, ip, proxy);
        let found = equal(self.neighbours(opened)?, |info| (info.index, info.ip, info.proxy).cmp(&key));
        Ok(found.first().cloned())
    }

    /// The entries of a link for the address of one.
    pub(crate) fn fdb_of(&self, opened: &OpenNetns, index: u32, entry: &FdbEntry) -> Result<Vec<FdbInfo>> {
        if !self.has_lists {
            return opened.netlink.fdb_of(entry, index);
        }
        Ok(equal(self.fdb(opened)?, |info| (info.index, info.mac).cmp(&(index, entry.mac))).to_vec())
    }

    /// What a WireGuard device is like, and one peer of it if the question names one; `None` if the link
    /// is of another kind.
    pub(crate) fn wireguard<T>(
        &self,
        opened: &OpenNetns,
        (link, index): (&IfName, u32),
        peer: Option<&PublicKey>,
        answer: impl FnOnce(&WireGuardDevice) -> T,
    ) -> Result<Option<T>> {
        let list = || match opened.wireguard()?.device(link) {
            Err(error) if error.is(Errno::OPNOTSUPP.raw_os_error()) => Ok(None),
            device => device.map(Some),
        };
        match (self.has_lists, self.of_run) {
            (true, _) => self.devices.ask(index, peer, Lasts::Always, list, answer),
            (false, true) => opened.devices.ask(index, peer, Lasts::ByLength, list, answer),
            (false, false) => WireGuardLists::default().ask(index, peer, Lasts::Once, list, answer),
        }
    }

    pub(crate) fn links(&self, opened: &OpenNetns) -> Result<&[LinkInfo]> {
        once(&self.links, || opened.netlink.links())
    }

    pub(crate) fn addresses(&self, opened: &OpenNetns) -> Result<&[AddressInfo]> {
        once(&self.addresses, || opened.netlink.addresses())
    }

    pub(crate) fn routes(&self, opened: &OpenNetns) -> Result<&[RouteInfo]> {
        once(&self.routes, || opened.netlink.routes())
    }

    pub(crate) fn neighbours(&self, opened: &OpenNetns) -> Result<&[NeighbourInfo]> {
        once(&self.neighbours, || opened.netlink.neighbours())
    }

    pub(crate) fn fdb(&self, opened: &OpenNetns) -> Result<&[FdbInfo]> {
        once(&self.fdb, || opened.netlink.fdb())
    }

    /// A Service in the maps of a folder; `None` also where nothing is loaded.
    pub(crate) fn service(&self, folder: &Path, at: &ServiceAddress) -> Result<Option<FoundService>> {
        if self.has_lists {
            let (of, all) = match self.services.get() {
                Some(listed) => listed,
                None => {
                    let is_loaded = services::is_loaded(folder);
                    let all = if is_loaded { services::list(folder)? } else { BTreeMap::new() };
                    self.services.get_or_init(|| (folder.to_owned(), all))
                }
            };
            if of == folder {
                return Ok(all.get(at).cloned());
            }
        }
        if services::is_loaded(folder) { services::find(folder, at) } else { Ok(None) }
    }

    /// A kernel parameter; `None` if there is none of that name.
    pub(crate) fn parameter(&self, opened: &OpenNetns, key: &sysctl::Key) -> Result<Option<String>> {
        match self.parameters.get(key) {
            Some(value) => Ok(value.clone()),
            None => opened.netns.run(|| sysctl::read(key))?,
        }
    }
}

/// Those of a sorted list that compare as equal.
fn equal<T>(sorted: &[T], compare: impl Fn(&T) -> Ordering) -> &[T] {
    let first = sorted.partition_point(|one| compare(one) == Ordering::Less);
    let behind = sorted.partition_point(|one| compare(one) != Ordering::Greater);
    &sorted[first..behind]
}

fn once<T>(cell: &OnceCell<Vec<T>>, list: impl FnOnce() -> Result<Vec<T>>) -> Result<&[T]> {
    match cell.get() {
        Some(found) => Ok(found),
        None => {
            let found = list()?;
            Ok(cell.get_or_init(|| found))
        }
    }
}
