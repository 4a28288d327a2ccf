//! The addresses of attachments: what the store of a network says, in the words of the plugin.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni::{ErrorCode, Failure, Request};
use ipam::{Holder, IpamError, Key, RangeSets, Reserved, Store};
use serde_json::Value;

use crate::failures::{invalid_conf, of_addresses};
use crate::{Home, delegate};

/// A way to reserve addresses.
type Reserve = fn(&Store, &Key, &RangeSets, &[IpAddr]) -> Result<Vec<Reserved>, IpamError>;

/// The addresses of a network on this node: a directory with its name below that of all networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leases {
    data_dir: PathBuf,
    network: String,
}

impl Leases {
    /// Those of a network that are kept below `data_dir`.
    pub(crate) fn at(data_dir: &Path, network: &str) -> Leases {
        Leases { data_dir: data_dir.to_owned(), network: network.to_owned() }
    }

    /// Where a configuration has them (`ipam.dataDir`), or the node's own place. `name` is that by which the program
    /// was called. Where another plugin gives the addresses, the key is that plugin's.
    ///
    /// # Errors
    /// Code 7: the network has no name, or the key has something else than an absolute path.
    pub(crate) fn of(home: &Home, request: &Request, name: &str) -> Result<Leases, Failure> {
        let written = request.ipam().and_then(|ipam| ipam.get("dataDir"));
        let data_dir = match written.filter(|_| delegate::kind(request, name).is_none()) {
            // As with host-local, an empty one is none.
            None | Some(Value::Null) => home.leases(),
            Some(Value::String(text)) if text.is_empty() => home.leases(),
            // A relative one would depend on where the runtime happens to run.
            Some(Value::String(text)) if text.starts_with('/') => Path::new(text),
            Some(found) => {
                return Err(invalid_conf(format!("`ipam.dataDir` is {found}; an absolute path is expected")));
            }
        };
        Ok(Leases::at(data_dir, request.name()?))
    }

    /// The directory that has those of all networks.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The name of the network whose addresses these are.
    pub(crate) fn network(&self) -> &str {
        &self.network
    }

    /// Reserves an address of each set: one that is asked for, or the next. What containers of earlier boots had is
    /// free. `reserve` is [`Store::reserve`], or [`Store::reserve_for_new`] for an attachment that has just begun.
    pub(crate) fn reserve(
        &self,
        (container_id, ifname): (&str, &str),
        ranges: &RangeSets,
        asked: &[IpAddr],
        reserve: Reserve,
    ) -> Result<Vec<Reserved>, Failure> {
        self.ask(|store| {
            let key = Key::new(container_id, ifname)?;
            reserve(store, &key, ranges, asked)
        })
    }

    /// Releases the addresses of an attachment. It is no failure if it has none.
    pub(crate) fn release(&self, container_id: &str, ifname: &str) -> Result<(), Failure> {
        self.ask(|store| store.release(&Key::new(container_id, ifname)?)).map(drop)
    }

    /// The addresses that are reserved for an attachment.
    pub(crate) fn reserved(&self, container_id: &str, ifname: &str) -> Result<Vec<IpAddr>, Failure> {
        self.ask(|store| store.reserved(&Key::new(container_id, ifname)?))
    }

    /// Releases all addresses but those whose holder is kept.
    pub(crate) fn keep_only(&self, is_kept: impl Fn(&Holder) -> bool) -> Result<(), Failure> {
        self.ask(|store| store.keep_only(is_kept)).map(drop)
    }

    /// # Errors
    /// Code 50: a set has no address left.
    pub(crate) fn require_left(&self, ranges: &RangeSets) -> Result<(), Failure> {
        let left = self.ask(|store| store.left(ranges))?;
        left.iter().position(|left| *left == 0).map_or(Ok(()), |set| {
            let why = format!("no address is left in range set {set} of network {}", self.network);
            Err(Failure::new(ErrorCode::NOT_AVAILABLE, why))
        })
    }

    fn ask<T>(&self, ask: impl FnOnce(&Store) -> Result<T, IpamError>) -> Result<T, Failure> {
        let opened = Store::open(&self.data_dir, &self.network);
        opened.and_then(|store| ask(&store)).map_err(|error| of_addresses(&error))
    }
}
