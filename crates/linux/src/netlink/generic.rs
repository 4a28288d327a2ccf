//! Generic netlink: families of requests that have a name, and attributes within attributes.
//!
//! Source: include/uapi/linux/genetlink.h, Documentation/userspace-api/netlink/intro.rst.

use std::convert::Infallible;
use std::sync::Mutex;

use netlink_packet_core::{NLM_F_ACK, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};
use netlink_sys::protocols::NETLINK_GENERIC;

use super::socket::Socket;
use crate::error::Attempt;
use crate::{Error, Result};

/// The family that knows the others (`GENL_ID_CTRL`), its question for one, and two of its attributes.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Bytes of `struct genlmsghdr`: command, version, two of padding.
const HEADER_BYTES: usize = 4;
/// Marks an attribute that holds attributes (`NLA_F_NESTED`); strict families require it.
const NESTED: u16 = 0x8000;
/// The bits of an attribute's type that are its number (`NLA_TYPE_MASK`).
const NUMBER: u16 = 0x3fff;

/// A socket for the requests of one family.
#[derive(Debug)]
pub(crate) struct Generic {
    socket: Mutex<Socket>,
    family: u16,
}

/// What follows a message's `genlmsghdr`, in the making: attributes, after a header of the family's where it has one.
/// It cannot be printed: some attributes are private keys.
#[derive(Clone, Default)]
pub(crate) struct MessageBody(Vec<u8>);

/// A message's attributes, as they came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a>(&'a [u8]);

/// A message with its family, `genlmsghdr` and attributes, which cannot be printed either. Netfilter's messages
/// have the same form.
#[derive(Clone)]
pub(super) struct Packet {
    /// The type in the message's header.
    pub(super) family: u16,
    /// What follows that header.
    pub(super) bytes: Vec<u8>,
}

impl Generic {
    /// Opens a socket for a family in the calling thread's namespace. `ENOENT` if the kernel does not have the family.
    pub(crate) fn open(family: &str) -> Result<Generic> {
        let attempted = || format!("ask the kernel for the netlink family {family}");
        let mut socket = Socket::open(NETLINK_GENERIC).attempt(attempted)?;
        let mut name = MessageBody::default();
        name.put(FAMILY_NAME, &[family.as_bytes(), &[0]].concat());
        let answers = socket.exchange(packet(CONTROL, GET_FAMILY, &name), NLM_F_ACK).attempt(attempted)?;
        let found = answers.first().and_then(|answer| attributes(&answer.bytes).get(FAMILY_ID));
        let id = found.and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?)));
        let family = id.ok_or_else(|| Error::invalid(attempted(), "the answer has no number"))?;
        Ok(Generic { socket: Mutex::new(socket), family })
    }

    /// Sends a request; the attributes of its answers in order.
    pub(crate) fn call(&self, command: u8, request: &MessageBody) -> std::io::Result<Vec<Vec<u8>>> {
        let mut socket = self.socket.lock().expect("no exchange panics");
        let answers = socket.exchange(packet(self.family, command, request), NLM_F_ACK)?;
        Ok(answers.into_iter().map(Packet::into_attributes).collect())
    }

    /// Asks for a list, which may come in several messages; their attributes in order.
    pub(crate) fn dump(&self, command: u8, request: &MessageBody) -> std::io::Result<Vec<Vec<u8>>> {
        let mut socket = self.socket.lock().expect("no exchange panics");
        let answers = socket.dump(&packet(self.family, command, request))?;
        Ok(answers.into_iter().map(Packet::into_attributes).collect())
    }
}

impl MessageBody {
    /// Attributes after a header that the family has for itself.
    pub(crate) fn after(header: [u8; 4]) -> MessageBody {
        MessageBody(header.to_vec())
    }

    /// Appends an attribute, padded to four bytes.
    ///
    /// # Panics
    /// If the value has more than 65,531 bytes: its length with that of the header has 16 bits.
    pub(crate) fn put(&mut self, number: u16, value: &[u8]) {
        let length = u16::try_from(4 + value.len()).expect("our attributes are short");
        self.0.extend(length.to_ne_bytes());
        self.0.extend(number.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Adds an attribute that holds a number of 32 bits.
    pub(crate) fn put_u32(&mut self, number: u16, value: u32) {
        self.put(number, &value.to_ne_bytes());
    }

    /// What was put in so far, as it goes over the wire.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds an attribute that holds attributes.
    pub(crate) fn nest(&mut self, number: u16, inside: &MessageBody) {
        self.put(number | NESTED, &inside.0);
    }
}

impl<'a> Attributes<'a> {
    /// The attributes in these bytes.
    pub(crate) fn of(bytes: &'a [u8]) -> Attributes<'a> {
        Attributes(bytes)
    }

    /// Number and content of each attribute; a truncated one ends the list.
    pub(crate) fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let [a, b, c, d, ..] = rest else { return None };
            let length = usize::from(u16::from_ne_bytes([*a, *b]));
            let value = rest.get(4..length)?;
            let number = u16::from_ne_bytes([*c, *d]) & NUMBER;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some((number, value))
        })
    }

    /// The content of the first of a number.
    pub(crate) fn get(self, number: u16) -> Option<&'a [u8]> {
        self.iter().find(|(found, _)| *found == number).map(|(_, value)| value)
    }

    /// The first of a number as a number, of 8 or 32 bits.
    pub(crate) fn number(self, number: u16) -> Option<u32> {
        match self.get(number)? {
            [byte] => Some(u32::from(*byte)),
            value => Some(u32::from_ne_bytes(value.try_into().ok()?)),
        }
    }

    /// The attributes within the first of a number; none if there is none.
    pub(crate) fn within(self, number: u16) -> Attributes<'a> {
        Attributes(self.get(number).unwrap_or_default())
    }
}

impl Packet {
    fn into_attributes(self) -> Vec<u8> {
        self.bytes.get(HEADER_BYTES..).unwrap_or_default().to_vec()
    }
}

fn packet(family: u16, command: u8, request: &MessageBody) -> Packet {
    let header = [command, 1, 0, 0];
    Packet { family, bytes: [header.as_slice(), &request.0].concat() }
}

fn attributes(bytes: &[u8]) -> Attributes<'_> {
    Attributes(bytes.get(HEADER_BYTES..).unwrap_or_default())
}

impl NetlinkSerializable for Packet {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        self.bytes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..self.bytes.len()].copy_from_slice(&self.bytes);
    }
}

impl NetlinkDeserializable for Packet {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> std::result::Result<Packet, Infallible> {
        Ok(Packet { family: header.message_type, bytes: payload.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_within_attributes_are_found_again() {
        let mut inside = MessageBody::default();
        inside.put(3, &[7]);
        inside.put_u32(4, 70_000);
        let mut request = MessageBody::default();
        request.put(1, b"eth0\0");
        request.nest(2, &inside);
        let read = Attributes::of(&request.0);
        assert_eq!(read.get(1), Some(b"eth0\0".as_slice()));
        assert_eq!(read.within(2).number(3), Some(7));
        assert_eq!(read.within(2).number(4), Some(70_000));
        assert_eq!(read.within(9).number(4), None);
    }

    #[test]
    fn cut_attributes_end_the_list() {
        let mut request = MessageBody::default();
        request.put_u32(1, 1);
        request.put_u32(2, 2);
        request.0.truncate(14);
        assert_eq!(Attributes::of(&request.0).iter().count(), 1);
        assert_eq!(Attributes::of(&[200, 0, 1, 0]).iter().count(), 0);
        assert_eq!(Attributes::of(&[0, 0, 1, 0]).iter().count(), 0);
    }
}
