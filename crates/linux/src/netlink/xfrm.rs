//! xfrm: the security associations and the policies of a namespace, one at a time.
//!
//! Source: include/uapi/linux/xfrm.h. The package netlink-packet-xfrm has the same messages, and prints
//! the keys in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_sys::protocols::NETLINK_XFRM;

use super::generic::{Attributes, MessageBody, Packet};
use super::socket::Socket;
use crate::error::Attempt;
use crate::native::{u16_at, u32_at};
use crate::xfrm::KEY_BYTES;
use crate::{Error, EspKey, EspTunnel, Netns, Result, Spi, XfrmDirection, XfrmPolicy, XfrmState};

/// `XFRM_MSG_…`: types of messages.
const NEW_STATE: u16 = 0x10;
const DELETE_STATE: u16 = 0x11;
const GET_STATE: u16 = 0x12;
const NEW_POLICY: u16 = 0x13;
const DELETE_POLICY: u16 = 0x14;
const GET_POLICY: u16 = 0x15;
/// Attributes of a state or policy (`XFRMA_…`).
const TEMPLATES: u16 = 5;
const AEAD: u16 = 18;
const REPLAY: u16 = 23;

/// AES-GCM as RFC 4106 uses it in ESP, its tag's bits, and the bytes of a name (`struct xfrm_algo_aead`).
const ALGORITHM: &str = "rfc4106(gcm(aes))";
const ICV_BITS: u32 = 128;
const NAME_BYTES: usize = 64;
/// The mode in which a whole packet is wrapped (`XFRM_MODE_TUNNEL`).
const TUNNEL: u8 = 1;
/// `XFRM_STATE_AF_UNSPEC`: the inner packets may be of either family, whatever the outer one is.
const BOTH_FAMILIES: u8 = 32;
/// `XFRM_STATE_ESN`: sequence numbers of 64 bits, of which packets have the lower 32 (RFC 4303 §2.2.1). Those of 32 are
/// used up after half a day at 100,000 packets a second.
const LONG_SEQUENCE: u8 = 128;
/// How late a packet may come behind later ones, in packets. The same as in Cilium: with 32, the most without
/// [`LONG_SEQUENCE`], packets that several CPUs sent would be dropped.
const REPLAY_PACKETS: u32 = 1024;

/// Sizes of structures, with what their alignment adds (they hold numbers of 64 bits), and where their parts are.
const SELECTOR_BYTES: usize = 56;
const STATE_BYTES: usize = 224;
const POLICY_BYTES: usize = 168;
const TEMPLATE_BYTES: usize = 64;
/// Offsets in `struct xfrm_usersa_info`, in bytes.
const STATE_SRC: usize = 80;
const STATE_PACKETS: usize = 168;
const STATE_REQID: usize = 208;
const STATE_FAMILY: usize = 212;
const STATE_MODE: usize = 214;
const STATE_FLAGS: usize = 216;
/// In `struct xfrm_userpolicy_info`: `XFRM_POLICY_ALLOW` is 0.
const POLICY_ACTION: usize = 161;
/// Offsets in `struct xfrm_user_tmpl`, in bytes.
const TEMPLATE_PROTOCOL: usize = 20;
const TEMPLATE_FAMILY: usize = 24;
const TEMPLATE_SRC: usize = 28;
const TEMPLATE_REQID: usize = 44;
const TEMPLATE_MODE: usize = 48;
const TEMPLATE_OPTIONAL: usize = 50;

/// An xfrm socket of one namespace.
#[derive(Debug)]
pub struct Xfrm {
    /// One exchange at a time: answers of two would mix.
    socket: Mutex<Socket>,
    place: String,
}

/// An association as the kernel reports it, without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XfrmStateInfo {
    /// Where it begins and ends.
    pub tunnel: EspTunnel,
    /// Packets that it has wrapped or unwrapped.
    pub packets: u64,
    /// In tunnel mode, with our algorithm, for both families.
    is_ours: bool,
}

