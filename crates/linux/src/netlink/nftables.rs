//! What of nftables needs no byte code: the generation of a namespace's ruleset, tables by their names, and elements of
//! maps. Tables are made and listed by `nft` ([`crate::nft`]).
//!
//! The kernel numbers each commit of a namespace's ruleset (`nft_net.base_seq`), so one message shows whether any rule
//! has changed. Listing the rules takes a process and a thousand times as long.
//!
//! Source: include/uapi/linux/netfilter/nf_tables.h, nfnetlink.h.

use std::sync::Mutex;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::generic::{Attributes, MessageBody, Packet};
use super::socket::Socket;
use crate::error::Attempt;
use crate::nft::{Element, Family};
use crate::{Error, Netns, Result};

/// `NFNL_SUBSYS_NFTABLES`, in the upper byte of a message's type.
const SUBSYSTEM: u16 = 10;
/// `NFT_MSG_…`, in the lower byte.
const GET_TABLE: u16 = SUBSYSTEM << 8 | 1;
const DELETE_TABLE: u16 = SUBSYSTEM << 8 | 2;
const NEW_ELEMENT: u16 = SUBSYSTEM << 8 | 12;
const GET_ELEMENT: u16 = SUBSYSTEM << 8 | 13;
const DELETE_ELEMENT: u16 = SUBSYSTEM << 8 | 14;
const GET_GENERATION: u16 = SUBSYSTEM << 8 | 16;
/// `NFNL_MSG_BATCH_BEGIN` and `…_END`: what stands between them happens as a whole or not at all.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;

/// The attribute with a table's name (`NFTA_TABLE_NAME`).
const TABLE_NAME: u16 = 1;
/// `NFTA_SET_ELEM_LIST_TABLE`, `…_SET`, `…_ELEMENTS`, and `NFTA_LIST_ELEM` within the last.
const LIST_TABLE: u16 = 1;
const LIST_SET: u16 = 2;
const LIST_ELEMENTS: u16 = 3;
const LIST_ELEMENT: u16 = 1;
/// `NFTA_SET_ELEM_KEY` and `…_DATA`, and `NFTA_DATA_VALUE` within them.
const ELEMENT_KEY: u16 = 1;
const ELEMENT_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
/// `NFTA_GEN_ID`: 32 bits in network order.
const GENERATION: u16 = 1;
/// Bytes of `struct nfgenmsg`: family, version 0, and a resource of 16 bits.
const HEADER_BYTES: usize = 4;

/// A netfilter socket of one namespace.
#[derive(Debug)]
pub struct Nftables {
    /// `None`: the kernel has no netfilter.
    socket: Option<Mutex<Socket>>,
    place: String,
}

impl Nftables {
    /// A socket of the given namespace.
    pub fn open_in(netns: &Netns) -> Result<Nftables> {
        let place = netns.describe();
        let attempted = || format!("open a netfilter socket in {place}");
        let socket = match netns.run(|| Socket::open(NETLINK_NETFILTER))?.attempt(attempted) {
            Err(error) if error.is(libc::EPROTONOSUPPORT) => None,
            socket => Some(Mutex::new(socket?)),
        };
        Ok(Nftables { socket, place })
    }

