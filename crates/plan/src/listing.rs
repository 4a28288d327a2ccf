//! What a namespace holds. Each kind is asked for when first needed, and once: a step alone wants one answer, and all
//! steps of a plan want the same few lists.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use linux::netlink::{AddressInfo, FdbInfo, LinkInfo, NeighbourInfo, RouteInfo};
use linux::{IfName, sysctl};

use crate::kernel::Opened;

type Result<T> = std::result::Result<T, linux::Error>;

/// The lists of one namespace at one moment.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    links: OnceCell<Vec<LinkInfo>>,
    addresses: OnceCell<Vec<AddressInfo>>,
    routes: OnceCell<Vec<RouteInfo>>,
    neighbours: OnceCell<Vec<NeighbourInfo>>,
    fdb: OnceCell<Vec<FdbInfo>>,
    parameters: BTreeMap<sysctl::Key, Option<String>>,
}

impl Listing {
    /// With these kernel parameters read already: to enter a namespace for each costs more than to read it.
    pub(crate) fn with_parameters<'k>(
        opened: &Opened,
        keys: impl Iterator<Item = &'k sysctl::Key>,
    ) -> Result<Listing> {
        let read = || keys.map(|key| Ok((key.clone(), sysctl::read(key)?))).collect::<Result<_>>();
        Ok(Listing { parameters: opened.netns.run(read)??, ..Listing::default() })
    }

    /// A link by name. Without the list of links it is asked for alone.
    pub(crate) fn link(&self, opened: &Opened, name: &IfName) -> Result<Option<LinkInfo>> {
        match self.links.get() {
            Some(links) => Ok(links.iter().find(|link| link.name == *name).cloned()),
            None => opened.netlink.link(name),
        }
    }

    pub(crate) fn links(&self, opened: &Opened) -> Result<&[LinkInfo]> {
        once(&self.links, || opened.netlink.links())
    }

    pub(crate) fn addresses(&self, opened: &Opened) -> Result<&[AddressInfo]> {
        once(&self.addresses, || opened.netlink.addresses())
    }

    pub(crate) fn routes(&self, opened: &Opened) -> Result<&[RouteInfo]> {
        once(&self.routes, || opened.netlink.routes())
    }

    pub(crate) fn neighbours(&self, opened: &Opened) -> Result<&[NeighbourInfo]> {
        once(&self.neighbours, || opened.netlink.neighbours())
    }

    pub(crate) fn fdb(&self, opened: &Opened) -> Result<&[FdbInfo]> {
        once(&self.fdb, || opened.netlink.fdb())
    }

    /// A kernel parameter; `None` if there is none of that name.
    pub(crate) fn parameter(&self, opened: &Opened, key: &sysctl::Key) -> Result<Option<String>> {
        match self.parameters.get(key) {
            Some(value) => Ok(value.clone()),
            None => opened.netns.run(|| sysctl::read(key))?,
        }
    }
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
