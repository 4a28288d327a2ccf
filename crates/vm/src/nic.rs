//! Network cards of a guest, and what joins them.
//!
//! On a switch, a card's other end is a tap, made by QEMU in a network namespace of ours, where a bridge joins all
//! taps. So a frame that one card sends reaches the other cards, at the host's speed, and no other device. The
//! namespace ends with the guest.
//!
//! On bridges of the caller's, cards of several guests reach each other, and so does whatever else the caller joins to
//! a bridge.
//!
//! In pairs, two cards are the two ports of a hub inside QEMU. A frame arrives in the same instant of the guest's
//! clock, which a tap cannot do: where that clock counts instructions, the host's would show as waiting.

use std::process::Command;
use std::time::{Duration, Instant};

use linux::sysctl::{self, Key};
use linux::{IfName, Link, LinkKind, Mac, Netlink, Netns, NetnsName};

use crate::process::Process;
use crate::{Error, Result};

/// How long QEMU may take to make the taps.
const TAPS_MAX: Duration = Duration::from_secs(20);

/// A network card, by what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nic {
    /// A virtual one, of the driver `virtio_net`, which spreads flows over its queues. Its rings cannot be made
    /// larger, and packets without room in them wait on the host.
    Virtio {
        /// Pairs of a receive and a send queue, from 1 to 256. By default the driver uses as many as the guest has
        /// CPUs; it can be configured to use more.
        queues: u16,
    },
    /// Intel's 82576, of the driver `igb`: rings, queues, a table over which flows are spread and waits before
    /// interrupts, all of which can be set. Debian's kernels for clouds do not have the driver.
    Igb,
    /// VMware's, of the driver `vmxnet3`: the size of its rings can be set, and it counts what they had no room for.
    Vmxnet3,
}

/// What joins the cards of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Join {
    /// All of them are on one switch of the host's. It needs root's rights on the host.
    Switch,
    /// They are ports of bridges that are there, so that guests which run at the same time reach each other. It needs
    /// root's rights on the host.
    Bridges(Bridges),
    /// The first and the second are the ends of a wire, the third and the fourth of another. A port of such a wire has
    /// one queue and no offloads, so that a [`Nic::Virtio`] has not either; the others emulate theirs by themselves.
    Pairs,
}

/// The bridges of which a guest's cards are ports. They are the caller's, and stay when the guest ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridges {
    /// The namespace in which they are.
    pub netns: NetnsName,
    /// The bridge of each card.
    pub of_cards: Vec<IfName>,
    /// The number of the guest's first card among those of all guests there.
    pub first: usize,
}

impl Nic {
    /// The most cards of a guest: the slots that QEMU's root bus has beside what a guest has anyway.
    pub const MAX: usize = 24;

    /// The Ethernet address of a guest's card, by its number from 0 on. The driver distinguishes cards by it.
    #[must_use]
    pub fn mac(number: usize) -> Mac {
        let last = u8::try_from(0x56 + number).expect("a guest has a few cards");
        Mac([0x52, 0x54, 0x00, 0x12, 0x34, last])
    }

    /// How many queues its tap has.
    fn queues(self) -> u16 {
        match self {
            Nic::Virtio { queues } => queues,
            Nic::Igb | Nic::Vmxnet3 => 1,
        }
    }

    /// The device, in QEMU's syntax. With virtio each queue has its own interrupt in each direction, and there are two
    /// more, for the card itself and for its control queue. `rss` adds a table that spreads flows over queues, which
    /// QEMU applies itself.
    fn device(self, join: &Join) -> String {
        match (self, join) {
            (Nic::Virtio { .. }, Join::Pairs) => "virtio-net-pci,romfile=".to_owned(),
            (Nic::Virtio { queues }, Join::Switch | Join::Bridges(_)) => {
                format!("virtio-net-pci,mq=on,vectors={},rss=on,romfile=", 2 * queues + 2)
            }
            (Nic::Igb, _) => "igb,romfile=".to_owned(),
            (Nic::Vmxnet3, _) => "vmxnet3,romfile=".to_owned(),
        }
    }
}

