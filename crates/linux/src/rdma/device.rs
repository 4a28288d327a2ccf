//! An RDMA device that is open.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::RdmaName;
use super::library::{Context, GidEntry, Library, PortState, ProtectionDomain, library};
use crate::error::Attempt;
use crate::{Error, Result};

/// Ports are counted from 1, and devices of RoCE have one.
pub(super) const PORT: u8 = 1;
/// The state of a port that can send (`IBV_PORT_ACTIVE`).
const ACTIVE: u32 = 4;
/// `IBV_GID_TYPE_ROCE_V2`: packets are UDP over IP.
const ROCE_V2: u32 = 2;

/// A device with memory and connections of this process. It is closed with the last of them.
pub struct VerbsDevice {
    pub(super) library: &'static Library,
    pub(super) context: NonNull<Context>,
    /// What registered memory and queue pairs belong to.
    pub(super) domain: NonNull<ProtectionDomain>,
    name: RdmaName,
    /// By which of its addresses it sends, as a place in its table.
    pub(super) gid_index: u8,
    /// That address, as 16 bytes of IPv6 or of IPv4 mapped into it.
    pub(super) gid: [u8; 16],
    /// The code of its packets' payload (`enum ibv_mtu`): 1 is 256 bytes, 5 is 4096.
    pub(super) mtu: u32,
}

// SAFETY: functions of libibverbs may be called by any thread at any time (verbs of the InfiniBand specification); all
// that is changed behind the pointers, it changes itself.
unsafe impl Send for VerbsDevice {}
// SAFETY: as above.
unsafe impl Sync for VerbsDevice {}

impl VerbsDevice {
    /// Why no program can use RDMA here that can use it elsewhere: there is no libibverbs.
    ///
    /// # Errors
    /// The reason, with the packages that bring it.
    pub fn find_library() -> Result<(), String> {
        library().map(drop)
    }

    /// Opens a device, to send by its first address of RoCE version 2, IPv4 before IPv6.
    ///
    /// # Errors
    /// There is no libibverbs, no such device, none of its drivers, or no link below it that is up.
    pub fn open(name: &RdmaName) -> Result<Arc<VerbsDevice>> {
        let attempted = || format!("open RDMA device {name}");
        let library = library().map_err(|why| Error::invalid(attempted(), why))?;
        let context = open(library, name)?;
        // SAFETY: the device is open.
        let domain = NonNull::new(unsafe { (library.alloc_pd)(context.as_ptr()) });
        let Some(domain) = domain else {
            let why = io::Error::last_os_error();
            // SAFETY: it is open, nothing belongs to it yet, and it is not used again.
            unsafe { (library.close_device)(context.as_ptr()) };
            return Err(Error::new(attempted(), why));
        };
        let name = name.clone();
        let device = VerbsDevice { library, context, domain, name, gid_index: 0, gid: [0; 16], mtu: 0 };
        device.with_address().attempt(attempted).map(Arc::new)
    }

    /// The name by which it was opened.
    pub fn name(&self) -> &RdmaName {
        &self.name
    }

    /// The address that it sends by.
    pub fn address(&self) -> IpAddr {
        Ipv6Addr::from(self.gid).to_canonical()
    }

    fn with_address(mut self) -> io::Result<VerbsDevice> {
        let mut port = PortState::default();
        // SAFETY: the device is open, and the place is larger than what any version of the function writes.
        let refused = unsafe { (self.library.query_port)(self.context.as_ptr(), PORT, &raw mut port) };
        done(refused)?;
        if port.state != ACTIVE {
            return Err(io::Error::other("its port is not active: set up the link below it"));
        }
        self.mtu = port.mtu;
        let gids = (0..port.gids.max(0).cast_unsigned().min(256)).filter_map(|index| self.gid_at(index));
        let v2: Vec<GidEntry> = gids.filter(|entry| entry.kind == ROCE_V2).collect();
        let is_v4 = |entry: &&GidEntry| address_of(entry).to_canonical().is_ipv4();
        let Some(entry) = v2.iter().find(is_v4).or(v2.first()) else {
            return Err(io::Error::other(
                "it has no address of RoCE version 2: give the link below it one of IP",
            ));
        };
        self.gid = address_of(entry).octets();
        self.gid_index = u8::try_from(entry.index).expect("at most 256 are looked at");
        Ok(self)
    }

    fn gid_at(&self, index: u32) -> Option<GidEntry> {
        let mut entry = GidEntry::default();
        let (place, bytes) = (&raw mut entry, size_of::<GidEntry>());
        // SAFETY: the device is open, and the place has as many bytes as are said.
        let refused = unsafe {
            (self.library.query_gid_ex)(self.context.as_ptr(), PORT.into(), index, place, 0, bytes)
        };
        (refused == 0 && entry.gid != [0; 2]).then_some(entry)
    }
}

impl fmt::Debug for VerbsDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsDevice").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for VerbsDevice {
    fn drop(&mut self) {
        // SAFETY: both are this value's own, and what belongs to them holds the value.
        unsafe {
            (self.library.dealloc_pd)(self.domain.as_ptr());
            (self.library.close_device)(self.context.as_ptr());
        }
    }
}

/// Opens the device of that name in the library's list.
fn open(library: &Library, name: &RdmaName) -> Result<NonNull<Context>> {
    let attempted = || format!("open RDMA device {name}");
    let mut count: c_int = 0;
    // SAFETY: the place is one for a number.
    let list = unsafe { (library.get_device_list)(&raw mut count) };
    if list.is_null() {
        return Err(Error::new(attempted(), io::Error::last_os_error()));
    }
    let devices = 0..usize::try_from(count).unwrap_or(0);
    // SAFETY: the list has as many entries as were said.
    let mut devices = devices.map(|at| unsafe { *list.add(at) });
    let found = devices.find(|device| {
        // SAFETY: the device is of the list, which is not freed yet; its name ends with a NUL.
        let text = unsafe { CStr::from_ptr((library.get_device_name)(*device)) };
        text.to_bytes() == name.as_str().as_bytes()
    });
    let opened = found.map(|device| {
        // SAFETY: as above. An open device stays when the list is freed.
        let context = unsafe { (library.open_device)(device) };
        NonNull::new(context).ok_or_else(io::Error::last_os_error)
    });
    // SAFETY: it is the list that was given, and its devices are not used again.
    unsafe { (library.free_device_list)(list) };
    match opened {
        Some(opened) => opened.attempt(attempted),
        None => Err(Error::invalid(
            attempted(),
            "libibverbs knows no such device here; it needs the module ib_uverbs, and the part of the device's driver \
             (ibverbs-providers)",
        )),
    }
}

fn address_of(entry: &GidEntry) -> Ipv6Addr {
    let [high, low] = entry.gid.map(u64::to_ne_bytes);
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&high);
    octets[8..].copy_from_slice(&low);
    Ipv6Addr::from(octets)
}

/// Functions of the library return 0 or an error's number.
pub(super) fn done(refused: c_int) -> io::Result<()> {
    if refused == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(refused.abs())) }
}

/// What a function of the library made, or why it made nothing.
pub(super) fn made<T>(made: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(made).ok_or_else(|| {
        let why = io::Error::last_os_error();
        if why.raw_os_error() == Some(0) { io::Error::other("the library gives no reason") } else { why }
    })
}

/// A null pointer of a type that is not spelt out.
pub(super) fn none<T>() -> *mut T {
    ptr::null_mut()
}
