//! When the kernel saw a packet: `SO_TIMESTAMPING`
//! ([Documentation/networking/timestamping](https://docs.kernel.org/networking/timestamping.html)).
//!
//! A sent packet gets its stamp when it is handed to the driver, a received one when the driver hands it over. Both
//! stamps are the kernel's own (software) stamps and use one clock, so their differences are exact.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::Result;
use crate::error::Attempt;

/// An instant of `CLOCK_REALTIME` in nanoseconds. Only for differences from another stamp: that clock may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

impl Stamp {
    /// Nanoseconds from an earlier stamp to this one; `None` if it is not earlier.
    pub fn since(self, earlier: Stamp) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }
}

/// Room for the control messages of one packet: three times of two words, an error, and their heads.
#[repr(align(8))]
struct Control([u8; 256]);

/// Asks the kernel to stamp what a connected socket sends and receives.
pub fn enable(socket: BorrowedFd<'_>) -> Result<()> {
    let wanted = libc::SOF_TIMESTAMPING_TX_SOFTWARE
        | libc::SOF_TIMESTAMPING_RX_SOFTWARE
        | libc::SOF_TIMESTAMPING_SOFTWARE
        // The stamp comes back without the packet.
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    // SAFETY: the descriptor is open; the value is an `unsigned int` that lives through the call, and the length
    // passed is its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const wanted).cast(),
            size_of_val(&wanted) as libc::socklen_t,
        )
    };
    let done = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    done.attempt(|| "ask for timestamps of a socket")
}

/// As `recv`, and the stamp of the last packet that the bytes came in.
///
/// # Errors
/// As `recv`, `EAGAIN` among them.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<Stamp>)> {
    message(socket, buffer, 0)
}

/// The stamp of the packet that was sent last, if it is there yet. Takes all stamps of packets sent before with it.
pub fn sent(socket: BorrowedFd<'_>) -> Option<Stamp> {
    let mut last = None;
    while let Ok((_, stamp)) = message(socket, &mut [], libc::MSG_ERRQUEUE) {
        last = stamp.or(last);
    }
    last
}

fn message(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(usize, Option<Stamp>)> {
    let mut control = Control([0; 256]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid `msghdr`: no name, no parts, no control.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the descriptor is open; the message points to a buffer and to control memory that live through the call
    // and have the lengths given in the message.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags | libc::MSG_DONTWAIT) };
    let bytes = usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
    Ok((bytes, stamp_of(&message)))
}

fn stamp_of(message: &libc::msghdr) -> Option<Stamp> {
    // SAFETY: the kernel filled the control memory in and set its length; the macros stay within it.
    let mut head = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !head.is_null() {
        // SAFETY: the macros gave a head within the control memory, which is aligned for it.
        let (level, kind, length) = unsafe { ((*head).cmsg_level, (*head).cmsg_type, (*head).cmsg_len) };
        let needed = size_of::<[libc::timespec; 3]>();
        // SAFETY: a pure computation.
        let fits = length >= unsafe { libc::CMSG_LEN(needed as u32) } as usize;
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPING && fits {
            // SAFETY: the message is long enough for three times; they are copied, whatever their alignment.
            let times: [libc::timespec; 3] =
                unsafe { libc::CMSG_DATA(head).cast::<[libc::timespec; 3]>().read_unaligned() };
            // The first is the kernel's, the second is no longer used, the third would be the card's.
            return nanoseconds(times[0]);
        }
        // SAFETY: as for the first head.
        head = unsafe { libc::CMSG_NXTHDR(message, head) };
    }
    None
}

/// Zero is no time.
fn nanoseconds(time: libc::timespec) -> Option<Stamp> {
    let ns = u64::try_from(time.tv_sec).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?;
    (ns > 0).then_some(Stamp(ns))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_packet_is_stamped_on_its_way_out_and_in() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        enable(socket.as_fd()).unwrap();
        let mut buffer = [0; 16];
        let mut last = None;
        let start = Instant::now();
        for byte in (0..=u8::MAX).cycle() {
            // Packets may pass before a worker of the kernel has switched stamping on.
            if last.is_some() || start.elapsed() > Duration::from_secs(10) {
                break;
            }
            socket.send(&[byte]).unwrap();
            let deadline = Instant::now() + Duration::from_secs(5);
            let came = loop {
                match receive(socket.as_fd(), &mut buffer) {
                    Ok((bytes, came)) => {
                        assert_eq!((bytes, buffer[0]), (1, byte));
                        break came;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        assert!(Instant::now() < deadline, "a packet over loopback was lost");
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            let went = sent(socket.as_fd());
            assert_eq!(sent(socket.as_fd()), None, "stamps are reported once");
            last = came.zip(went).or(last);
        }
        let (came, went) = last.expect("ten seconds are enough to switch stamping on");
        assert!(came.since(went).is_some_and(|passed_ns| passed_ns < 1_000_000_000));
        assert_eq!(went.since(came), None);
    }
}
