//! The generation of a namespace's nftables ruleset. Tables themselves are made and listed by `nft` ([`crate::nft`]).
//!
//! The kernel numbers each commit of a namespace's ruleset (`nft_net.base_seq`), so one message shows whether any rule
//! has changed. Listing the rules takes a process and a thousand times as long.

use std::sync::Mutex;

use netlink_packet_core::NLM_F_ACK;
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::generic::{Attributes, Packet};
use super::socket::Socket;
use crate::error::Attempt;
use crate::{Error, Netns, Result};

/// `NFNL_SUBSYS_NFTABLES` with `NFT_MSG_GETGEN` (include/uapi/linux/netfilter).
const GET_GENERATION: u16 = 10 << 8 | 16;
/// `NFTA_GEN_ID`: 32 bits in network order.
const GENERATION: u16 = 1;
/// `struct nfgenmsg`: any family, version 0, no resource.
const HEADER: [u8; 4] = [0; 4];

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
        let question = Packet { family: GET_GENERATION, bytes: HEADER.to_vec() };
        let answers = socket.lock().expect("no exchange panics").exchange(question, NLM_F_ACK);
        let answers: Vec<Packet> = match answers.attempt(attempted) {
            // Netfilter is there, and nftables is not.
            Err(error) if error.is(libc::EINVAL) => return Ok(None),
            answers => answers?,
        };
        let id = answers.iter().find_map(|answer| {
            let attributes = Attributes::of(answer.bytes.get(HEADER.len()..)?);
            Some(u32::from_be_bytes(attributes.get(GENERATION)?.try_into().ok()?))
        });
        id.map(Some).ok_or_else(|| Error::invalid(attempted(), "the answer has no number"))
    }
}
