//! Offloads: what a card, or the kernel in its stead, does with several packets at once.

use serde::{Deserialize, Serialize};

use super::NicValue;
use crate::netlink::{Attributes, MessageBody};

/// An offload that can be switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NicFeature {
    /// Received segments are put together by the kernel.
    Gro,
    /// Large packets are cut by the kernel, last of all.
    Gso,
    /// Large TCP packets over IPv4 are cut by the card.
    TsoIpv4,
    /// The same over IPv6.
    TsoIpv6,
    /// Received segments are put together by the card, so that they can be cut again.
    GroHw,
    /// Checksums of received packets are checked by the card.
    RxChecksum,
    /// Checksums of packets that are sent are filled in by the link, or by the card behind it. Large packets need it.
    TxChecksum,
}

const WANTED: u16 = 3;
pub(super) const ACTIVE: u16 = 4;
/// Features that cannot be switched.
pub(super) const FIXED: u16 = 5;
/// Features that the card supports.
pub(super) const CAPABLE: u16 = 2;
/// Attributes of a bit set: that it has no mask, and its bits; within these one bit; within this its name, and
/// that it is set.
const NO_MASK: u16 = 1;
const BITS: u16 = 3;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

impl NicFeature {
    /// The kernel's name for it, which `ethtool -k` prints under its own.
    ///
    /// Source: `netdev_features_strings` in net/ethtool/common.c.
    pub fn name(self) -> &'static str {
        match self {
            NicFeature::Gro => "rx-gro",
            NicFeature::Gso => "tx-generic-segmentation",
            NicFeature::TsoIpv4 => "tx-tcp-segmentation",
            NicFeature::TsoIpv6 => "tx-tcp6-segmentation",
            NicFeature::GroHw => "rx-gro-hw",
            NicFeature::RxChecksum => "rx-checksum",
            NicFeature::TxChecksum => "tx-checksum-ip-generic",
        }
    }

    pub(super) fn find(self, answer: Attributes<'_>) -> NicValue {
        let has = |set: u16| u32::from(names(answer.within(set)).any(|name| name == self.name().as_bytes()));
        let now = has(ACTIVE);
        let free = has(CAPABLE) == 1 && has(FIXED) == 0;
        NicValue { now, wanted: has(WANTED), max: Some(if free { 1 } else { now }) }
    }

    pub(super) fn fill(self, request: &mut MessageBody, on: bool) {
        let mut bit = MessageBody::default();
        bit.put(BIT_NAME, &[self.name().as_bytes(), &[0]].concat());
        if on {
            bit.put(BIT_VALUE, &[]);
        }
        let (mut bits, mut set) = (MessageBody::default(), MessageBody::default());
        bits.nest(BIT, &bit);
        set.nest(BITS, &bits);
        request.nest(WANTED, &set);
    }
}

/// The names of the bits that are set. Without a mask those are all that are listed. With one, as the features that a
/// card supports come, all bits of the mask are listed, and those that are set say so.
///
/// Source: `ethnl_put_bitset32` in net/ethtool/bitset.c, `features_fill_reply` in net/ethtool/features.c.
pub(super) fn names(set: Attributes<'_>) -> impl Iterator<Item = &[u8]> {
    let are_all_set = set.get(NO_MASK).is_some();
    let bits = set.within(BITS).iter().filter(|(number, _)| *number == BIT);
    let bits = bits.map(|(_, bit)| Attributes::of(bit));
    let set = bits.filter(move |bit| are_all_set || bit.get(BIT_VALUE).is_some());
    set.filter_map(|bit| bit.get(BIT_NAME)?.strip_suffix(&[0]))
}

/// A bit set as the kernel writes it: without a mask the names of what is set, or with one that has `all`.
#[cfg(test)]
pub(super) fn put_set(answer: &mut MessageBody, set: u16, names: &[&str], all: Option<&[&str]>) {
    let (mut bits, mut inside) = <(MessageBody, MessageBody)>::default();
    for name in all.unwrap_or(names) {
        let mut bit = MessageBody::default();
        bit.put(BIT_NAME, &[name.as_bytes(), &[0]].concat());
        if all.is_some() && names.contains(name) {
            bit.put(BIT_VALUE, &[]);
        }
        bits.nest(BIT, &bit);
    }
    if all.is_none() {
        inside.put(NO_MASK, &[]);
    }
    inside.nest(BITS, &bits);
    answer.nest(set, &inside);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offload_that_rests_is_wanted_and_not_on() {
        let mut answer = MessageBody::default();
        let [gso, gro, hw] = [NicFeature::Gso, NicFeature::Gro, NicFeature::GroHw].map(NicFeature::name);
        put_set(&mut answer, CAPABLE, &[gso], Some(&[gso, gro, hw]));
        put_set(&mut answer, WANTED, &[gso], None);
        put_set(&mut answer, ACTIVE, &[gro], None);
        put_set(&mut answer, FIXED, &[], None);
        let read = |feature: NicFeature| feature.find(Attributes::of(answer.bytes()));
        assert_eq!(read(NicFeature::Gso), NicValue { now: 0, wanted: 1, max: Some(1) });
        assert_eq!(read(NicFeature::Gro), NicValue { now: 1, wanted: 0, max: Some(1) });
        assert_eq!(read(NicFeature::GroHw), NicValue { now: 0, wanted: 0, max: Some(0) });
    }
}
