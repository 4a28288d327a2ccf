//! The numbers of a card, and where they stand in netlink's messages.
//!
//! Source: include/uapi/linux/ethtool_netlink.h and its generated parts (`ETHTOOL_MSG_…`, `ETHTOOL_A_…`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{NicFeature, NicValue};
use crate::netlink::{Attributes, MessageBody};

/// A number that a card has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NicParameter {
    /// Places for packets in each receive queue.
    RingRx,
    /// Places for packets in each send queue.
    RingTx,
    /// Queues: pairs of both directions, or as many of each.
    Channels,
    /// Microseconds that an interrupt for received packets may be delayed to wait for more packets.
    CoalesceRxUsecs,
    /// The same for packets that were sent.
    CoalesceTxUsecs,
    /// 1: the driver chooses the former by the traffic.
    CoalesceAdaptiveRx,
    /// 1: an offload is on.
    Feature(NicFeature),
}

/// The numbers of the messages that read and set a number of a card.
pub(super) struct MessagePair {
    pub(super) get: u8,
    pub(super) set: u8,
}

pub(super) const FEATURES: MessagePair = MessagePair { get: 11, set: 12 };

pub(super) const RINGS: MessagePair = MessagePair { get: 15, set: 16 };
pub(super) const RING_RX_MAX: u16 = 2;
pub(super) const RING_TX_MAX: u16 = 5;
pub(super) const RING_RX: u16 = 6;
pub(super) const RING_TX: u16 = 9;

pub(super) const CHANNELS: MessagePair = MessagePair { get: 17, set: 18 };
pub(super) const CHANNELS_RX_MAX: u16 = 2;
const CHANNELS_TX_MAX: u16 = 3;
pub(super) const CHANNELS_COMBINED_MAX: u16 = 5;
pub(super) const CHANNELS_RX: u16 = 6;
const CHANNELS_TX: u16 = 7;
pub(super) const CHANNELS_COMBINED: u16 = 9;

pub(super) const COALESCE: MessagePair = MessagePair { get: 19, set: 20 };
pub(super) const COALESCE_RX_USECS: u16 = 2;
pub(super) const COALESCE_RX_FRAMES: u16 = 3;
pub(super) const COALESCE_TX_USECS: u16 = 6;
pub(super) const COALESCE_TX_FRAMES: u16 = 7;
pub(super) const COALESCE_ADAPTIVE_RX: u16 = 11;
pub(super) const COALESCE_ADAPTIVE_TX: u16 = 12;

impl NicParameter {
    pub(super) fn messages(self) -> MessagePair {
        match self {
            NicParameter::RingRx | NicParameter::RingTx => RINGS,
            NicParameter::Channels => CHANNELS,
            NicParameter::CoalesceRxUsecs
            | NicParameter::CoalesceTxUsecs
            | NicParameter::CoalesceAdaptiveRx => COALESCE,
            NicParameter::Feature(_) => FEATURES,
        }
    }

    /// The number in an answer.
    pub(super) fn find(self, answer: Attributes<'_>) -> Option<NicValue> {
        let plain = |now: u16, max: Option<u16>| {
            let now = answer.number(now)?;
            Some(NicValue { now, wanted: now, max: max.and_then(|max| answer.number(max)) })
        };
        match self {
            NicParameter::RingRx => plain(RING_RX, Some(RING_RX_MAX)),
            NicParameter::RingTx => plain(RING_TX, Some(RING_TX_MAX)),
            NicParameter::Channels if has_pairs(answer) => {
                plain(CHANNELS_COMBINED, Some(CHANNELS_COMBINED_MAX))
            }
            NicParameter::Channels => {
                let rx = plain(CHANNELS_RX, Some(CHANNELS_RX_MAX))?;
                let tx = plain(CHANNELS_TX, Some(CHANNELS_TX_MAX))?;
                // One number cannot represent two different values.
                (rx.now == tx.now).then_some(NicValue { max: rx.max.min(tx.max), ..rx })
            }
            NicParameter::CoalesceRxUsecs => plain(COALESCE_RX_USECS, None),
            NicParameter::CoalesceTxUsecs => plain(COALESCE_TX_USECS, None),
            NicParameter::CoalesceAdaptiveRx => plain(COALESCE_ADAPTIVE_RX, None),
            NicParameter::Feature(feature) => Some(feature.find(answer)),
        }
    }

