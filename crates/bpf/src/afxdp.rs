//! The program that hands frames to an AF_XDP socket: those for one address of each family and one port. All
//! others are the kernel's.
//!
//! Nothing is pinned: the program is at the link until [`Handing`] is dropped, or the process dies of whatever.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use linux::xdp::{QUEUE, XdpSocket};
use linux::{Error, Result};
use rustix::net::ipproto;

use crate::attach::hold;
use crate::{Hook, Unpinned, XdpMode, ffi};

#[expect(
    unreachable_pub,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::needless_pass_by_value,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "it is generated"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/afxdp.skel.rs"));
}

use skeleton::types::{afxdp_counter, afxdp_wanted};

/// Frames that may wait on their way to another CPU.
const WAITING_FRAMES: u32 = 2048;

/// Whose frames a socket gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameFilter {
    /// The address of IPv4 that they are for.
    pub v4: Option<Ipv4Addr>,
    /// The address of IPv6.
    pub v6: Option<Ipv6Addr>,
    /// The transport protocol of these packets; others stay with the kernel.
    pub carried: Carried,
    /// The port that they are for.
    pub port: u16,
    /// The CPU that hands them over; `None`: the one that received them. A thread of the kernel there takes them
    /// (Linux 5.9).
    pub cpu: Option<u16>,
}

/// The transport protocol of the packets that are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Carried {
    Tcp,
    Udp,
}

/// A program at a link that hands frames over. It is detached when it is dropped.
#[derive(Debug)]
pub struct Handing {
    _attached: Unpinned,
    counts: MapHandle,
}

/// What a program at a link saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handed {
    /// Frames that were the socket's.
    pub taken: u64,
    /// Frames that were left to the kernel.
    pub left: u64,
}

impl Handing {
    /// Attaches the program to a link of the calling thread's namespace, in the driver.
    ///
    /// # Errors
    /// There is no such link, its driver has no XDP, another program is there, its MTU is too large, or the kernel
    /// refuses the program (the text has the verifier's words).
    pub fn attach(wanted: &FrameFilter, ifindex: u32, socket: &XdpSocket) -> Result<Handing> {
        ffi::listen();
        let attempted = || format!("hand the frames of link {ifindex} to a socket (AF_XDP)");
        let failed = |error| ffi::failed(attempted(), &error);
        let mut object = MaybeUninit::uninit();
        let mut open = skeleton::AfxdpSkelBuilder::default().open(&mut object).map_err(failed)?;
        open.maps.rodata_data.as_mut().expect("the program has read-only data").afxdp_wanted =
            wanted.to_program();
        open.maps
            .afxdp_cpus
            .set_max_entries(wanted.cpu.map_or(1, |cpu| u32::from(cpu) + 1))
            .map_err(failed)?;
        let skeleton = open.load().map_err(failed)?;
        if let Some(cpu) = wanted.cpu {
            let on_cpu = skeleton.progs.afxdp_on_cpu.as_fd().as_raw_fd();
            // `struct bpf_cpumap_val`.
            let value = [WAITING_FRAMES.to_ne_bytes(), on_cpu.to_ne_bytes()].concat();
            let key = u32::from(cpu).to_ne_bytes();
            skeleton.maps.afxdp_cpus.update(&key, &value, MapFlags::ANY).map_err(failed)?;
        }
        let descriptor = socket.as_fd().as_raw_fd().to_ne_bytes();
        skeleton
            .maps
            .afxdp_sockets
            .update(&QUEUE.to_ne_bytes(), &descriptor, MapFlags::ANY)
            .map_err(failed)?;
        let attached = hold(&skeleton.progs.afxdp_choose, Hook::Xdp(XdpMode::Native), ifindex)
            .map_err(|error| Error::new(attempted(), error.source))?;
        Ok(Handing {
            _attached: attached,
            counts: MapHandle::try_from(&skeleton.maps.afxdp_counts).map_err(failed)?,
        })
    }

    /// What it saw, summed over the CPUs.
    ///
    /// # Errors
    /// The kernel does not let the counters be read.
    pub fn handed(&self) -> Result<Handed> {
        Ok(Handed {
            taken: self.count(afxdp_counter::AFXDP_TAKEN)?,
            left: self.count(afxdp_counter::AFXDP_LEFT)?,
        })
    }

    fn count(&self, counter: afxdp_counter) -> Result<u64> {
        let cpus = self
            .counts
            .lookup_percpu(&counter.0.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| ffi::failed("count the frames that were handed over".to_owned(), &error))?;
        let each = cpus.into_iter().flatten();
        Ok(each.map(|value| u64::from_ne_bytes(value.try_into().expect("eight bytes"))).sum())
    }
}

impl FrameFilter {
    fn to_program(self) -> afxdp_wanted {
        afxdp_wanted {
            v4: self.v4.map_or([0; 4], |v4| v4.octets()),
            v6: self.v6.map_or([0; 16], |v6| v6.octets()),
            port: self.port.to_be(),
            protocol: match self.carried {
                Carried::Tcp => ipproto::TCP,
                Carried::Udp => ipproto::UDP,
            }
            .as_raw()
            .get() as u8,
            has_cpu: u8::from(self.cpu.is_some()),
            cpu: self.cpu.unwrap_or(0).into(),
        }
    }
}
