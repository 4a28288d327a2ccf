//! What a driver reports of its card: its own statistics, the sizes of its rings, its queues, its interrupt
//! coalescing, and the work that it takes off the CPU.
//!
//! The driver's name and its own statistics come from the old ioctl, the only interface for them; the rest comes from
//! ethtool's netlink. No privilege is needed.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};

use crate::ethtool::Ethtool;
pub use crate::ethtool::{Channels, Coalescing, Rings};
use crate::{Error, IfName, Result};

/// A card by its driver's own words. What a driver does not report is `None`, or empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Nic {
    /// The driver's name (`virtio_net`); empty if the driver reports none.
    pub driver: String,
    /// Its statistics under its own names, since the driver's start.
    pub statistics: BTreeMap<String, u64>,
    pub rings: Option<Rings>,
    /// Queues in use and at most; `None` if the driver reports none.
    pub channels: Option<Channels>,
    /// How long it waits before it interrupts.
    pub coalescing: Option<Coalescing>,
    /// Offloads that the card supports, and whether each is on: `tso`, `gso`, `gro`, `rx-checksum`, `tx-checksum`,
    /// `scatter-gather`, `lro`.
    pub offloads: BTreeMap<String, bool>,
}

// Commands of include/uapi/linux/ethtool.h.
const GET_DRIVER: u32 = 0x3;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_SIZES: u32 = 0x37;
/// The set of statistics' names, and the bytes of a name.
const STATISTICS: u32 = 1;
const NAME_BYTES: usize = 32;
/// The most statistics that are read: large cards have a few thousand.
const STATISTICS_MAX: usize = 20_000;

/// Queries a link's driver, in the calling thread's namespace.
///
/// # Errors
/// The link does not exist, or no socket could be opened. A query that the driver does not support is no error.
pub fn ask(link: &IfName) -> Result<Nic> {
    let attempted = || format!("ask the driver of link {link}");
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::new(attempted(), errno))?;
    let card = Card { socket, link };
    let mut nic = Nic::default();
    match card.driver() {
        Ok(driver) => nic.driver = driver,
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        Err(error) => return Err(Error::new(attempted(), error)),
    }
    if let Ok(ethtool) = Ethtool::open() {
        nic.rings = ethtool.rings(link);
        nic.channels = ethtool.channels(link);
        nic.coalescing = ethtool.coalescing(link);
        nic.offloads = ethtool.offloads(link);
    }
    nic.statistics = card.statistics().unwrap_or_default();
    Ok(nic)
}

struct Card<'a> {
    socket: OwnedFd,
    link: &'a IfName,
}

impl Card<'_> {
    fn driver(&self) -> io::Result<String> {
        // struct ethtool_drvinfo: command, then texts, of which the first is the name.
        let mut words = [0; 49];
        words[0] = GET_DRIVER;
        self.exchange(&mut words)?;
        Ok(text(&words[1..9]))
    }

    fn statistics(&self) -> io::Result<BTreeMap<String, u64>> {
        // struct ethtool_sset_info: command, reserved, mask (64 bits), then a count for each bit of the mask.
        let mut sizes = [GET_SET_SIZES, 0, 0, 0, 0];
        sizes[mask_word()] = 1 << STATISTICS;
        self.exchange(&mut sizes)?;
        let count = sizes[4] as usize;
        if count == 0 || count > STATISTICS_MAX {
            return Ok(BTreeMap::new());
        }
        let length = u32::try_from(count).expect("it is limited above");
        // struct ethtool_gstrings: command, set, length, names.
        let mut names = vec![0; 3 + count * NAME_BYTES / 4];
        names[..3].copy_from_slice(&[GET_STRINGS, STATISTICS, length]);
        self.exchange(&mut names)?;
        // struct ethtool_stats: command, number, values of 64 bits.
        let mut values = vec![0; 2 + count * 2];
        values[..2].copy_from_slice(&[GET_STATISTICS, length]);
        self.exchange(&mut values)?;
        let names = names[3..].chunks_exact(NAME_BYTES / 4).map(text);
        let values = values[2..].chunks_exact(2).map(long);
        let mut statistics = BTreeMap::new();
        for (name, value) in names.zip(values) {
            // vmxnet3 indents those of a queue, and calls them the same for each queue.
            let sum: &mut u64 = statistics.entry(name.trim().to_owned()).or_default();
            *sum = sum.wrapping_add(value);
        }
        statistics.remove("");
        Ok(statistics)
    }

    fn exchange(&self, words: &mut [u32]) -> io::Result<()> {
        // SAFETY: `ifreq` is plain data, for which zeros are a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = self.link.as_str().bytes();
        // A name is shorter than the field (IfName), so that its end stays zero.
        for (to, from) in request.ifr_name.iter_mut().zip(name) {
            *to = c_char::from_ne_bytes([from]);
        }
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: the descriptor is open; the request is whole and points to words that live through the call, as many
        // as the structure of their command has, which is what the kernel writes.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Which word of a 64-bit number of two words at 2 and 3 is the lower one.
fn mask_word() -> usize {
    if cfg!(target_endian = "little") { 2 } else { 3 }
}

fn long(words: &[u32]) -> u64 {
    let [a, b] = [words[0].to_ne_bytes(), words[1].to_ne_bytes()];
    u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
}

/// Text up to its zero byte.
fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_texts_and_long_numbers() {
        let name = [u32::from_ne_bytes(*b"veth"), u32::from_ne_bytes(*b"_x\0y")];
        assert_eq!(text(&name), "veth_x");
        let number = 0x0102_0304_0506_0708_u64.to_ne_bytes();
        let half = |at: usize| u32::from_ne_bytes(number[at..at + 4].try_into().unwrap());
        assert_eq!(long(&[half(0), half(4)]), 0x0102_0304_0506_0708);
    }

    #[test]
    fn the_loopback_reports_its_offloads_and_a_missing_link_is_an_error() {
        let nic = ask(&IfName::new("lo").unwrap()).unwrap();
        assert!(nic.offloads["gso"], "{nic:?}");
        assert_eq!(nic.rings, None);
        assert!(ask(&IfName::new("hgt-none").unwrap()).unwrap_err().is(libc::ENODEV));
    }
}