/// A policy as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XfrmPolicyInfo {
    /// The tunnel that it requires; `None` if it forbids the packets, or requires something else than
    /// one tunnel of ESP.
    pub tunnel: Option<EspTunnel>,
}

impl Xfrm {
    /// A socket of the given namespace. `EPROTONOSUPPORT` if the kernel has no xfrm.
    pub fn open_in(netns: &Netns) -> Result<Xfrm> {
        let place = netns.describe();
        let attempted = || format!("open an xfrm socket in {place}");
        let socket = netns.run(|| Socket::open(NETLINK_XFRM))?.attempt(attempted)?;
        Ok(Xfrm { socket: Mutex::new(socket), place })
    }

    /// Adds an association. `EEXIST` if the destination has one of its number, `ENOSYS` or `EPROTONOSUPPORT` if the
    /// kernel lacks ESP or the algorithm.
    pub fn state_add(&self, state: &XfrmState, key: &EspKey) -> Result<()> {
        let message = Packet { family: NEW_STATE, bytes: new_state(state, key) };
        self.change(message, NLM_F_CREATE | NLM_F_EXCL, || format!("add {}", named(state)))
    }

    /// Deletes an association. `ESRCH` if there is none of its destination and its number.
    pub fn state_del(&self, state: &XfrmState) -> Result<()> {
        let message = Packet { family: DELETE_STATE, bytes: state_id(state) };
        self.change(message, 0, || format!("delete {}", named(state)))
    }

    /// What the destination has at the number of an association; `None` if that is free.
    pub fn state(&self, state: &XfrmState) -> Result<Option<XfrmStateInfo>> {
        let question = Packet { family: GET_STATE, bytes: state_id(state) };
        self.find(question, libc::ESRCH, read_state, || named(state))
    }

    /// Adds a policy. `EEXIST` if there is one for the same packets in the same direction.
    pub fn policy_add(&self, policy: &XfrmPolicy) -> Result<()> {
        let message = Packet { family: NEW_POLICY, bytes: new_policy(policy) };
        self.change(message, NLM_F_CREATE | NLM_F_EXCL, || format!("add {}", policy_named(policy)))
    }

    /// Deletes a policy. `ENOENT` if there is none for its packets in its direction.
    pub fn policy_del(&self, policy: &XfrmPolicy) -> Result<()> {
        let message = Packet { family: DELETE_POLICY, bytes: policy_id(policy) };
        self.change(message, 0, || format!("delete {}", policy_named(policy)))
    }

    /// The policy for the packets of one, in its direction; `None` if there is none.
    pub fn policy(&self, policy: &XfrmPolicy) -> Result<Option<XfrmPolicyInfo>> {
        let question = Packet { family: GET_POLICY, bytes: policy_id(policy) };
        self.find(question, libc::ENOENT, read_policy, || policy_named(policy))
    }

    fn change(&self, message: Packet, flags: u16, attempted: impl FnOnce() -> String) -> Result<()> {
        let sent = self.socket.lock().expect("no exchange panics").exchange(message, flags | NLM_F_ACK);
        sent.map(drop).attempt(|| format!("{} in {}", attempted(), self.place))
    }

    fn find<T>(
        &self,
        question: Packet,
        absent: i32,
        read: impl FnOnce(&[u8]) -> Option<T>,
        what: impl Fn() -> String,
    ) -> Result<Option<T>> {
        let attempted = || format!("find {} in {}", what(), self.place);
        let answers = self.socket.lock().expect("no exchange panics").exchange(question, NLM_F_ACK);
        let answers: Vec<Packet> = match answers.attempt(attempted) {
            Err(error) if error.is(absent) => return Ok(None),
            answers => answers?,
        };
        let found = answers.first().and_then(|answer| read(&answer.bytes));
        found.map(Some).ok_or_else(|| Error::invalid(attempted(), "the kernel's answer was not understood"))
    }
}

