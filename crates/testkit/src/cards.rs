//! Two network cards of our virtual machine on one switch. One stays in the machine's first namespace. The
//! other is in a separate namespace and sends to it.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use linux::sysfs::NetSysfs;
use linux::{IfName, Netlink, Netns};

use crate::{Flood, World, bound, dear_rules, require_root, shell, skip};

/// The addresses of the two cards, and a port without a listener.
const HOME: &str = "198.51.100.1";
const AWAY: &str = "198.51.100.2";
const PORT: u16 = 9;
/// Enough flows that each of a few queues gets some.
const FLOWS: usize = 16;
/// With this many rules, one emulated CPU cannot take what another one sends.
const RULES: u16 = 2000;
/// Bytes of each segment in a burst.
const SEGMENT: usize = 1000;

/// Two cards that reach each other. Dropping this takes them apart again.
#[derive(Debug)]
pub struct Cards {
    /// The card in the first namespace.
    pub home: IfName,
    /// The namespace of the other card.
    pub away: Netns,
    sender: IfName,
    _world: World,
}

/// The card of a driver. `None`, with the skip recorded, outside our virtual machines or without such a card.
pub fn card(driver: &str) -> Option<IfName> {
    if !require_root() {
        return None;
    }
    // Never touch the cards of a real machine.
    if std::env::var_os("HOSTGAP_VM").is_none() {
        skip("it needs the network cards of a virtual machine of ours");
        return None;
    }
    let found = driven_by(driver).expect("links can be listed");
    if found.is_none() {
        skip(&format!("the machine has no card of the driver {driver}"));
    }
    found
}

/// Sets one of our cards up and waits for its carrier. It gets no address, because an automatic IPv6 address
/// would appear at an unpredictable time.
pub fn set_card_up(card: &IfName) {
    shell(&format!(
        "echo 1 >/proc/sys/net/ipv6/conf/{card}/disable_ipv6
ip link set {card} up
for try in $(seq 100); do [ \"$(cat /sys/class/net/{card}/carrier)\" = 1 ] && exit; sleep 0.1; done
exit 1"
    ));
}

/// Makes a card one that has been up and moved before. Only then has its driver as many queues as there are CPUs and
/// its interrupts their CPUs, and the kernel no queueing discipline for it.
pub fn settle_card(card: &IfName) {
    set_card_up(card);
    let home = std::process::id();
    shell(&format!(
        "ip link set {card} down; ip netns add hgt-settle; ip link set {card} netns hgt-settle
ip -n hgt-settle link set {card} netns {home}; ip netns delete hgt-settle"
    ));
}

fn driven_by(driver: &str) -> linux::Result<Option<IfName>> {
    let sysfs = NetSysfs::open(&Netns::current()?)?;
    let mut names = Netlink::open()?.links()?.into_iter().map(|link| link.name);
    Ok(names.find(|name| sysfs.driver(name).as_deref() == Some(driver)))
}

impl Cards {
    /// The cards of two drivers. `None`, with the skip recorded, if either is missing.
    pub fn new(home: &str, away: &str) -> Option<Cards> {
        let (home, sender) = (card(home)?, card(away)?);
        let world = World::new();
        let away = world.add("away");
        part(&home, &sender, &away).expect("cards of ours can be moved");
        let cards = Cards { home, away, sender, _world: world };
        cards.await_way();
        Some(cards)
    }

    /// Waits until a packet arrives. A card takes a second or two to get a carrier, and again after each
    /// change of its rings.
    pub fn await_way(&self) {
        let (receiver, sender) = (receiver(), self.socket());
        let came = |_: i32| {
            // There may be no route yet.
            let _ = sender.send_to(b"x", (HOME, PORT));
            receiver.recv(&mut [0; 8]).is_ok()
        };
        assert!((0..300).any(came), "nothing comes from one card to the other");
    }

    fn socket(&self) -> UdpSocket {
        let socket = self.away.run(|| UdpSocket::bind((AWAY, 0)));
        socket.expect("tests may enter their own namespaces").expect("it is an address of ours")
    }

    /// Sends datagrams of many flows from CPU 1, more than another CPU can take.
    pub fn flood(&self) -> Flood {
        dear_rules(&Netns::current().expect("there is always one"), RULES);
        let sockets: Vec<UdpSocket> = (0..FLOWS).map(|_| self.socket()).collect();
        // No listener is needed: receiving is the expensive part.
        Flood::from(1, move || {
            sockets.iter().for_each(|socket| drop(socket.send_to(&[0; 100], (HOME, PORT))));
        })
    }

    /// Sends `count` datagrams of 1000 bytes at once, at most 60, and waits until they have arrived or no
    /// more arrive.
    pub fn burst(&self, count: usize) {
        let (receiver, sender) = (receiver(), self.socket());
        segment(&sender);
        sender.send_to(&vec![0; count * SEGMENT], (HOME, PORT)).expect("the way is known");
        let _lost = (0..count).any(|_| receiver.recv(&mut [0; 8]).is_err());
    }
}

/// A socket for arriving packets, with a timeout of a tenth of a second.
fn receiver() -> UdpSocket {
    let receiver = bound(|| UdpSocket::bind((HOME, PORT))).expect("it is an address of ours");
    receiver.set_read_timeout(Some(Duration::from_millis(100))).expect("it is not zero");
    receiver
}

/// Moves the sender's card to the other namespace, and gives both cards their addresses.
fn part(home: &IfName, sender: &IfName, away: &Netns) -> linux::Result<()> {
    let netlink = Netlink::open()?;
    netlink.link_move(netlink.index_of(sender)?, away, sender)?;
    let far = Netlink::open_in(away)?;
    for (netlink, name, address) in [(&netlink, home, HOME), (&far, sender, AWAY)] {
        let index = netlink.index_of(name)?;
        netlink.link_set_up(index, true)?;
        netlink.address_add(index, &format!("{address}/24").parse().expect("it is an address"))?;
    }
    Ok(())
}

fn bring_back(sender: &IfName, away: &Netns) -> linux::Result<()> {
    let far = Netlink::open_in(away)?;
    far.link_move(far.index_of(sender)?, &Netns::current()?, sender)
}

/// Makes the kernel split each send into datagrams of a fixed size, which leave together (`UDP_SEGMENT`,
/// udp(7)).
fn segment(socket: &UdpSocket) {
    let bytes = libc::c_int::try_from(SEGMENT).expect("it is small");
    let length = libc::socklen_t::try_from(size_of_val(&bytes)).expect("it is small");
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

impl Cards {
    fn part_with(&self) {
        // When its namespace ends, the kernel would move the card back too, but at an unpredictable time.
        bring_back(&self.sender, &self.away).expect("a card of ours can be moved");
        let home = &self.home;
        shell(&format!(
            "nft delete table ip hgt 2>/dev/null || true
ip address flush dev {home}
ip link set {home} down"
        ));
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| self.part_with()));
        // A second panic would end the process, and with it the verdicts of its other tests.
        if let Err(second) = outcome
            && !std::thread::panicking()
        {
            panic::resume_unwind(second);
        }
    }
}