/// QEMU's arguments for the cards.
pub(crate) fn arguments(command: &mut Command, nics: &[Nic], join: &Join) {
    for (place, nic) in nics.iter().enumerate() {
        let number = join.first() + place;
        let tap = tap(number);
        let queues = nic.queues();
        let end = match join {
            Join::Switch | Join::Bridges(_) => {
                format!("tap,id={tap},ifname={tap},queues={queues},vhost=off,script=no,downscript=no")
            }
            Join::Pairs => format!("hubport,id={tap},hubid={}", number / 2),
        };
        // They are found in the order in which they are plugged in.
        let mut device = format!("{},netdev={tap},mac={}", nic.device(join), Nic::mac(number));
        if *join == Join::Pairs {
            // Virtual functions have numbers on their card's bus, so that two cards that have some need a bus each.
            let port = format!("port{number}");
            command.args(["-device", &format!("pcie-root-port,id={port},chassis={}", number + 1)]);
            device = format!("{device},bus={port}");
        }
        command.args(["-netdev", &end, "-device", &device]);
    }
}

impl Join {
    /// The number of a guest's first card.
    fn first(&self) -> usize {
        match self {
            Join::Bridges(bridges) => bridges.first,
            Join::Switch | Join::Pairs => 0,
        }
    }
}

fn tap(number: usize) -> IfName {
    IfName::new(format!("card{number}")).expect("a short word and a number are a link's name")
}

/// The bridges for the cards of one guest.
pub(crate) struct Switch {
    netns: Netns,
    netlink: Netlink,
    /// The tap of each card, and the index of the bridge whose port it is.
    ports: Vec<(IfName, u32)>,
}

impl Switch {
    /// What these cards need on the host; `None`: nothing.
    pub(crate) fn of(nics: &[Nic], join: &Join) -> Result<Option<Switch>> {
        match join {
            _ if nics.is_empty() => Ok(None),
            Join::Pairs => Ok(None),
            Join::Switch => Switch::private(nics.len()).map(Some).map_err(Error::Nic),
            Join::Bridges(bridges) => Switch::open(bridges).map(Some).map_err(Error::Nic),
        }
    }

    /// One bridge in a private namespace.
    fn private(cards: usize) -> linux::Result<Switch> {
        let netns = Netns::anonymous()?;
        // A link with IPv6 sends packets as soon as it is up; a switch must stay silent.
        let silent = Key::new("net/ipv6/conf/default/disable_ipv6").expect("a constant key is a path");
        netns.run(|| sysctl::read(&silent)?.map_or(Ok(()), |_| sysctl::write(&silent, "1")))??;
        let netlink = Netlink::open_in(&netns)?;
        let name = IfName::new("switch").expect("a constant name is valid");
        netlink.link_add(&Link { name: name.clone(), kind: LinkKind::Bridge, mtu: None, mac: None })?;
        let bridge = netlink.index_of(&name)?;
        netlink.link_set_up(bridge, true)?;
        Ok(Switch { netns, netlink, ports: (0..cards).map(|number| (tap(number), bridge)).collect() })
    }

    fn open(bridges: &Bridges) -> linux::Result<Switch> {
        let netns = Netns::open(&bridges.netns)?;
        let netlink = Netlink::open_in(&netns)?;
        let of_cards = bridges.of_cards.iter().enumerate();
        let ports =
            of_cards.map(|(place, bridge)| Ok((tap(bridges.first + place), netlink.index_of(bridge)?)));
        Ok(Switch { ports: ports.collect::<linux::Result<_>>()?, netns, netlink })
    }

    /// Starts QEMU where the bridges are, and plugs in its taps.
    pub(crate) fn start(&self, start: impl FnOnce() -> Result<Process>) -> Result<Process> {
        let mut guest = self.netns.run(start).map_err(Error::Nic)??;
        let deadline = Instant::now() + TAPS_MAX;
        for (tap, bridge) in &self.ports {
            while !self.plug(tap, *bridge).map_err(Error::Nic)? {
                // If QEMU has ended, the run reports the reason.
                if guest.wait(Duration::from_millis(10)).is_some() || Instant::now() > deadline {
                    return Ok(guest);
                }
            }
        }
        Ok(guest)
    }

    /// Returns false while the tap does not exist.
    fn plug(&self, tap: &IfName, bridge: u32) -> linux::Result<bool> {
        let Some(tap) = self.netlink.link(tap)? else { return Ok(false) };
        self.netlink.link_set_master(tap.index, Some(bridge))?;
        self.netlink.link_set_up(tap.index, true)?;
        Ok(true)
    }
}