impl XfrmStateInfo {
    /// Whether it is as one that was added here. Its key is not compared: one with another key has another number.
    pub fn is(&self, state: &XfrmState) -> bool {
        self.is_ours && self.tunnel == state.tunnel
    }
}

fn named(XfrmState { tunnel, spi }: &XfrmState) -> String {
    format!("association {spi} to {}", tunnel.dst)
}

fn policy_named(XfrmPolicy { direction, src, dst, .. }: &XfrmPolicy) -> String {
    format!("the {} policy from {src} to {dst}", direction.name())
}

/// `struct xfrm_usersa_info` with the algorithm and the window against replays.
fn new_state(state: &XfrmState, key: &EspKey) -> Vec<u8> {
    let XfrmState { tunnel, spi } = state;
    // Its selector is all packets.
    let mut bytes = vec![0; SELECTOR_BYTES];
    bytes.extend(id(tunnel.dst, Some(*spi)));
    bytes.extend(address(tunnel.src));
    bytes.extend(unlimited());
    // What it has done so far, and its sequence: none.
    bytes.resize(STATE_REQID, 0);
    bytes.extend(tunnel.reqid.to_ne_bytes());
    bytes.extend(family(tunnel.dst).to_ne_bytes());
    bytes.extend([TUNNEL, 0, BOTH_FAMILIES | LONG_SEQUENCE]);
    bytes.resize(STATE_BYTES, 0);
    let mut attributes = MessageBody::default();
    attributes.put(AEAD, &aead(key));
    attributes.put(REPLAY, &replay());
    bytes.extend(attributes.bytes());
    bytes
}

/// The key and its algorithm as `struct xfrm_algo_aead`.
fn aead(key: &EspKey) -> Vec<u8> {
    let mut bytes = ALGORITHM.as_bytes().to_vec();
    bytes.resize(NAME_BYTES, 0);
    bytes.extend((8 * KEY_BYTES as u32).to_ne_bytes());
    bytes.extend(ICV_BITS.to_ne_bytes());
    bytes.extend(key.bytes());
    bytes
}

/// `struct xfrm_replay_state_esn`: words of the window, the numbers of both directions, and the window.
fn replay() -> Vec<u8> {
    let words = REPLAY_PACKETS.div_ceil(u32::BITS);
    let mut bytes: Vec<u8> =
        [words, 0, 0, 0, 0, REPLAY_PACKETS].into_iter().flat_map(u32::to_ne_bytes).collect();
    bytes.resize(bytes.len() + 4 * words as usize, 0);
    bytes
}

/// What identifies a state, as `struct xfrm_usersa_id`.
fn state_id(XfrmState { tunnel, spi }: &XfrmState) -> Vec<u8> {
    let mut bytes = [&address(tunnel.dst)[..], &u32::from(*spi).to_be_bytes()].concat();
    bytes.extend(family(tunnel.dst).to_ne_bytes());
    bytes.extend([esp(), 0]);
    bytes
}

/// `struct xfrm_userpolicy_info` with the tunnel as its only template. It has the highest priority, which is 0.
fn new_policy(policy: &XfrmPolicy) -> Vec<u8> {
    let mut bytes = selector(policy);
    bytes.extend(unlimited());
    bytes.resize(POLICY_ACTION - 1, 0);
    bytes.push(direction(policy.direction));
    bytes.resize(POLICY_BYTES, 0);
    let mut attributes = MessageBody::default();
    attributes.put(TEMPLATES, &template(&policy.tunnel));
    bytes.extend(attributes.bytes());
    bytes
}

/// What identifies a policy, as `struct xfrm_userpolicy_id`.
fn policy_id(policy: &XfrmPolicy) -> Vec<u8> {
    let mut bytes = selector(policy);
    bytes.extend([0; 4]);
    bytes.extend([direction(policy.direction), 0, 0, 0]);
    bytes
}

