//! NAPIs: what polls the queues of a link, each with numbers of its own since Linux 6.13.
//!
//! Source: include/uapi/linux/netdev.h, Documentation/netlink/specs/netdev.yaml.

use std::collections::BTreeMap;

use crate::netlink::{Attributes, Generic, MessageBody};
use crate::{Error, Netns, Result};

const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const IFINDEX: u16 = 1;
const ID: u16 = 2;

/// A number of a NAPI, which also its link has: to write that of the link sets it for all of them
/// (`netdev_set_gro_flush_timeout` and `netdev_set_defer_hard_irqs` in net/core/dev.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NapiNumber {
    /// How often an empty poll is repeated before interrupts are enabled again.
    DeferHardIrqs,
    /// Nanoseconds after which segments that were put together go on, also without the end of a poll.
    GroFlushTimeout,
}

impl NapiNumber {
    /// The link's name for it, a file in /sys/class/net/LINK.
    fn name(self) -> &'static str {
        match self {
            NapiNumber::DeferHardIrqs => "napi_defer_hard_irqs",
            NapiNumber::GroFlushTimeout => "gro_flush_timeout",
        }
    }

    fn attribute(self) -> u16 {
        match self {
            NapiNumber::DeferHardIrqs => 5,
            NapiNumber::GroFlushTimeout => 6,
        }
    }
}

/// The NAPIs of one namespace.
#[derive(Debug)]
pub struct Napis {
    netlink: Generic,
}

impl Napis {
    /// `None` if the kernel does not list them (before Linux 6.8).
    pub fn open_in(netns: &Netns) -> Result<Option<Napis>> {
        match netns.run(|| Generic::open("netdev"))? {
            Ok(netlink) => Ok(Some(Napis { netlink })),
            Err(error) if error.is(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The number of each NAPI of a link, by its id, which with some drivers is another after the link was down. Empty
    /// where no queue is polled, and before Linux 6.13.
    pub fn read(&self, index: u32, number: NapiNumber) -> Result<BTreeMap<u32, u64>> {
        let attempted = || format!("list the NAPIs of link {index}");
        let mut request = MessageBody::default();
        request.put_u32(IFINDEX, index);
        let answers = match self.netlink.dump(NAPI_GET, &request).map_err(|why| Error::new(attempted(), why))
        {
            Ok(answers) => answers,
            // The family is older than its list of NAPIs.
            Err(error) if error.is(libc::EOPNOTSUPP) => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let one = |answer: &Vec<u8>| {
            let answer = Attributes::of(answer);
            Some((answer.number(ID)?, wide(answer.get(number.attribute())?)?))
        };
        Ok(answers.iter().filter_map(one).collect())
    }

    /// Sets the number of one NAPI. `ENOENT` if there is none of that id.
    pub fn write(&self, id: u32, number: NapiNumber, value: u64) -> Result<()> {
        let attempted = || format!("set {} of NAPI {id} to {value}", number.name());
        let mut request = MessageBody::default();
        request.put_u32(ID, id);
        match number {
            NapiNumber::DeferHardIrqs => {
                let value = u32::try_from(value).unwrap_or(u32::MAX);
                request.put_u32(number.attribute(), value);
            }
            NapiNumber::GroFlushTimeout => request.put(number.attribute(), &value.to_ne_bytes()),
        }
        self.netlink.call(NAPI_SET, &request).map(drop).map_err(|why| Error::new(attempted(), why))
    }
}

/// A number of 32 bits, or of 64 where 32 do not suffice (`nla_put_uint`).
fn wide(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => bytes.try_into().ok().map(u32::from_ne_bytes).map(u64::from),
        _ => bytes.try_into().ok().map(u64::from_ne_bytes),
    }
}
