//! A card as a whole, for reports; readable without privilege.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::feature::{ACTIVE, CAPABLE, FIXED, names};
use super::parameter::{
    CHANNELS, CHANNELS_COMBINED, CHANNELS_COMBINED_MAX, CHANNELS_RX, CHANNELS_RX_MAX, COALESCE,
    COALESCE_ADAPTIVE_RX, COALESCE_RX_FRAMES, COALESCE_RX_USECS, COALESCE_TX_USECS, FEATURES, MessagePair,
    RING_RX, RING_RX_MAX, RING_TX, RING_TX_MAX, RINGS,
};
use super::{Ethtool, about};
use crate::IfName;
use crate::netlink::Attributes;

/// Descriptors of its rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the sizes now and at most, of the receive and the send rings")]
pub struct Rings {
    pub rx: u32,
    pub rx_max: u32,
    pub tx: u32,
    pub tx_max: u32,
}

/// How many queues a card has (`ethtool -l`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the numbers now and at most; combined queues receive and send")]
pub struct Channels {
    pub rx: u32,
    pub rx_max: u32,
    pub combined: u32,
    pub combined_max: u32,
}

/// How long the card delays interrupts: after a number of microseconds or of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Coalescing {
    /// Microseconds after a packet was received.
    pub rx_usecs: u32,
    /// Received packets after which it interrupts earlier.
    pub rx_frames: u32,
    /// Microseconds after a packet was sent.
    pub tx_usecs: u32,
    /// The driver chooses by load.
    pub adaptive_rx: bool,
}

/// An offload's common name, and the kernel's names of its parts: it is on if one of them is on.
///
/// Source: `netdev_features_strings` and `ethtool_get_feature_mask` in net/ethtool.
const OFFLOADS: [(&str, &[&str]); 7] = [
    ("rx-checksum", &["rx-checksum"]),
    (
        "tx-checksum",
        &[
            "tx-checksum-ipv4",
            "tx-checksum-ip-generic",
            "tx-checksum-ipv6",
            "tx-checksum-fcoe-crc",
            "tx-checksum-sctp",
        ],
    ),
    ("scatter-gather", &["tx-scatter-gather", "tx-scatter-gather-fraglist"]),
    (
        "tso",
        &[
            "tx-tcp-segmentation",
            "tx-tcp-ecn-segmentation",
            "tx-tcp-mangleid-segmentation",
            "tx-tcp6-segmentation",
        ],
    ),
    ("gso", &["tx-generic-segmentation"]),
    ("gro", &["rx-gro"]),
    ("lro", &["rx-lro"]),
];

impl Ethtool {
    /// Its rings; `None` if the driver has no answer.
    pub fn rings(&self, link: &IfName) -> Option<Rings> {
        self.look(link, &RINGS, |answer| Rings {
            rx: number(answer, RING_RX),
            rx_max: number(answer, RING_RX_MAX),
            tx: number(answer, RING_TX),
            tx_max: number(answer, RING_TX_MAX),
        })
    }

    /// Its queues; `None` if the driver has no answer.
    pub fn channels(&self, link: &IfName) -> Option<Channels> {
        self.look(link, &CHANNELS, |answer| Channels {
            rx: number(answer, CHANNELS_RX),
            rx_max: number(answer, CHANNELS_RX_MAX),
            combined: number(answer, CHANNELS_COMBINED),
            combined_max: number(answer, CHANNELS_COMBINED_MAX),
        })
    }

    /// How long it waits before it interrupts; `None` if the driver has no answer.
    pub fn coalescing(&self, link: &IfName) -> Option<Coalescing> {
        self.look(link, &COALESCE, |answer| Coalescing {
            rx_usecs: number(answer, COALESCE_RX_USECS),
            rx_frames: number(answer, COALESCE_RX_FRAMES),
            tx_usecs: number(answer, COALESCE_TX_USECS),
            adaptive_rx: number(answer, COALESCE_ADAPTIVE_RX) != 0,
        })
    }

    /// The offloads that the card supports, and whether each is on; empty if the driver does not answer.
    pub fn offloads(&self, link: &IfName) -> BTreeMap<String, bool> {
        self.look(link, &FEATURES, offloads).unwrap_or_default()
    }

    fn look<T>(
        &self,
        link: &IfName,
        messages: &MessagePair,
        read: impl Fn(Attributes<'_>) -> T,
    ) -> Option<T> {
        let answers = self.netlink.call(messages.get, &about(link)).ok()?;
        answers.first().map(|bytes| read(Attributes::of(bytes)))
    }
}

/// The kernel leaves out attributes that are zero.
fn number(answer: Attributes<'_>, attribute: u16) -> u32 {
    answer.number(attribute).unwrap_or_default()
}

/// An offload that is off and could not be switched on is left out.
fn offloads(answer: Attributes<'_>) -> BTreeMap<String, bool> {
    let [active, capable, fixed] =
        [ACTIVE, CAPABLE, FIXED].map(|set| names(answer.within(set)).collect::<Vec<_>>());
    let mut found = BTreeMap::new();
    for (name, kinds) in &OFFLOADS {
        let kinds = || kinds.iter().map(|kind| kind.as_bytes());
        let is_on = kinds().any(|kind| active.contains(&kind));
        if is_on || kinds().any(|kind| capable.contains(&kind) && !fixed.contains(&kind)) {
            found.insert((*name).to_owned(), is_on);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::feature::put_set;
    use super::*;
    use crate::netlink::MessageBody;

    /// The features that the kernel knows, in part.
    const ALL: [&str; 4] = ["tx-tcp-segmentation", "tx-tcp6-segmentation", "rx-gro", "rx-lro"];

    #[test]
    fn work_is_on_if_one_of_its_kinds_is_and_what_is_left_out_is_nothing() {
        let mut answer = MessageBody::default();
        put_set(&mut answer, ACTIVE, &["tx-tcp6-segmentation"], None);
        put_set(&mut answer, CAPABLE, &["rx-gro"], Some(&ALL));
        let found = offloads(Attributes::of(answer.bytes()));
        assert_eq!(found, BTreeMap::from([("gro".to_owned(), false), ("tso".to_owned(), true)]));
        assert_eq!(number(Attributes::of(answer.bytes()), RING_RX), 0);
    }

    #[test]
    fn work_that_a_card_cannot_do_is_not_off() {
        let tso = "tx-tcp-segmentation";
        for (capable, fixed, can) in
            [(vec![], vec![], false), (vec![tso], vec![tso], false), (vec![tso], vec![], true)]
        {
            let mut answer = MessageBody::default();
            put_set(&mut answer, CAPABLE, &capable, Some(&ALL));
            put_set(&mut answer, FIXED, &fixed, None);
            let found = offloads(Attributes::of(answer.bytes()));
            assert_eq!(found.get("tso"), can.then_some(&false), "{capable:?} {fixed:?}");
        }
    }
}