/// `struct xfrm_user_tmpl`: any association of the tunnel, with any algorithm.
fn template(tunnel: &EspTunnel) -> Vec<u8> {
    let mut bytes = id(tunnel.dst, None);
    bytes.extend(family(tunnel.dst).to_ne_bytes());
    bytes.resize(TEMPLATE_SRC, 0);
    bytes.extend(address(tunnel.src));
    bytes.extend(tunnel.reqid.to_ne_bytes());
    bytes.extend([TUNNEL, 0, 0, 0]);
    bytes.extend([0xff; 12]);
    bytes
}

/// `struct xfrm_selector`: all packets between two prefixes.
fn selector(policy: &XfrmPolicy) -> Vec<u8> {
    let [src, dst] = [policy.src, policy.dst].map(|net| net.trunc());
    let mut bytes = [address(dst.network()), address(src.network())].concat();
    // Ports.
    bytes.extend([0; 8]);
    bytes.extend(family(dst.network()).to_ne_bytes());
    bytes.extend([dst.prefix_len(), src.prefix_len()]);
    bytes.resize(SELECTOR_BYTES, 0);
    bytes
}

/// `struct xfrm_id`; without a number for one of which any will do.
fn id(dst: IpAddr, spi: Option<Spi>) -> Vec<u8> {
    let number = spi.map_or(0, u32::from);
    [&address(dst)[..], &number.to_be_bytes(), &[esp(), 0, 0, 0]].concat()
}

/// `struct xfrm_lifetime_cfg`: bytes and packets without a limit (`XFRM_INF`), and no limits of time.
fn unlimited() -> Vec<u8> {
    [[0xff; 32], [0; 32]].concat()
}

/// An address as `xfrm_address_t`: 16 bytes, of which IPv4 has the first four.
fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn family(ip: IpAddr) -> u16 {
    let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    family as u16
}

fn esp() -> u8 {
    libc::IPPROTO_ESP as u8
}

/// The number of a direction (`XFRM_POLICY_IN`, `…_OUT`, `…_FWD`).
fn direction(direction: XfrmDirection) -> u8 {
    match direction {
        XfrmDirection::In => 0,
        XfrmDirection::Out => 1,
        XfrmDirection::Forward => 2,
    }
}

fn read_state(bytes: &[u8]) -> Option<XfrmStateInfo> {
    let outer = u16_at(bytes, STATE_FAMILY)?;
    let tunnel = EspTunnel {
        src: read_address(bytes, STATE_SRC, outer)?,
        dst: read_address(bytes, SELECTOR_BYTES, outer)?,
        reqid: u32_at(bytes, STATE_REQID)?,
    };
    let packets = u64::from_ne_bytes(bytes.get(STATE_PACKETS..STATE_PACKETS + 8)?.try_into().ok()?);
    let attributes = Attributes::of(bytes.get(STATE_BYTES..)?);
    // What follows is the key.
    let algorithm = attributes.get(AEAD).and_then(|aead| aead.get(..NAME_BYTES + 8));
    let is_ours = algorithm.is_some_and(|aead| {
        let name = aead[..NAME_BYTES].split(|byte| *byte == 0).next();
        name == Some(ALGORITHM.as_bytes()) && u32_at(aead, NAME_BYTES + 4) == Some(ICV_BITS)
    });
    let flags = BOTH_FAMILIES | LONG_SEQUENCE;
    let is_ours = is_ours && *bytes.get(STATE_MODE)? == TUNNEL && bytes.get(STATE_FLAGS)? & flags == flags;
    Some(XfrmStateInfo { tunnel, packets, is_ours })
}

fn read_policy(bytes: &[u8]) -> Option<XfrmPolicyInfo> {
    let is_allowed = *bytes.get(POLICY_ACTION)? == 0;
    let templates = Attributes::of(bytes.get(POLICY_BYTES..)?).get(TEMPLATES);
    let one = templates.filter(|list| is_allowed && list.len() == TEMPLATE_BYTES);
    Some(XfrmPolicyInfo { tunnel: one.and_then(read_template) })
}

