//! What becomes of a frame of the workload `packets`, and where on its way: the `filter` of a candidate.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::spelling::{did_you_mean, nearest};

/// What is done with a frame that arrives, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacketFilter {
    /// Nothing takes it: it goes all the way to a UDP socket, which is read.
    #[default]
    Socket,
    /// XDP in the driver drops it.
    XdpDrop,
    /// XDP in the driver sends it back by the link that it came from.
    XdpTx,
    /// XDP in the driver sends it to another link.
    XdpRedirect,
    /// XDP drops it after the kernel has made an `sk_buff` of it.
    XdpGeneric,
    /// A program of traffic control drops it, at tcx.
    TcDrop,
    /// nftables drops it at the hook of its link.
    NftIngress,
    /// nftables drops it before connection tracking, as a rule in iptables' table `raw` does.
    NftRaw,
    /// nftables drops it after the routing decision; nothing tracks connections.
    NftInput,
    /// The same behind a rule about its connection, so that the kernel tracks it.
    NftInputCt,
    /// XDP in the driver leaves it to the kernel, and it goes to the socket.
    XdpPass,
}

impl PacketFilter {
    /// Every filter, in display order: where on its way a frame meets it.
    pub const ALL: [PacketFilter; 11] = [
        PacketFilter::XdpDrop,
        PacketFilter::XdpTx,
        PacketFilter::XdpRedirect,
        PacketFilter::XdpGeneric,
        PacketFilter::TcDrop,
        PacketFilter::NftIngress,
        PacketFilter::NftRaw,
        PacketFilter::NftInput,
        PacketFilter::NftInputCt,
        PacketFilter::Socket,
        PacketFilter::XdpPass,
    ];

    /// The name in an experiment.
    pub fn name(self) -> &'static str {
        match self {
            PacketFilter::XdpDrop => "xdp-drop",
            PacketFilter::XdpTx => "xdp-tx",
            PacketFilter::XdpRedirect => "xdp-redirect",
            PacketFilter::XdpGeneric => "xdp-generic",
            PacketFilter::TcDrop => "tc-drop",
            PacketFilter::NftIngress => "nft-ingress",
            PacketFilter::NftRaw => "nft-raw",
            PacketFilter::NftInput => "nft-input",
            PacketFilter::NftInputCt => "nft-input-ct",
            PacketFilter::Socket => "socket",
            PacketFilter::XdpPass => "xdp-pass",
        }
    }

    /// What it does, in a few words for tables.
    pub fn describe(self) -> &'static str {
        match self {
            PacketFilter::XdpDrop => "XDP in the driver drops frames",
            PacketFilter::XdpTx => "XDP in the driver sends frames back",
            PacketFilter::XdpRedirect => "XDP in the driver sends frames to another link",
            PacketFilter::XdpGeneric => "generic XDP drops frames",
            PacketFilter::TcDrop => "a program at tcx drops frames",
            PacketFilter::NftIngress => "nftables drops frames at the hook of their link",
            PacketFilter::NftRaw => {
                "nftables drops packets before connection tracking, as iptables' raw does"
            }
            PacketFilter::NftInput => "nftables drops packets at input, without connection tracking",
            PacketFilter::NftInputCt => "nftables drops packets at input, with connection tracking",
            PacketFilter::Socket => "a UDP socket is read",
            PacketFilter::XdpPass => "XDP in the driver passes frames, and a UDP socket is read",
        }
    }
}

impl fmt::Display for PacketFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PacketFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<PacketFilter, String> {
        let names = PacketFilter::ALL.map(PacketFilter::name);
        let found = PacketFilter::ALL.into_iter().find(|filter| filter.name() == text);
        found.ok_or_else(|| {
            let near = did_you_mean(nearest(text, &names));
            format!("`{text}` is no filter of packets: one of {} is expected{near}", names.join(", "))
        })
    }
}

/// Bytes of the Ethernet header.
pub(crate) const ETHERNET_BYTES: u32 = 14;
