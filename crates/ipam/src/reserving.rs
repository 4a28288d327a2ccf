//! A reservation while it is made, under the lock: all addresses of a key, or none.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::choice::Occupied;
use crate::directory::Directory;
use crate::{Holder, IpamError, Key, RangeSets};

/// An address that a pod has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// The address, with the length of its subnet.
    pub address: IpNet,
    /// The gateway of its range.
    pub gateway: IpAddr,
    /// The index of the range set that it is from, from 0.
    pub set: usize,
}

/// What is reserved for a key so far.
#[derive(Debug)]
pub(crate) struct Reserving<'a> {
    pub(crate) directory: &'a Directory,
    pub(crate) key: &'a Key,
    pub(crate) sets: &'a RangeSets,
    pub(crate) occupied: Occupied,
    pub(crate) done: Vec<Reserved>,
}

impl Reserving<'_> {
    /// Reserves an address from each set: the asked-for one, or the next.
    pub(crate) fn all(&mut self, per_set: &[Option<IpAddr>]) -> Result<(), IpamError> {
        for (set, wanted) in per_set.iter().enumerate() {
            let address = match wanted {
                Some(address) => self.take(*address)?,
                None => self.next(set)?,
            };
            let span = self.sets.sets()[set].span_of(address).expect("it was chosen from this set");
            let net = IpNet::new(address, span.prefix_len).expect("a subnet's length fits its addresses");
            self.done.push(Reserved { address: net, gateway: span.gateway, set });
        }
        self.directory.sync()?;
        for reserved in &self.done {
            self.directory.set_last_reserved(reserved.set, reserved.address.addr())?;
        }
        Ok(())
    }

    /// Releases what was reserved. What cannot be removed here is found by the DEL that follows every ADD that failed.
    pub(crate) fn undo(&self) {
        for reserved in &self.done {
            let _ = self.directory.release(reserved.address.addr());
        }
    }

    fn take(&self, address: IpAddr) -> Result<IpAddr, IpamError> {
        if self.make(address)? {
            return Ok(address);
        }
        // A directory may have its name, or a file that cannot be read.
        let holder = self.directory.holder(address).ok().flatten();
        let holder = holder.unwrap_or(Holder { container: String::new(), ifname: None });
        Err(IpamError::Taken { address, key: self.key.clone(), holder })
    }

    fn next(&mut self, set: usize) -> Result<IpAddr, IpamError> {
        let ranges = &self.sets.sets()[set];
        let last = self.directory.last_reserved(set);
        while let Some(address) = self.occupied.choose(ranges, last) {
            if self.make(address)? {
                return Ok(address);
            }
            // A name that is no reservation has it, or a program that does not use the lock.
            self.occupied.add(address);
        }
        Err(IpamError::NoneLeft { key: self.key.clone(), set, ranges: ranges.to_string() })
    }

    fn make(&self, address: IpAddr) -> Result<bool, IpamError> {
        self.directory.reserve(address, self.key).map_err(|error| error.reserving(address, self.key))
    }
}

/// The asked-for address of each set.
pub(crate) fn by_set(
    key: &Key,
    sets: &RangeSets,
    wanted: &[IpAddr],
) -> Result<Vec<Option<IpAddr>>, IpamError> {
    let mut per_set = vec![None; sets.len()];
    for address in wanted.iter().map(IpAddr::to_canonical) {
        let Some(set) = sets.set_of(address) else {
            return Err(IpamError::NotInRange { address, key: key.clone(), ranges: sets.to_string() });
        };
        if sets.gateways().contains(&address) {
            return Err(IpamError::Gateway { address, key: key.clone() });
        }
        match per_set[set].replace(address) {
            // The same twice is one wish, as in host-local.
            Some(first) if first != address => {
                return Err(IpamError::SecondOfSet { address, first, key: key.clone(), set });
            }
            Some(_) | None => {}
        }
    }
    Ok(per_set)
}