    /// A number that differs after every change of a table, chain, rule or set. `None` if the kernel has no nftables.
    ///
    /// # Errors
    /// The user may not query nftables.
    pub fn generation(&self) -> Result<Option<u32>> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let attempted = || format!("ask for the generation of the nftables rules in {}", self.place);
        let question = Packet { family: GET_GENERATION, bytes: vec![0; HEADER_BYTES] };
        let answers = socket.lock().expect("no exchange panics").exchange(question, NLM_F_ACK);
        let answers: Vec<Packet> = match answers.attempt(attempted) {
            // Netfilter is there, and nftables is not.
            Err(error) if error.is(libc::EINVAL) => return Ok(None),
            answers => answers?,
        };
        let id = answers.iter().find_map(|answer| {
            let attributes = Attributes::of(answer.bytes.get(HEADER_BYTES..)?);
            Some(u32::from_be_bytes(attributes.get(GENERATION)?.try_into().ok()?))
        });
        id.map(Some).ok_or_else(|| Error::invalid(attempted(), "the answer has no number"))
    }

    /// True if there is a table of that name.
    pub fn table_exists(&self, family: Family, name: &str) -> Result<bool> {
        let attempted = || format!("find nftables table {} {name} in {}", family.name(), self.place);
        let Some(socket) = &self.socket else { return Ok(false) };
        let question = message(GET_TABLE, family, &named(name));
        match socket.lock().expect("no exchange panics").exchange(question, NLM_F_ACK).attempt(attempted) {
            Ok(answers) => Ok(!answers.is_empty()),
            // The second: netfilter is there, and nftables is not.
            Err(error) if error.is(libc::ENOENT) || error.is(libc::EINVAL) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes a table with all its contents. `ENOENT` if it does not exist.
    pub fn delete_table(&self, family: Family, name: &str) -> Result<()> {
        let attempted = || format!("delete nftables table {} {name} in {}", family.name(), self.place);
        self.change(message(DELETE_TABLE, family, &named(name)), 0).attempt(attempted)
    }

    /// The element with this key and the value that it has; `None` if the element or its map does not exist.
    ///
    /// # Errors
    /// Its value is not of the kinds of this one's, or the kernel refuses.
    pub fn find_element(&self, element: &Element) -> Result<Option<Element>> {
        let (place, key) = (element.place(), element.key_text());
        let attempted = || format!("read element {key} of nftables map {place} in {}", self.place);
        let Some(socket) = &self.socket else { return Ok(None) };
        let question = message(GET_ELEMENT, element.family, &list(element, &[]));
        let answers = socket.lock().expect("no exchange panics").exchange(question, NLM_F_ACK);
        let answers: Vec<Packet> = match answers.attempt(attempted) {
            // The second as in `table_exists`.
            Err(error) if error.is(libc::ENOENT) || error.is(libc::EINVAL) => return Ok(None),
            answers => answers?,
        };
        let found = answers.iter().find_map(|answer| {
            let elements = Attributes::of(answer.bytes.get(HEADER_BYTES..)?).within(LIST_ELEMENTS);
            element.with_value_bytes(value_in(elements.within(LIST_ELEMENT)))
        });
        found.map(Some).ok_or_else(|| Error::invalid(attempted(), "its value is of another kind"))
    }

    /// Adds an element to a map or a set. `EEXIST` if there is one of that key.
    pub fn add_element(&self, element: &Element) -> Result<()> {
        let (place, text) = (element.place(), element.to_text());
        let attempted = || format!("add element {text} to nftables map {place} in {}", self.place);
        let list = list(element, &element.value_bytes());
        self.change(message(NEW_ELEMENT, element.family, &list), NLM_F_CREATE | NLM_F_EXCL).attempt(attempted)
    }

    /// Deletes an element, whatever its value. `ENOENT` if the key does not exist.
    pub fn delete_element(&self, element: &Element) -> Result<()> {
        let (place, key) = (element.place(), element.key_text());
        let attempted = || format!("delete element {key} of nftables map {place} in {}", self.place);
        self.change(message(DELETE_ELEMENT, element.family, &list(element, &[])), 0).attempt(attempted)
    }

    /// A transaction of one change.
    fn change(&self, change: Packet, flags: u16) -> std::io::Result<()> {
        let Some(socket) = &self.socket else {
            return Err(std::io::Error::from_raw_os_error(libc::EPROTONOSUPPORT));
        };
        let resource = SUBSYSTEM.to_be_bytes();
        let edge = |kind| Packet { family: kind, bytes: vec![0, 0, resource[0], resource[1]] };
        let messages = vec![(edge(BATCH_BEGIN), 0), (change, flags | NLM_F_ACK), (edge(BATCH_END), 0)];
        socket.lock().expect("no exchange panics").exchange_all(messages)
    }
}

fn message(kind: u16, family: Family, attributes: &MessageBody) -> Packet {
    let protocol = match family {
        Family::Ip => libc::NFPROTO_IPV4,
        Family::Ip6 => libc::NFPROTO_IPV6,
        Family::Netdev => libc::NFPROTO_NETDEV,
    };
    Packet { family: kind, bytes: [&[protocol as u8, 0, 0, 0], attributes.bytes()].concat() }
}

fn named(table: &str) -> MessageBody {
    let mut request = MessageBody::default();
    request.put(TABLE_NAME, &text(table));
    request
}

/// A list of one element; without a value for a set, and where only the key counts.
fn list(element: &Element, value: &[u8]) -> MessageBody {
    let datum = |bytes: &[u8]| {
        let mut datum = MessageBody::default();
        datum.put(DATA_VALUE, bytes);
        datum
    };
    let mut inner = MessageBody::default();
    inner.nest(ELEMENT_KEY, &datum(&element.key_bytes()));
    if !value.is_empty() {
        inner.nest(ELEMENT_DATA, &datum(value));
    }
    let mut elements = MessageBody::default();
    elements.nest(LIST_ELEMENT, &inner);
    let mut request = MessageBody::default();
    request.put(LIST_TABLE, &text(&element.table));
    request.put(LIST_SET, &text(&element.map));
    request.nest(LIST_ELEMENTS, &elements);
    request
}

/// The value of an element; empty in a set.
fn value_in(element: Attributes<'_>) -> &[u8] {
    element.within(ELEMENT_DATA).get(DATA_VALUE).unwrap_or_default()
}

fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}
