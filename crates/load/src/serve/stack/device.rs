//! A port as smoltcp sees it: packets, without their Ethernet headers.
//!
//! The stack answers and never calls, so it needs no neighbours of its own: what it says to an address goes back to
//! where that address was last heard from. Who looks for its addresses (ARP requests, neighbour solicitations) is
//! answered by the kernel under it, and where there is none, here.

use std::collections::HashMap;
use std::net::IpAddr;

use smoltcp::phy::{self, Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use smoltcp::wire::IpAddress;

use super::ethernet::{ETHERNET, IPV4, IPV6, Mac};
use super::neighbours::Neighbours;
use super::port::Port;

/// Addresses that are remembered. Peers of more are forgotten all together, and known again with their next packet;
/// what is sent to them until then is lost, and TCP sends it again.
const REMEMBERED_MAX: usize = 4096;

/// Frames for others that are passed over before it is looked again whether the responder is to end.
const PASSED_MAX: usize = 512;

/// A port with what is known of those at its other end.
pub(super) struct Packets<P> {
    pub(super) port: P,
    /// Bytes of a packet.
    mtu: usize,
    ways: Ways,
    /// Where no kernel answers for the stack's addresses.
    neighbours: Option<Neighbours>,
    /// Answers for it wait to leave.
    has_answered: bool,
    frame: Vec<u8>,
}

/// Where packets go to.
#[derive(Debug, Default)]
struct Ways {
    /// By what address we were called.
    own: Mac,
    neighbours: HashMap<IpAddress, Mac>,
}

impl<P: Port> Packets<P> {
    /// Those of a stack with these addresses.
    pub(super) fn new(port: P, mtu: usize, addresses: &[IpAddr]) -> Packets<P> {
        let neighbours = port.mac().map(|mac| Neighbours::new(mac, addresses));
        let ways = Ways { own: port.mac().unwrap_or_default(), ..Ways::default() };
        Packets { port, mtu, ways, neighbours, has_answered: false, frame: Vec::new() }
    }

    /// Whether somebody was told of the stack's addresses since this was asked last. That leaves with the next flush.
    pub(super) fn has_answered(&mut self) -> bool {
        std::mem::take(&mut self.has_answered)
    }

    /// Whether the frame that was received is for the stack. One for another Ethernet address may come by a switch that
    /// does not know where that is.
    fn is_for_us(&mut self) -> bool {
        let Some(neighbours) = &self.neighbours else { return true };
        if let Some(answer) = neighbours.answer(&self.frame) {
            self.port.send(answer.len(), &mut |frame| frame.copy_from_slice(&answer));
            self.has_answered = true;
            return false;
        }
        self.frame.starts_with(&neighbours.mac())
    }
}

impl<P: Port> Device for Packets<P> {
    type RxToken<'a>
        = Received<'a>
    where
        P: 'a;
    type TxToken<'a>
        = Sending<'a, P>
    where
        P: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sending<'_, P>)> {
        for _ in 0..PASSED_MAX {
            // An answer may have to leave before the next packet is taken.
            if !self.port.can_send() || !self.port.receive(&mut self.frame) {
                break;
            }
            if self.is_for_us() && self.ways.learn(&self.frame) {
                let packet = Received(&self.frame[ETHERNET..]);
                return Some((packet, Sending { port: &mut self.port, ways: &self.ways }));
            }
        }
        None
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_, P>> {
        self.port.can_send().then_some(Sending { port: &mut self.port, ways: &self.ways })
    }

    /// A veth link hands over packets whose checksums are not computed yet, so they are computed and not checked.
    fn capabilities(&self) -> DeviceCapabilities {
        let mut checksum = ChecksumCapabilities::default();
        checksum.tcp = Checksum::Tx;
        checksum.udp = Checksum::Tx;
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities.checksum = checksum;
        capabilities
    }
}

impl Ways {
    /// Learns the way back from a frame. False: it has no packet of IP.
    fn learn(&mut self, frame: &[u8]) -> bool {
        let Some((header, packet)) = frame.split_at_checked(ETHERNET) else { return false };
        let source = match [header[12], header[13]] {
            IPV4 => packet.get(12..16).and_then(|at| at.try_into().ok()).map(|v4: [u8; 4]| v4.into()),
            IPV6 => packet.get(8..24).and_then(|at| at.try_into().ok()).map(|v6: [u8; 16]| v6.into()),
            _ => None,
        };
        let Some(source) = source.map(|source: IpAddr| IpAddress::from(source)) else {
            return false;
        };
        self.own.copy_from_slice(&header[..6]);
        let from: Mac = header[6..12].try_into().expect("six bytes");
        if self.neighbours.get(&source) != Some(&from) {
            if self.neighbours.len() >= REMEMBERED_MAX {
                self.neighbours.clear();
            }
            self.neighbours.insert(source, from);
        }
        true
    }

    /// Writes the header before a packet. One for an address that is not known is for no Ethernet address (zeros).
    fn write(&self, frame: &mut [u8]) {
        let (header, packet) = frame.split_at_mut(ETHERNET);
        let (kind, to): ([u8; 2], IpAddr) = if packet[0] >> 4 == 4 {
            (IPV4, <[u8; 4]>::try_from(&packet[16..20]).expect("four bytes").into())
        } else {
            (IPV6, <[u8; 16]>::try_from(&packet[24..40]).expect("sixteen bytes").into())
        };
        let to = self.neighbours.get(&to.into()).copied().unwrap_or_default();
        header[..6].copy_from_slice(&to);
        header[6..12].copy_from_slice(&self.own);
        header[12..].copy_from_slice(&kind);
    }
}

/// A packet that came.
pub(super) struct Received<'a>(&'a [u8]);

impl phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

/// Room for a packet.
pub(super) struct Sending<'a, P> {
    port: &'a mut P,
    ways: &'a Ways,
}

impl<P: Port> phy::TxToken for Sending<'_, P> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, write: F) -> R {
        let (mut write, mut result) = (Some(write), None);
        self.port.send(ETHERNET + bytes, &mut |frame| {
            result = write.take().map(|write| write(&mut frame[ETHERNET..]));
            self.ways.write(frame);
        });
        result.expect("a port lets the frame be written")
    }
}
