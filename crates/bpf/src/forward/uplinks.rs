//! The links beside the wire by which a node's programs may send to other nodes' pods.

use std::path::Path;
use std::thread;
use std::time::Duration;

use libbpf_rs::{MapCore as _, MapFlags};
use linux::Result;
use rustix::time::{ClockId, clock_gettime};

use super::ROUTE_SECONDS;
use crate::entry::Entry;

/// Bytes of `struct uplink`.
const BYTES: usize = 8;
/// Programs count the time that a route is good for in ticks of the kernel's clock: at most so much longer (`CONFIG_HZ`
/// is 100 or more).
const TICK: Duration = Duration::from_millis(10);

/// Lets packets to other nodes' pods leave by a link to which the kernel's routes lead, as they leave by the wire: with
/// the Ethernet addresses of the kernel's neighbour table.
///
/// # Errors
/// It is one already; the map is full; nothing is loaded in the folder, or programs of a version without such links.
pub fn add_uplink(folder: &Path, link: u32) -> Result<()> {
    entry(link).add(folder)
}

/// Whether packets may leave by the link.
pub fn has_uplink(folder: &Path, link: u32) -> Result<bool> {
    Ok(entry(link).find(folder)?.is_some())
}

/// Leaves it to the kernel to send by a link. Where its routes lead elsewhere by now, no packet takes the link any more
/// when this returns, and the link can be deleted without loss: it waits as long as programs may go by a route that
/// they have kept ([`ROUTE_SECONDS`]), if they found one by this link.
///
/// # Errors
/// It is none; nothing is loaded in the folder.
pub fn remove_uplink(folder: &Path, link: u32) -> Result<()> {
    let entry = entry(link);
    let used = entry.with(folder, "remove an entry of", |map| {
        let found = map.lookup(&entry.key, MapFlags::ANY)?;
        map.delete(&entry.key)?;
        Ok(found)
    })?;
    let used_ns = used.and_then(|value| value.try_into().ok()).map_or(0, u64::from_ne_bytes);
    if used_ns > 0 {
        let good_for = Duration::from_secs(ROUTE_SECONDS.into()) + TICK;
        let left = (Duration::from_nanos(used_ns) + good_for).saturating_sub(now());
        thread::sleep(left.min(good_for));
    }
    Ok(())
}

/// On the clock of `bpf_ktime_get_ns`.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

fn entry(link: u32) -> Entry {
    Entry { map: "uplinks", key: link.to_ne_bytes().to_vec(), value: vec![0; BYTES] }
}
