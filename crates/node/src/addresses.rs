//! The addresses of attachments: what the store of a network says, in the words of the plugin.

use std::net::IpAddr;

use cni::{ErrorCode, Failure};
use ipam::{Holder, IpamError, Key, RangeSets, Reserved, Store};

use crate::Home;
use crate::failures::of_addresses;

/// Reserves an address of each set: one that is asked for, or the next. What containers of earlier boots had is free.
pub(crate) fn reserve(
    home: &Home,
    network: &str,
    (container_id, ifname): (&str, &str),
    ranges: &RangeSets,
    asked: &[IpAddr],
) -> Result<Vec<Reserved>, Failure> {
    in_store(home, network, |store| {
        let key = Key::new(container_id, ifname)?;
        store.release_of_earlier_boots()?;
        store.reserve(&key, ranges, asked)
    })
}

/// Releases the addresses of an attachment. It is no failure if it has none.
pub(crate) fn release(home: &Home, network: &str, container_id: &str, ifname: &str) -> Result<(), Failure> {
    in_store(home, network, |store| store.release(&Key::new(container_id, ifname)?)).map(drop)
}

/// The addresses that are reserved for an attachment.
pub(crate) fn reserved(
    home: &Home,
    network: &str,
    container_id: &str,
    ifname: &str,
) -> Result<Vec<IpAddr>, Failure> {
    in_store(home, network, |store| store.reserved(&Key::new(container_id, ifname)?))
}

/// Releases all addresses but those whose holder is kept.
pub(crate) fn keep_only(
    home: &Home,
    network: &str,
    is_kept: impl Fn(&Holder) -> bool,
) -> Result<(), Failure> {
    in_store(home, network, |store| store.keep_only(is_kept)).map(drop)
}

/// # Errors
/// Code 50: a set has no address left.
pub(crate) fn require_left(home: &Home, network: &str, ranges: &RangeSets) -> Result<(), Failure> {
    let left = in_store(home, network, |store| store.left(ranges))?;
    left.iter().position(|left| *left == 0).map_or(Ok(()), |set| {
        let why = format!("no address is left in range set {set} of network {network}");
        Err(Failure::new(ErrorCode::NOT_AVAILABLE, why))
    })
}

fn in_store<T>(
    home: &Home,
    network: &str,
    ask: impl FnOnce(&Store) -> Result<T, IpamError>,
) -> Result<T, Failure> {
    Store::open(home.leases(), network).and_then(|store| ask(&store)).map_err(|error| of_addresses(&error))
}
