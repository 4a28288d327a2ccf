//! WireGuard devices: the key and the port of a device, and its peers.
//!
//! Source: include/uapi/linux/wireguard.h. The package netlink-packet-wireguard has the same messages. It brings a
//! second form of generic netlink beside [`Generic`], and its messages print private keys.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use serde::Serialize;

use super::{Attributes, Generic, MessageBody};
use crate::wireguard::KEY_BYTES;
use crate::{Error, IfName, Netns, PrivateKey, PublicKey, Result, WireGuardPeer};

/// Commands (`enum wg_cmd` of include/uapi/linux/wireguard.h).
const GET_DEVICE: u8 = 0;
const SET_DEVICE: u8 = 1;
/// Attributes of a device.
const DEVICE_NAME: u16 = 2;
const DEVICE_PRIVATE_KEY: u16 = 3;
const DEVICE_PUBLIC_KEY: u16 = 4;
const DEVICE_PORT: u16 = 6;
const DEVICE_PEERS: u16 = 8;
/// Attributes of a peer, and the flags that a change of it may have.
const PEER_KEY: u16 = 1;
const PEER_FLAGS: u16 = 3;
const PEER_ENDPOINT: u16 = 4;
const PEER_KEEPALIVE: u16 = 5;
const PEER_HANDSHAKE: u16 = 6;
const PEER_ALLOWED: u16 = 9;
const REMOVE: u32 = 1;
const REPLACE_ALLOWED: u32 = 2;
const UPDATE_ONLY: u32 = 4;
/// Attributes of an allowed prefix.
const ALLOWED_FAMILY: u16 = 1;
const ALLOWED_ADDRESS: u16 = 2;
const ALLOWED_LENGTH: u16 = 3;
/// Lists have no attribute numbers of their own.
const ENTRY: u16 = 0;
/// So many prefixes fit into one message: a list has at most 65,531 bytes, of which an IPv6 prefix takes 40.
const PREFIXES_MAX: usize = 1500;

/// The WireGuard devices of a namespace.
#[derive(Debug)]
pub struct WireGuard {
    generic: Generic,
    place: String,
}

/// A device as the kernel reports it, without its private key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct WireGuardDevice {
    /// The key that belongs to its private key; `None` where it has none.
    pub public: Option<PublicKey>,
    /// The UDP port on which it listens; 0: none was chosen yet.
    pub port: u16,
    /// The peers by their public keys.
    pub peers: BTreeMap<PublicKey, WireGuardPeerInfo>,
}

/// A peer as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct WireGuardPeerInfo {
    /// Where its packets are sent: what was configured, or where it was last heard from.
    pub endpoint: Option<SocketAddr>,
    /// The prefixes that are its, sorted.
    pub allowed: Vec<IpNet>,
    /// Seconds between empty packets, as in [`WireGuardPeer::keepalive_s`]; 0: never.
    pub keepalive_s: u16,
    /// When both ends last agreed on a session, in seconds since 1970: each then knew the other's key. `None`: never
    /// since the peer was added.
    pub handshake_s: Option<u64>,
}

impl WireGuard {
    /// Those of a namespace. `ENOENT` if the kernel has no WireGuard.
    pub fn open_in(netns: &Netns) -> Result<WireGuard> {
        let generic = netns.run(|| Generic::open("wireguard"))??;
        Ok(WireGuard { generic, place: netns.describe() })
    }

    /// A device with all its peers. `ENODEV` if there is no such link, `EOPNOTSUPP` if it is of another kind.
    pub fn device(&self, link: &IfName) -> Result<WireGuardDevice> {
        let attempted = || format!("read WireGuard device {link} in {}", self.place);
        let answers = self.generic.dump(GET_DEVICE, &about(link));
        let answers = answers.map_err(|error| Error::new(attempted(), error))?;
        let mut device = WireGuardDevice::default();
        for answer in &answers {
            device
                .take(Attributes::of(answer))
                .ok_or_else(|| Error::invalid(attempted(), "the kernel's answer was not understood"))?;
        }
        for peer in device.peers.values_mut() {
            peer.allowed.sort_unstable();
        }
        Ok(device)
    }

