//! Services and their backends, as the maps have them.
//!
//! A Service has one entry, and its backends have slots of the entry's generation (`services.h`). Whoever writes holds
//! the folder's lock. A process may be killed between any two writes: what it left lies in the generations before and
//! after the entry's, in slots without gaps from the first one on, and the next change of the Service takes it away.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use libbpf_rs::{ErrorKind, MapCore as _, MapFlags, MapHandle};
use linux::{Error, Result};
use serde::{Deserialize, Serialize};

use super::alone;
use crate::ffi;

const SERVICES: &str = "services";
const SLOTS: &str = "service_slots";
/// The generation of a Service's first entry.
const FIRST: u32 = 1;

/// A transport protocol of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Protocol {
    Tcp,
    Udp,
}

/// What sockets call: the virtual address of a Service, and one of its ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServiceAddress {
    /// The virtual address; no link has it.
    pub address: IpAddr,
    /// The Service's own port.
    pub port: u16,
    /// The protocol of sockets that are led to backends; the port of another protocol is another Service's.
    pub protocol: Protocol,
}

/// Where calls of a Service's address are led.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// The address, port and protocol that sockets call.
    pub at: ServiceAddress,
    /// So many seconds after its last call a network namespace is led to the same backend again; 0: each call to any.
    pub affinity_s: u32,
    /// Where they are led, of the address's family. Without any a call is refused (`ECONNREFUSED`).
    pub backends: BTreeSet<SocketAddr>,
}

/// A Service as the maps have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundService {
    /// With the backends that are there.
    pub service: Service,
    /// False: a backend is not there, and calls that would be led to it are refused.
    pub is_whole: bool,
}

/// Leads calls of a Service's address to these backends, or to these instead of others. Each call meets the old
/// backends or the new ones, and never some of both.
///
/// # Errors
/// A backend is of the other family; a map is full; nothing is loaded in the folder. What was there
/// before is there still.
pub fn set(folder: &Path, service: &Service) -> Result<()> {
    write(folder, service, |_| Ok(()))
}

/// As [`set`], where there is no such Service.
///
/// # Errors
/// `EEXIST`: there is one. As for [`set`].
pub fn add(folder: &Path, service: &Service) -> Result<()> {
    write(folder, service, |tables| match tables.find(&service.at)? {
        None => Ok(()),
        Some(_) => Err(io::Error::from(rustix::io::Errno::EXIST).into()),
    })
}

fn write(
    folder: &Path,
    service: &Service,
    admits: impl FnOnce(&Tables) -> libbpf_rs::Result<()>,
) -> Result<()> {
    let attempted = || format!("set service {} in {}", service.at, folder.display());
    let is_other = |backend: &&SocketAddr| backend.is_ipv4() != service.at.address.is_ipv4();
    if let Some(other) = service.backends.iter().find(is_other) {
        let why = format!("backend {other} is of the other family");
        return Err(Error::new(attempted(), io::Error::other(why)));
    }
    let _alone = alone(folder)?;
    Tables::open(folder)
        .and_then(|tables| admits(&tables).and_then(|()| tables.set(service)))
        .map_err(|error| ffi::failed(attempted(), &error))
}

/// Leads calls of this address nowhere any more: they go to the address itself.
///
/// # Errors
/// A map cannot be written. That there is no such Service is no error.
pub fn remove(folder: &Path, at: &ServiceAddress) -> Result<()> {
    let _alone = alone(folder)?;
    Tables::open(folder)
        .and_then(|tables| tables.remove(at))
        .map_err(|error| ffi::failed(format!("remove service {at} of {}", folder.display()), &error))
}

/// The Service at an address.
///
/// # Errors
/// Nothing is loaded in the folder.
pub fn find(folder: &Path, at: &ServiceAddress) -> Result<Option<FoundService>> {
    let _alone = alone(folder)?;
    Tables::open(folder)
        .and_then(|tables| tables.find(at))
        .map_err(|error| ffi::failed(format!("look for service {at} in {}", folder.display()), &error))
}

/// All Services of a folder.
///
/// # Errors
/// As for [`find`].
pub fn list(folder: &Path) -> Result<BTreeMap<ServiceAddress, FoundService>> {
    let _alone = alone(folder)?;
    Tables::open(folder)
        .and_then(|tables| tables.list())
        .map_err(|error| ffi::failed(format!("list the services of {}", folder.display()), &error))
}

struct Tables {
    services: MapHandle,
    slots: MapHandle,
}

/// As `struct service` lies in memory.
#[derive(Clone, Copy)]
struct Entry {
    generation: u32,
    backends: u32,
    affinity_s: u32,
}

impl Tables {
    fn open(folder: &Path) -> libbpf_rs::Result<Tables> {
        ffi::listen();
        let map = |name| MapHandle::from_pinned_path(folder.join(name));
        Ok(Tables { services: map(SERVICES)?, slots: map(SLOTS)? })
    }

