//! Network cards of a guest, and the switch that connects them.
//!
//! A card's other end is a tap, made by QEMU in a network namespace of ours, where a bridge joins all taps. So a frame
//! that one card sends reaches the other cards, at the host's speed, and no other device. The namespace ends with the
//! guest.

use std::process::Command;
use std::time::{Duration, Instant};

use linux::sysctl::{self, Key};
use linux::{IfName, Link, LinkKind, Netlink, Netns};

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

impl Nic {
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
    fn device(self) -> String {
        match self {
            Nic::Virtio { queues } => {
                format!("virtio-net-pci,mq=on,vectors={},rss=on,romfile=", 2 * queues + 2)
            }
            Nic::Igb => "igb,romfile=".to_owned(),
            Nic::Vmxnet3 => "vmxnet3,romfile=".to_owned(),
        }
    }
}

/// QEMU's arguments for the cards.
pub(crate) fn arguments(command: &mut Command, nics: &[Nic]) {
    for (number, nic) in nics.iter().enumerate() {
        let tap = tap(number);
        let queues = nic.queues();
        let end = format!("tap,id={tap},ifname={tap},queues={queues},vhost=off,script=no,downscript=no");
        // The driver distinguishes cards by their address, and they are found in the order in which they are plugged
        // in.
        let device = format!("{},netdev={tap},mac=52:54:00:12:34:{:02x}", nic.device(), 0x56 + number);
        command.args(["-netdev", &end, "-device", &device]);
    }
}

fn tap(number: usize) -> IfName {
    IfName::new(format!("card{number}")).expect("a short word and a number are a link's name")
}

/// A bridge in a private namespace.
pub(crate) struct Switch {
    netns: Netns,
    netlink: Netlink,
    bridge: u32,
}

impl Switch {
    pub(crate) fn new() -> Result<Switch> {
        Switch::build().map_err(Error::Nic)
    }

    fn build() -> linux::Result<Switch> {
        let netns = Netns::anonymous()?;
        // A link with IPv6 sends packets as soon as it is up; a switch must stay silent.
        let silent = Key::new("net/ipv6/conf/default/disable_ipv6").expect("a constant key is a path");
        netns.run(|| sysctl::read(&silent)?.map_or(Ok(()), |_| sysctl::write(&silent, "1")))??;
        let netlink = Netlink::open_in(&netns)?;
        let name = IfName::new("switch").expect("a constant name is valid");
        netlink.link_add(&Link { name: name.clone(), kind: LinkKind::Bridge, mtu: None, mac: None })?;
        let bridge = netlink.index_of(&name)?;
        netlink.link_set_up(bridge, true)?;
        Ok(Switch { netns, netlink, bridge })
    }

    /// Starts QEMU where the switch is, and plugs in its taps.
    pub(crate) fn start(&self, taps: usize, start: impl FnOnce() -> Result<Process>) -> Result<Process> {
        let mut guest = self.netns.run(start).map_err(Error::Nic)??;
        let deadline = Instant::now() + TAPS_MAX;
        for number in 0..taps {
            while !self.plug(number).map_err(Error::Nic)? {
                // If QEMU has ended, the run reports the reason.
                if guest.wait(Duration::from_millis(10)).is_some() || Instant::now() > deadline {
                    return Ok(guest);
                }
            }
        }
        Ok(guest)
    }

    /// Returns false while the tap does not exist.
    fn plug(&self, number: usize) -> linux::Result<bool> {
        let Some(tap) = self.netlink.link(&tap(number))? else { return Ok(false) };
        self.netlink.link_set_master(tap.index, Some(self.bridge))?;
        self.netlink.link_set_up(tap.index, true)?;
        Ok(true)
    }
}
