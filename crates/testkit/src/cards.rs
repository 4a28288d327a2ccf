//! Two network cards of a virtual machine of ours, on one switch: one stays in the machine's first namespace, the other
//! sends to it from a namespace of its own.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

use linux::sysfs::NetSysfs;
use linux::{IfName, Netlink, Netns};

use crate::{Flood, World, dear_rules, require_root, shell, skip};

/// The addresses of the two, and a port at which nobody need listen.
const HOME: &str = "198.51.100.1";
const AWAY: &str = "198.51.100.2";
const PORT: u16 = 9;
/// Enough flows that each of a few queues gets some.
const FLOWS: usize = 16;
/// How many rules make a packet so dear that one emulated CPU cannot take what another one sends.
const RULES: u16 = 2000;
/// Bytes of a segment of a burst.
const SEGMENT: libc::c_int = 1000;

/// Two cards that reach each other, until this is dropped.
#[derive(Debug)]
pub struct Cards {
    /// The card that stays.
    pub home: IfName,
    /// Where the other one is.
    pub away: Netns,
    sender: IfName,
    _world: World,
}

/// The card that a driver has; `None`, with the skip noted, if this is no virtual machine of ours, or has no such card.
pub fn card(driver: &str) -> Option<IfName> {
    if !require_root() {
        return None;
    }
    // The machine's own cards are nobody's to play with.
    if std::env::var_os("HOSTGAP_VM").is_none() {
        skip("it needs the network cards of a virtual machine of ours");
        return None;
    }
    let sysfs = NetSysfs::open(&Netns::current().unwrap()).unwrap();
    let links = Netlink::open().unwrap().links().unwrap();
    let found =
        links.into_iter().map(|link| link.name).find(|name| sysfs.driver(name).as_deref() == Some(driver));
    if found.is_none() {
        skip(&format!("the machine has no card of the driver {driver}"));
    }
    found
}

impl Cards {
    /// The cards of two drivers; `None`, with the skip noted, where they are not.
    pub fn new(home: &str, away: &str) -> Option<Cards> {
        let (home, sender) = (card(home)?, card(away)?);
        let world = World::new();
        let away = world.add("away");
        let netlink = Netlink::open().unwrap();
        netlink.link_move(netlink.index_of(&sender).unwrap(), &away, &sender).unwrap();
        let far = Netlink::open_in(&away).unwrap();
        for (netlink, name, address) in [(&netlink, &home, HOME), (&far, &sender, AWAY)] {
            let index = netlink.index_of(name).unwrap();
            netlink.link_set_up(index, true).unwrap();
            netlink.address_add(index, &format!("{address}/24").parse().unwrap()).unwrap();
        }
        let cards = Cards { home, away, sender, _world: world };
        cards.await_way();
        Some(cards)
    }

    /// Waits until a packet comes through: a card takes a second or two until it has a carrier, anew after each change of
    /// its rings.
    pub fn await_way(&self) {
        let receiver = UdpSocket::bind((HOME, PORT)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let sender = self.socket();
        let came = |_: i32| {
            // There may be no way to send it yet.
            let _ = sender.send_to(b"x", (HOME, PORT));
            receiver.recv(&mut [0; 8]).is_ok()
        };
        assert!((0..300).any(came), "nothing comes from one card to the other");
    }

    fn socket(&self) -> UdpSocket {
        self.away.run(|| UdpSocket::bind((AWAY, 0))).unwrap().unwrap()
    }

    /// Datagrams of many flows from CPU 1, more than another CPU can take.
    pub fn flood(&self) -> Flood {
        dear_rules(&Netns::current().unwrap(), RULES);
        let sockets: Vec<UdpSocket> = (0..FLOWS).map(|_| self.socket()).collect();
        // Nobody listens; receiving is what costs.
        Flood::from(1, move || {
            sockets.iter().for_each(|socket| drop(socket.send_to(&[0; 100], (HOME, PORT))))
        })
    }

    /// Sends `count` datagrams of 1000 bytes at once, up to 60.
    pub fn burst(&self, count: usize) {
        let sender = self.socket();
        segment(&sender);
        sender.send_to(&vec![0; count * SEGMENT as usize], (HOME, PORT)).unwrap();
    }
}

/// Each send becomes datagrams of so many bytes, which leave together (`UDP_SEGMENT`, udp(7)).
fn segment(socket: &UdpSocket) {
    let bytes = SEGMENT;
    let length = libc::socklen_t::try_from(size_of_val(&bytes)).unwrap();
    // SAFETY: the socket is open, and the option is a number that lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const bytes).cast(),
            length,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

impl Drop for Cards {
    fn drop(&mut self) {
        // The kernel brings it back with the end of its namespace, at a time of its own.
        let far = Netlink::open_in(&self.away).unwrap();
        far.link_move(far.index_of(&self.sender).unwrap(), &Netns::current().unwrap(), &self.sender).unwrap();
        let home = &self.home;
        shell(&format!(
            "nft delete table ip hgt 2>/dev/null || true
ip address flush dev {home}
ip link set {home} down"
        ));
    }
}