    /// Gives a device its private key and its port. `EADDRINUSE` if the device is up and the port is taken.
    pub fn set_key(&self, link: &IfName, key: &PrivateKey, port: u16) -> Result<()> {
        self.set_identity(link, key.bytes(), port, "give a key to")
    }

    /// Takes the private key from a device, and gives it the port that it had without one; 0: none.
    pub fn clear_key(&self, link: &IfName, port: u16) -> Result<()> {
        self.set_identity(link, &[0; KEY_BYTES], port, "take the key from")
    }

    fn set_identity(&self, link: &IfName, key: &[u8; KEY_BYTES], port: u16, verb: &str) -> Result<()> {
        let mut request = about(link);
        request.put(DEVICE_PRIVATE_KEY, key);
        request.put(DEVICE_PORT, &port.to_ne_bytes());
        self.set(&request, || format!("{verb} WireGuard device {link}"))
    }

    /// Adds a peer, or gives the one that has the key these properties. A prefix that another peer of the device has is
    /// taken from that one. More than 1,500 prefixes come one after the other, in several messages.
    pub fn set_peer(&self, peer: &WireGuardPeer) -> Result<()> {
        let attempted = || format!("add peer {} to WireGuard device {}", peer.key, peer.dev);
        messages_of(peer).iter().try_for_each(|message| self.set(message, attempted))
    }

    /// Removes a peer. No error if there is none of the key.
    pub fn remove_peer(&self, dev: &IfName, key: PublicKey) -> Result<()> {
        let mut about_peer = MessageBody::default();
        about_peer.put(PEER_KEY, &key.0);
        about_peer.put_u32(PEER_FLAGS, REMOVE | UPDATE_ONLY);
        self.set(&with_peer(dev, &about_peer), || format!("remove peer {key} from WireGuard device {dev}"))
    }

    fn set(&self, request: &MessageBody, attempted: impl FnOnce() -> String) -> Result<()> {
        let sent = self.generic.call(SET_DEVICE, request).map(drop);
        sent.map_err(|error| Error::new(format!("{} in {}", attempted(), self.place), error))
    }
}

impl WireGuardDevice {
    /// Adds what one message says. A long list of peers, or of a peer's prefixes, goes on in the next message.
    fn take(&mut self, attributes: Attributes<'_>) -> Option<()> {
        if let Some(key) = attributes.get(DEVICE_PUBLIC_KEY) {
            self.public = Some(PublicKey(key.try_into().ok()?));
        }
        if let Some(port) = attributes.get(DEVICE_PORT) {
            self.port = u16::from_ne_bytes(port.try_into().ok()?);
        }
        for (_, peer) in attributes.within(DEVICE_PEERS).iter() {
            let peer = Attributes::of(peer);
            let key = PublicKey(peer.get(PEER_KEY)?.try_into().ok()?);
            self.peers.entry(key).or_default().take(peer)?;
        }
        Some(())
    }
}

impl WireGuardPeerInfo {
    /// Whether it is as a configured one. Where it is now does not count: WireGuard follows a peer that is heard from
    /// elsewhere.
    pub fn is(&self, peer: &WireGuardPeer) -> bool {
        let mut allowed: Vec<IpNet> = peer.allowed.iter().map(IpNet::trunc).collect();
        allowed.sort_unstable();
        allowed.dedup();
        self.allowed == allowed && self.keepalive_s == peer.keepalive_s
    }

