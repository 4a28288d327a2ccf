//! How long a card delays its interrupts: all numbers of it together, since a driver may change one with another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::parameter::{
    COALESCE, COALESCE_ADAPTIVE_RX, COALESCE_ADAPTIVE_TX, COALESCE_RX_FRAMES, COALESCE_RX_USECS,
    COALESCE_TX_FRAMES, COALESCE_TX_USECS,
};
use super::{Ethtool, about};
use crate::netlink::Attributes;
use crate::{IfName, Result};

/// One of these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delay {
    /// 1: the driver chooses the two of received packets by the traffic.
    AdaptiveRx,
    /// The same of packets that were sent.
    AdaptiveTx,
    /// Microseconds after a packet was received.
    RxUsecs,
    /// Received packets after which the card interrupts earlier.
    RxFrames,
    /// Microseconds after a packet was sent.
    TxUsecs,
    /// Sent packets after which the card interrupts earlier.
    TxFrames,
}

impl Delay {
    const ALL: [(Delay, u16); 6] = [
        (Delay::AdaptiveRx, COALESCE_ADAPTIVE_RX),
        (Delay::AdaptiveTx, COALESCE_ADAPTIVE_TX),
        (Delay::RxUsecs, COALESCE_RX_USECS),
        (Delay::RxFrames, COALESCE_RX_FRAMES),
        (Delay::TxUsecs, COALESCE_TX_USECS),
        (Delay::TxFrames, COALESCE_TX_FRAMES),
    ];

    /// The switch that leaves this number to the driver; `None` for a switch.
    pub fn adaptive(self) -> Option<Delay> {
        match self {
            Delay::AdaptiveRx | Delay::AdaptiveTx => None,
            Delay::RxUsecs | Delay::RxFrames => Some(Delay::AdaptiveRx),
            Delay::TxUsecs | Delay::TxFrames => Some(Delay::AdaptiveTx),
        }
    }
}

impl Ethtool {
    /// Those that the card has. A number that is 0 and that the driver cannot set is left out (`coalesce_put_u32` in
    /// net/ethtool/coalesce.c).
    pub fn read_delays(&self, link: &IfName) -> Result<BTreeMap<Delay, u32>> {
        let answers = self.netlink.call(COALESCE.get, &about(link));
        let answers = match answers.map_err(|error| self.failed("read", "interrupt delays", link, error)) {
            Ok(answers) => answers,
            Err(error) if error.is(libc::EOPNOTSUPP) => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let Some(answer) = answers.first() else { return Ok(BTreeMap::new()) };
        let found = |(delay, number)| Some((delay, Attributes::of(answer).number(number)?));
        Ok(Delay::ALL.into_iter().filter_map(found).collect())
    }

    /// Sets some of them in one request; the others stay, unless the driver changes them too.
    pub fn write_delays(&self, link: &IfName, delays: &BTreeMap<Delay, u32>) -> Result<()> {
        let mut request = about(link);
        for (delay, number) in Delay::ALL {
            match (delays.get(&delay), delay.adaptive()) {
                (Some(value), Some(_)) => request.put_u32(number, *value),
                (Some(value), None) => request.put(number, &[u8::from(*value != 0)]),
                (None, _) => {}
            }
        }
        let sent = self.netlink.call(COALESCE.set, &request);
        sent.map(drop).map_err(|error| self.failed("set", "interrupt delays", link, error))
    }
}
