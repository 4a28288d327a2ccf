//! Settings of a network card: rings, queues, moderation of interrupts, offloads, and how it spreads flows over its
//! queues: the table, the fields and the key of its hash.
//!
//! By netlink (Documentation/networking/ethtool-netlink.rst), except for how flows are spread, which netlink sets since
//! Linux 6.17 only. A driver may make something else of a value: read it back.

mod card;
mod delay;
mod feature;
mod hash;
mod hashing;
mod indirection;
mod ioctl;
mod parameter;

pub use card::{Channels, Coalescing, Rings};
pub use delay::Delay;
pub use feature::NicFeature;
pub use hash::{FlowType, HashFields, HashKey};
pub use parameter::NicParameter;

use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::Attempt;
use crate::netlink::{Attributes, Generic, MessageBody};
use crate::{Error, IfName, Netns, Result};

/// The header of every request: whom it is about.
const HEADER: u16 = 1;
const DEVICE_NAME: u16 = 2;

/// The cards of one namespace.
#[derive(Debug)]
pub struct Ethtool {
    netlink: Generic,
    /// For the requests that are no netlink.
    socket: OwnedFd,
    place: String,
}

/// A setting of a card, and its maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicValue {
    /// The value that is in force.
    pub now: u32,
    /// The requested value. It differs from the value in force only for an offload that needs another offload which is
    /// off.
    pub wanted: u32,
    /// The maximum, where the driver reports one.
    pub max: Option<u32>,
}

impl Ethtool {
    /// The cards of the calling thread's namespace.
    pub fn open() -> Result<Ethtool> {
        Ethtool::in_place("this namespace".to_owned())
    }

    /// The cards of a namespace.
    pub fn open_in(netns: &Netns) -> Result<Ethtool> {
        netns.run(|| Ethtool::in_place(netns.describe()))?
    }

    fn in_place(place: String) -> Result<Ethtool> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .attempt(|| "open a socket for ethtool")?;
        Ok(Ethtool { netlink: Generic::open("ethtool")?, socket, place })
    }

    /// Reads a setting; `None` if this card or its driver does not have it.
    pub fn read(&self, link: &IfName, parameter: NicParameter) -> Result<Option<NicValue>> {
        let what = parameter.messages();
        let asked = self.netlink.call(what.get, &about(link));
        let answers = match asked.map_err(|error| self.failed("read", parameter, link, error)) {
            Ok(answers) => answers,
            // A driver without that kind of request.
            Err(error) if error.is(libc::EOPNOTSUPP) => return Ok(None),
            Err(error) => return Err(error),
        };
        let attributes = answers.first().map(|bytes| Attributes::of(bytes));
        Ok(attributes.and_then(|attributes| parameter.find(attributes)))
    }

    /// Changes a setting; the others stay. `EOPNOTSUPP` if the card does not have it, `ERANGE` or `EINVAL` if it
    /// rejects the value.
    pub fn write(&self, link: &IfName, parameter: NicParameter, value: u32) -> Result<()> {
        let mut request = about(link);
        let combined = match parameter {
            // Cards have queues for both directions in pairs, or each direction its own.
            NicParameter::Channels => self.has_pairs(link)?,
            _ => true,
        };
        parameter.fill(&mut request, value, combined);
        let sent = self.netlink.call(parameter.messages().set, &request);
        sent.map(drop).map_err(|error| self.failed(&format!("set to {value}"), parameter, link, error))
    }

    fn has_pairs(&self, link: &IfName) -> Result<bool> {
        let channels = NicParameter::Channels;
        let answers = self.netlink.call(channels.messages().get, &about(link));
        let answers = answers.map_err(|error| self.failed("read", channels, link, error))?;
        Ok(answers.first().is_some_and(|bytes| parameter::has_pairs(Attributes::of(bytes))))
    }

    fn failed(
        &self,
        verb: &str,
        what: impl std::fmt::Display,
        link: &IfName,
        error: std::io::Error,
    ) -> Error {
        Error::new(format!("{verb} {what} of {link} in {}", self.place), error)
    }
}

/// A request about a link.
fn about(link: &IfName) -> MessageBody {
    let mut header = MessageBody::default();
    header.put(DEVICE_NAME, &[link.as_str().as_bytes(), &[0]].concat());
    let mut request = MessageBody::default();
    request.nest(HEADER, &header);
    request
}