    fn set(&self, service: &Service) -> libbpf_rs::Result<()> {
        let key = bytes_of(&service.at);
        let found = self.entry(&key)?;
        let before = found.map_or(FIRST - 1, |entry| entry.generation);
        let next = before.wrapping_add(1);
        self.clear(&key, before.wrapping_sub(1), 0)?;
        self.clear(&key, next, 0)?;
        let written = self.write(&key, next, service);
        if let Err(error) = written {
            self.clear(&key, next, 0)?;
            return Err(error);
        }
        self.clear(&key, before, found.map_or(0, |entry| entry.backends))
    }

    /// Writes the backends, and then the entry that makes them count.
    fn write(&self, key: &[u8], generation: u32, service: &Service) -> libbpf_rs::Result<()> {
        let mut backends = 0;
        for backend in &service.backends {
            let at = ServiceAddress { address: backend.ip(), port: backend.port(), ..service.at };
            put(&self.slots, &slot(key, generation, backends), &bytes_of(&at))?;
            backends += 1;
        }
        let entry = Entry { generation, backends, affinity_s: service.affinity_s };
        put(&self.services, key, &entry.bytes())
    }

    fn remove(&self, at: &ServiceAddress) -> libbpf_rs::Result<()> {
        let key = bytes_of(at);
        let Some(Entry { generation, backends, .. }) = self.entry(&key)? else {
            // Slots without an entry are those of one that was about to be the first.
            return self.clear(&key, FIRST, 0);
        };
        // The entry goes last: by it the slots are found. Until then calls are refused.
        let next = generation.wrapping_add(1);
        self.clear(&key, next, 0)?;
        let last = Entry { generation: next, backends: 0, affinity_s: 0 };
        put(&self.services, &key, &last.bytes())?;
        self.clear(&key, generation.wrapping_sub(1), 0)?;
        self.clear(&key, generation, backends)?;
        delete(&self.services, &key)
    }

    /// Takes the slots of a generation away, of which there are at least so many if there are none missing,
    /// the last one first.
    fn clear(&self, key: &[u8], generation: u32, known: u32) -> libbpf_rs::Result<()> {
        let mut end = known;
        while self.slots.lookup(&slot(key, generation, end), MapFlags::ANY)?.is_some() {
            end += 1;
        }
        (0..end).rev().try_for_each(|at| delete(&self.slots, &slot(key, generation, at)))
    }

    fn entry(&self, key: &[u8]) -> libbpf_rs::Result<Option<Entry>> {
        Ok(self.services.lookup(key, MapFlags::ANY)?.as_deref().and_then(Entry::read))
    }

    fn find(&self, at: &ServiceAddress) -> libbpf_rs::Result<Option<FoundService>> {
        let key = bytes_of(at);
        let Some(entry) = self.entry(&key)? else { return Ok(None) };
        let mut backends = BTreeSet::new();
        for number in 0..entry.backends {
            let value = self.slots.lookup(&slot(&key, entry.generation, number), MapFlags::ANY)?;
            backends.extend(value.as_deref().and_then(read_address).map(ServiceAddress::socket));
        }
        Ok(Some(entry.with(*at, backends)))
    }

    fn list(&self) -> libbpf_rs::Result<BTreeMap<ServiceAddress, FoundService>> {
        let mut entries = BTreeMap::new();
        for (key, value) in ffi::entries(&self.services)? {
            entries.extend(read_address(&key).zip(Entry::read(&value)));
        }
        let mut backends: BTreeMap<ServiceAddress, BTreeSet<SocketAddr>> = BTreeMap::new();
        for (key, value) in ffi::entries(&self.slots)? {
            let Some((at, generation, number)) = read_slot(&key) else { continue };
            let is_its = |entry: &Entry| entry.generation == generation && number < entry.backends;
            if entries.get(&at).is_some_and(is_its) {
                backends.entry(at).or_default().extend(read_address(&value).map(ServiceAddress::socket));
            }
        }
        let found = |(at, entry): (ServiceAddress, Entry)| {
            (at, entry.with(at, backends.remove(&at).unwrap_or_default()))
        };
        Ok(entries.into_iter().map(found).collect())
    }
}

impl Entry {
    fn bytes(self) -> [u8; 12] {
        let words = [self.generation, self.backends, self.affinity_s].map(u32::to_ne_bytes);
        words.concat().try_into().expect("three words")
    }

    fn read(bytes: &[u8]) -> Option<Entry> {
        let mut words = bytes.chunks_exact(4).map(word);
        Some(Entry { generation: words.next()?, backends: words.next()?, affinity_s: words.next()? })
    }

    fn with(self, at: ServiceAddress, backends: BTreeSet<SocketAddr>) -> FoundService {
        let is_whole = backends.len() == self.backends as usize;
        FoundService { service: Service { at, affinity_s: self.affinity_s, backends }, is_whole }
    }
}