    fn take(&mut self, peer: Attributes<'_>) -> Option<()> {
        if let Some(endpoint) = peer.get(PEER_ENDPOINT) {
            self.endpoint = Some(read_sockaddr(endpoint)?);
        }
        if let Some(seconds) = peer.get(PEER_KEEPALIVE) {
            self.keepalive_s = u16::from_ne_bytes(seconds.try_into().ok()?);
        }
        if let Some(time) = peer.get(PEER_HANDSHAKE) {
            // `struct __kernel_timespec`, which is zero for never.
            let seconds = i64::from_ne_bytes(time.get(..8)?.try_into().ok()?);
            self.handshake_s = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        }
        for (_, prefix) in peer.within(PEER_ALLOWED).iter() {
            self.allowed.push(read_allowed(Attributes::of(prefix))?);
        }
        Some(())
    }
}

/// A request about a device.
fn about(link: &IfName) -> MessageBody {
    let mut request = MessageBody::default();
    request.put(DEVICE_NAME, &[link.as_str().as_bytes(), &[0]].concat());
    request
}

fn with_peer(dev: &IfName, about_peer: &MessageBody) -> MessageBody {
    let mut peers = MessageBody::default();
    peers.nest(ENTRY, about_peer);
    let mut request = about(dev);
    request.nest(DEVICE_PEERS, &peers);
    request
}

/// What makes a peer. A list of prefixes that does not fit into the first message goes on in others.
fn messages_of(peer: &WireGuardPeer) -> Vec<MessageBody> {
    let WireGuardPeer { dev, key, endpoint, allowed, keepalive_s } = peer;
    let mut parts = allowed.chunks(PREFIXES_MAX);
    let mut whole = MessageBody::default();
    whole.put(PEER_KEY, &key.0);
    whole.put_u32(PEER_FLAGS, REPLACE_ALLOWED);
    whole.put(PEER_ENDPOINT, &sockaddr(*endpoint));
    whole.put(PEER_KEEPALIVE, &keepalive_s.to_ne_bytes());
    put_prefixes(&mut whole, parts.next().unwrap_or_default());
    let mut messages = vec![with_peer(dev, &whole)];
    for part in parts {
        let mut more = MessageBody::default();
        more.put(PEER_KEY, &key.0);
        more.put_u32(PEER_FLAGS, UPDATE_ONLY);
        put_prefixes(&mut more, part);
        messages.push(with_peer(dev, &more));
    }
    messages
}

fn put_prefixes(about_peer: &mut MessageBody, allowed: &[IpNet]) {
    let mut prefixes = MessageBody::default();
    for prefix in allowed {
        prefixes.nest(ENTRY, &allowed_prefix(prefix));
    }
    about_peer.nest(PEER_ALLOWED, &prefixes);
}

fn allowed_prefix(prefix: &IpNet) -> MessageBody {
    let (family, bytes) = match prefix.network() {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let mut request = MessageBody::default();
    request.put(ALLOWED_FAMILY, &(family as u16).to_ne_bytes());
    request.put(ALLOWED_ADDRESS, &bytes);
    request.put(ALLOWED_LENGTH, &[prefix.prefix_len()]);
    request
}

fn read_allowed(prefix: Attributes<'_>) -> Option<IpNet> {
    let [length] = prefix.get(ALLOWED_LENGTH)? else { return None };
    IpNet::new(read_ip(prefix.get(ALLOWED_ADDRESS)?)?, *length).ok()
}

fn read_ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

/// `struct sockaddr_in`, or `struct sockaddr_in6`.
fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address {
        SocketAddr::V4(v4) => {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            [&family[..], &port, &v4.ip().octets(), &[0; 8]].concat()
        }
        SocketAddr::V6(v6) => {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            let (flow, scope) = (v6.flowinfo().to_ne_bytes(), v6.scope_id().to_ne_bytes());
            [&family[..], &port, &flow, &v6.ip().octets(), &scope].concat()
        }
    }
}