    /// Puts a value into a request. `combined`: the card has its queues in pairs.
    pub(super) fn fill(self, request: &mut MessageBody, value: u32, combined: bool) {
        match self {
            NicParameter::RingRx => request.put_u32(RING_RX, value),
            NicParameter::RingTx => request.put_u32(RING_TX, value),
            NicParameter::Channels if combined => request.put_u32(CHANNELS_COMBINED, value),
            NicParameter::Channels => {
                request.put_u32(CHANNELS_RX, value);
                request.put_u32(CHANNELS_TX, value);
            }
            NicParameter::CoalesceRxUsecs => request.put_u32(COALESCE_RX_USECS, value),
            NicParameter::CoalesceTxUsecs => request.put_u32(COALESCE_TX_USECS, value),
            NicParameter::CoalesceAdaptiveRx => request.put(COALESCE_ADAPTIVE_RX, &[u8::from(value != 0)]),
            NicParameter::Feature(feature) => feature.fill(request, value != 0),
        }
    }

    /// The command that sets it, behind `ethtool`, with the link in the middle: `-G LINK rx 512`.
    pub fn command(self, link: &str, value: u32) -> String {
        let on = |value| if value == 0 { "off" } else { "on" };
        match self {
            NicParameter::RingRx => format!("-G {link} rx {value}"),
            NicParameter::RingTx => format!("-G {link} tx {value}"),
            NicParameter::Channels => format!("-L {link} combined {value}"),
            NicParameter::CoalesceRxUsecs => format!("-C {link} rx-usecs {value}"),
            NicParameter::CoalesceTxUsecs => format!("-C {link} tx-usecs {value}"),
            NicParameter::CoalesceAdaptiveRx => format!("-C {link} adaptive-rx {}", on(value)),
            NicParameter::Feature(feature) => format!("-K {link} {} {}", feature.name(), on(value)),
        }
    }
}

impl NicParameter {
    /// What does the same at a card that refuses [that command](NicParameter::command), since it has no queues in
    /// pairs: `-L LINK rx 2 tx 2` (`veth_get_channels` in drivers/net/veth.c reports no combined ones, and
    /// `ethnl_set_channels` in net/ethtool/channels.c takes no more of them than are reported).
    pub fn command_without_pairs(self, link: &str, value: u32) -> Option<String> {
        (self == NicParameter::Channels).then(|| format!("-L {link} rx {value} tx {value}"))
    }
}

/// Whether the card has its queues in pairs.
pub(super) fn has_pairs(answer: Attributes<'_>) -> bool {
    answer.number(CHANNELS_COMBINED_MAX).is_some_and(|max| max > 0)
}

impl fmt::Display for NicParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NicParameter::RingRx => f.write_str("the receive ring"),
            NicParameter::RingTx => f.write_str("the send ring"),
            NicParameter::Channels => f.write_str("the number of queues"),
            NicParameter::CoalesceRxUsecs => f.write_str("rx-usecs"),
            NicParameter::CoalesceTxUsecs => f.write_str("tx-usecs"),
            NicParameter::CoalesceAdaptiveRx => f.write_str("adaptive-rx"),
            NicParameter::Feature(feature) => write!(f, "offload {}", feature.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_does_not_stand_for_two() {
        let answer = |rx, tx| {
            let mut answer = MessageBody::default();
            for (number, value) in [(CHANNELS_RX_MAX, 8), (CHANNELS_TX_MAX, 4), (CHANNELS_RX, rx)] {
                answer.put_u32(number, value);
            }
            answer.put_u32(CHANNELS_TX, tx);
            answer
        };
        let read = |answer: &MessageBody| NicParameter::Channels.find(Attributes::of(answer.bytes()));
        assert_eq!(read(&answer(2, 2)), Some(NicValue { now: 2, wanted: 2, max: Some(4) }));
        assert_eq!(read(&answer(2, 1)), None);
    }
}