/// Writes an entry, whether there is one or not.
fn put(map: &MapHandle, key: &[u8], value: &[u8]) -> libbpf_rs::Result<()> {
    map.update(key, value, MapFlags::ANY).map_err(|error| match error.kind() {
        // The kernel's word for it is "argument list too long".
        ErrorKind::TooBig => io::Error::other(format!("the map is full with {}", map.max_entries())).into(),
        _ => error,
    })
}

fn delete(map: &MapHandle, key: &[u8]) -> libbpf_rs::Result<()> {
    match map.delete(key) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        deleted => deleted,
    }
}

/// As `struct destination` lies in memory.
fn bytes_of(at: &ServiceAddress) -> [u8; 20] {
    let address = match at.address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let fields = [&address.octets()[..], &at.port.to_be_bytes(), &at.protocol.number().to_ne_bytes()];
    fields.concat().try_into().expect("the fields are as long as the structure")
}

/// As `struct slot` lies in memory.
fn slot(service: &[u8], generation: u32, number: u32) -> Vec<u8> {
    [service, &generation.to_ne_bytes(), &number.to_ne_bytes()].concat()
}

fn read_address(bytes: &[u8]) -> Option<ServiceAddress> {
    let (address, rest) = bytes.split_first_chunk::<16>()?;
    let (port, protocol) = rest.split_first_chunk::<2>()?;
    let protocol = u16::from_ne_bytes(*protocol.first_chunk()?);
    Some(ServiceAddress {
        address: Ipv6Addr::from(*address).to_canonical(),
        port: u16::from_be_bytes(*port),
        protocol: [Protocol::Tcp, Protocol::Udp].into_iter().find(|known| known.number() == protocol)?,
    })
}

fn read_slot(bytes: &[u8]) -> Option<(ServiceAddress, u32, u32)> {
    let (service, rest) = bytes.split_at_checked(20)?;
    let mut words = rest.chunks_exact(4).map(word);
    Some((read_address(service)?, words.next()?, words.next()?))
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes.try_into().expect("four bytes"))
}

impl Protocol {
    /// The protocol's number of IP.
    fn number(self) -> u16 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        }
    }

    /// As Services are written: `tcp`.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

impl ServiceAddress {
    fn socket(self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.socket(), self.protocol.name())
    }
}

impl FromStr for ServiceAddress {
    type Err = String;

    /// As it is shown: `10.96.0.10:53/udp`, `[fd00::a]:53/udp`.
    fn from_str(text: &str) -> std::result::Result<ServiceAddress, String> {
        let wrong = || format!("{text:?} is no ADDRESS:PORT/tcp or ADDRESS:PORT/udp");
        let (socket, protocol) = text.rsplit_once('/').ok_or_else(wrong)?;
        let socket: SocketAddr = socket.parse().map_err(|_| wrong())?;
        let protocol = [Protocol::Tcp, Protocol::Udp].into_iter().find(|known| known.name() == protocol);
        let protocol = protocol.ok_or_else(wrong)?;
        Ok(ServiceAddress { address: socket.ip(), port: socket.port(), protocol })
    }
}

impl fmt::Display for FoundService {
    /// What there is of it: `10.96.0.1:443/tcp with 192.0.2.1:6443`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Service { at, affinity_s, backends } = &self.service;
        let backends: Vec<String> = backends.iter().map(ToString::to_string).collect();
        let backends = if backends.is_empty() { "no backend".to_owned() } else { backends.join(", ") };
        write!(f, "{at} with {backends}")?;
        if *affinity_s > 0 {
            write!(f, " and an affinity of {affinity_s} s")?;
        }
        if self.is_whole { Ok(()) } else { f.write_str(", and without others that it had") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_memory_as_the_programs_read_it() {
        for (text, tail) in [
            ("10.96.0.10:53/udp", [0xff, 0xff, 10, 96, 0, 10, 0, 53]),
            ("[fd00::a01:2]:258/tcp", [0, 0, 0x0a, 0x01, 0, 2, 1, 2]),
        ] {
            let at: ServiceAddress = text.parse().unwrap();
            let bytes = bytes_of(&at);
            assert_eq!(bytes[10..18], tail, "{text}");
            assert_eq!(u16::from_ne_bytes([bytes[18], bytes[19]]), at.protocol.number());
            assert_eq!(read_address(&bytes), Some(at));
            assert_eq!(read_slot(&slot(&bytes, 7, 8)), Some((at, 7, 8)));
            assert_eq!(at.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["10.96.0.10:53", "10.96.0.10/udp", "10.96.0.10:53/sctp", "dns:53/udp", ""] {
            assert!(text.parse::<ServiceAddress>().unwrap_err().contains("is no ADDRESS:PORT"), "{text}");
        }
    }
}
