//! A route as the kernel has it, whole: kept while another one is in its place, and put back.

use std::fmt::Write;
use std::net::IpAddr;

use netlink_packet_core::{Emitable, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Parseable};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteProtocol,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Netlink;
use super::route::{expires, read};
use crate::{Result, Route};

/// A route with all of its properties: its origin, its several ways, its metrics. Links are in it by their indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplacedRoute {
    /// As a message of rtnetlink, header and attributes.
    message: Vec<u8>,
}

impl Netlink {
    /// The route that has the place of another one (its [rival](Netlink::rival)), to be put back later; `None` if the
    /// place is free.
    ///
    /// # Errors
    /// `EINVAL` for a route that cannot be put back as it was: the kernel's own, one that expires, and one by a nexthop
    /// object.
    pub fn displaced_route(&self, route: &Route) -> Result<Option<DisplacedRoute>> {
        let Some((info, mut found)) = self.rival_message(route)? else { return Ok(None) };
        let attempted = format!("displace the route to {}", info.dst);
        if found.header.protocol == RouteProtocol::Kernel {
            return Err(self.invalid(attempted, "the kernel made it for an address"));
        }
        if expires(&found) {
            return Err(
                self.invalid(attempted, "a router announced it, and it would lose its time of expiry")
            );
        }
        if found.attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::NhId(_))) {
            return Err(
                self.invalid(attempted, "it goes by a nexthop object, which may change while it is away")
            );
        }
        // What the kernel reports for a route and does not accept.
        found.header.flags &= RouteFlags::Onlink;
        found.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::CacheInfo(_)));
        for attribute in &mut found.attributes {
            if let RouteAttribute::MultiPath(hops) = attribute {
                hops.iter_mut().for_each(|hop| hop.flags &= RouteNextHopFlags::Onlink);
            }
        }
        let mut message = vec![0; found.buffer_len()];
        found.emit(&mut message);
        Ok(Some(DisplacedRoute { message }))
    }

    /// Puts a route back into its place. `EEXIST` if another one is there and is not to be replaced, `ENODEV` if
    /// its link is gone.
    pub fn route_put_back(&self, route: &DisplacedRoute, replaces: bool) -> Result<()> {
        let attempted = "put a route back";
        let message = route.read().map_err(|why| self.invalid(attempted, why))?;
        let flags = if replaces { NLM_F_REPLACE } else { NLM_F_EXCL };
        self.change(Message::NewRoute(message), NLM_F_CREATE | flags, attempted)
    }
}

impl DisplacedRoute {
    /// The indexes of the links on which it was.
    pub fn links(&self) -> Vec<u32> {
        let info = self.read().ok().and_then(|message| read(&Message::NewRoute(message)));
        info.into_iter().flat_map(|info| info.next_hops).filter_map(|hop| hop.index).collect()
    }

    /// Whether it led to a next hop and to no other; `None`: the destination was on the link itself.
    pub fn leads_to(&self, via: Option<IpAddr>) -> bool {
        let info = self.read().ok().and_then(|message| read(&Message::NewRoute(message)));
        info.is_some_and(|info| matches!(info.next_hops.as_slice(), [hop] if hop.via == via))
    }

    fn read(&self) -> std::result::Result<RouteMessage, String> {
        RouteMessage::parse(self.message.as_slice()).map_err(|error| error.to_string())
    }
}

/// The message as hexadecimal digits, two a byte.
impl Serialize for DisplacedRoute {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut digits = String::new();
        for byte in &self.message {
            write!(digits, "{byte:02x}").expect("a text can be written to");
        }
        serializer.serialize_str(&digits)
    }
}

impl<'de> Deserialize<'de> for DisplacedRoute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<DisplacedRoute, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let byte = |at| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let message = (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>();
        let route = DisplacedRoute {
            message: message.ok_or_else(|| serde::de::Error::custom("it is no list of hexadecimal bytes"))?,
        };
        route.read().map_err(serde::de::Error::custom)?;
        Ok(route)
    }
}