fn read_sockaddr(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip = match bytes.len() {
        16 => read_ip(&bytes[4..8])?,
        28 => read_ip(&bytes[8..24])?,
        _ => return None,
    };
    Some((ip, port).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> PublicKey {
        PublicKey([byte; KEY_BYTES])
    }

    /// A message about a device with one peer.
    fn message(peer: u8, allowed: &[&str], endpoint: Option<&str>) -> MessageBody {
        let mut about_peer = MessageBody::default();
        about_peer.put(PEER_KEY, &key(peer).0);
        if let Some(endpoint) = endpoint {
            about_peer.put(PEER_ENDPOINT, &sockaddr(endpoint.parse().unwrap()));
        }
        let allowed: Vec<IpNet> = allowed.iter().map(|prefix| prefix.parse().unwrap()).collect();
        put_prefixes(&mut about_peer, &allowed);
        with_peer(&IfName::new("hgwg1").unwrap(), &about_peer)
    }

    #[test]
    fn a_peer_whose_list_goes_on_in_the_next_message_is_one() {
        let mut device = WireGuardDevice::default();
        let messages = [
            message(1, &["10.1.0.0/24"], Some("[2001:db8::1]:51820")),
            message(1, &["fd00:1::/64"], None),
            message(2, &["10.2.0.0/24"], Some("192.0.2.2:51821")),
        ];
        for message in &messages {
            device.take(Attributes::of(message.bytes())).unwrap();
        }
        assert_eq!(device.peers.keys().copied().collect::<Vec<_>>(), [key(1), key(2)]);
        let peer = WireGuardPeer {
            dev: IfName::new("hgwg1").unwrap(),
            key: key(1),
            endpoint: "[2001:db8::1]:51820".parse().unwrap(),
            allowed: vec!["fd00:1::/64".parse().unwrap(), "10.1.0.7/24".parse().unwrap()],
            keepalive_s: 0,
        };
        let found = device.peers.get_mut(&key(1)).unwrap();
        found.allowed.sort_unstable();
        assert_eq!(found.endpoint, Some(peer.endpoint));
        assert!(found.is(&peer), "{found:?}");
        assert!(!found.is(&WireGuardPeer { keepalive_s: 25, ..peer }));
        assert_eq!(device.peers[&key(2)].endpoint.unwrap().to_string(), "192.0.2.2:51821");
    }

    #[test]
    fn a_list_of_prefixes_that_is_too_long_for_a_message_goes_in_several() {
        let net = |at: u16| IpNet::new(IpAddr::from([0xfd00, at, 0, 0, 0, 0, 0, 0]), 64).unwrap();
        let mut peer = WireGuardPeer {
            dev: IfName::new("hgwg1").unwrap(),
            key: key(1),
            endpoint: "192.0.2.2:51820".parse().unwrap(),
            allowed: (0..3001).map(net).collect(),
            keepalive_s: 25,
        };
        let messages = messages_of(&peer);
        let flags = |message: &MessageBody| {
            let peers = Attributes::of(message.bytes()).within(DEVICE_PEERS);
            peers.within(ENTRY).number(PEER_FLAGS)
        };
        let of_all: Vec<_> = messages.iter().map(flags).collect();
        assert_eq!(of_all, [Some(REPLACE_ALLOWED), Some(UPDATE_ONLY), Some(UPDATE_ONLY)]);
        let mut device = WireGuardDevice::default();
        for message in &messages {
            device.take(Attributes::of(message.bytes())).unwrap();
        }
        let found = device.peers.get_mut(&key(1)).unwrap();
        found.allowed.sort_unstable();
        assert!(found.is(&peer), "{found:?}");
        peer.allowed.clear();
        assert_eq!(messages_of(&peer).iter().map(flags).collect::<Vec<_>>(), [Some(REPLACE_ALLOWED)]);
    }

    #[test]
    fn a_truncated_answer_is_an_error() {
        let mut peers = MessageBody::default();
        peers.nest(ENTRY, &MessageBody::default());
        let mut request = MessageBody::default();
        request.nest(DEVICE_PEERS, &peers);
        assert_eq!(WireGuardDevice::default().take(Attributes::of(request.bytes())), None);
        assert_eq!(read_sockaddr(&[2, 0, 1]), None);
    }
}