/// `None` for what is not a required tunnel of ESP.
fn read_template(bytes: &[u8]) -> Option<EspTunnel> {
    let rest = [bytes.get(TEMPLATE_PROTOCOL)?, bytes.get(TEMPLATE_MODE)?, bytes.get(TEMPLATE_OPTIONAL)?];
    if rest != [&esp(), &TUNNEL, &0] {
        return None;
    }
    let outer = u16_at(bytes, TEMPLATE_FAMILY)?;
    Some(EspTunnel {
        src: read_address(bytes, TEMPLATE_SRC, outer)?,
        dst: read_address(bytes, 0, outer)?,
        reqid: u32_at(bytes, TEMPLATE_REQID)?,
    })
}

fn read_address(bytes: &[u8], at: usize, family: u16) -> Option<IpAddr> {
    let bytes: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
    match i32::from(family) {
        libc::AF_INET => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(bytes).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;

    use super::*;

    fn tunnel(src: &str, dst: &str) -> EspTunnel {
        EspTunnel { src: src.parse().unwrap(), dst: dst.parse().unwrap(), reqid: 7 }
    }

    fn state(tunnel: EspTunnel) -> XfrmState {
        XfrmState { tunnel, spi: Spi::try_from(0x1234).unwrap() }
    }

    /// What is sent to add one is what the kernel reports of it, but for its key.
    #[test]
    fn an_association_is_read_as_it_is_added() {
        for tunnel in [tunnel("192.0.2.1", "192.0.2.2"), tunnel("2001:db8::1", "2001:db8::2")] {
            let key = EspKey::generate().unwrap();
            let mut bytes = new_state(&state(tunnel), &key);
            assert!(read_state(&bytes).unwrap().is(&state(tunnel)));
            let other = EspTunnel { reqid: 8, ..tunnel };
            assert!(!read_state(&bytes).unwrap().is(&state(other)));
            for (at, was) in [(STATE_MODE, TUNNEL), (STATE_FLAGS, BOTH_FAMILIES | LONG_SEQUENCE)] {
                assert_eq!(std::mem::take(&mut bytes[at]), was);
                assert!(!read_state(&bytes).unwrap().is(&state(tunnel)), "{at}");
                bytes[at] = was;
            }
            // The tag may be shorter, and the algorithm another.
            let name = STATE_BYTES + 4;
            bytes[name + NAME_BYTES + 4] = 96;
            assert!(!read_state(&bytes).unwrap().is(&state(tunnel)));
            assert_eq!(read_state(&bytes[..STATE_BYTES]).unwrap().packets, 0);
            assert_eq!(read_state(&bytes[..STATE_BYTES - 1]), None);
        }
    }

    #[test]
    fn a_policy_is_read_as_it_is_added() {
        let tunnel = tunnel("2001:db8::1", "2001:db8::2");
        let (src, dst): (IpNet, IpNet) = ("0.0.0.0/0".parse().unwrap(), "10.2.0.9/24".parse().unwrap());
        let policy = XfrmPolicy { direction: XfrmDirection::Forward, src, dst, tunnel };
        let mut bytes = new_policy(&policy);
        assert_eq!(read_policy(&bytes).unwrap().tunnel, Some(tunnel));
        assert_eq!(bytes[..4], [10, 2, 0, 0], "a selector has the prefix alone");
        assert_eq!(bytes[POLICY_ACTION - 1], 2);
        let template = POLICY_BYTES + 4;
        bytes[template + TEMPLATE_OPTIONAL] = 1;
        assert_eq!(read_policy(&bytes).unwrap().tunnel, None);
        bytes[template + TEMPLATE_OPTIONAL] = 0;
        bytes[POLICY_ACTION] = 1;
        assert_eq!(read_policy(&bytes).unwrap().tunnel, None);
        assert_eq!(read_policy(&bytes[..10]), None);
    }
}
