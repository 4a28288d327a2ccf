//! Peers of WireGuard devices.

use ipnet::IpNet;
use linux::netlink::{WireGuardDevice, WireGuardPeerInfo};
use linux::{IfName, WireGuardPeer};

use super::object::Object;
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::lack::{Lack, LackedPart};
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{inside, word};
use crate::{Place, Step};

impl Object for &WireGuardPeer {
    fn dev(&self) -> Option<&IfName> {
        Some(&self.dev)
    }

    fn look(&self, opened: &OpenNetns, listing: &Listing, index: u32) -> Result<StepState, StepError> {
        let state = |device: &WireGuardDevice| match device.peers.get(&self.key) {
            None => StepState::Absent,
            Some(found) => StepState::of(found.is(self), || another(self, found)),
        };
        let found = listing.wireguard(opened, (&self.dev, index), Some(&self.key), state)?;
        Ok(found.unwrap_or(StepState::Absent))
    }

    fn add(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError> {
        let is_own = |device: &WireGuardDevice| device.public == Some(self.key);
        if Listing::of_run().wireguard(opened, (&self.dev, index), None, is_own)? == Some(true) {
            let why = format!("link {} has the key {} itself, and is no peer of its own", self.dev, self.key);
            return Err(StepError::Refused { why });
        }
        opened.devices.note_change(index, self.key);
        Ok(opened.wireguard()?.set_peer(self)?)
    }

    fn remove(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError> {
        opened.devices.note_change(index, self.key);
        Ok(opened.wireguard()?.remove_peer(&self.dev, self.key)?)
    }

    /// The kernel takes a peer as it is given or says why not (`set_peer` in drivers/net/wireguard/netlink.c), but for
    /// one with the device's own key, which it leaves out without a word. To read one back it would list all.
    fn is_read_back(&self) -> bool {
        false
    }

    fn is_listed(&self) -> bool {
        false
    }

    /// A key is once at a device.
    fn slot(&self) -> String {
        self.removal(&Place::Host)
    }

    /// A peer that is changed in its place keeps its session with the other end.
    fn adapts(&self, earlier: &Step) -> bool {
        matches!(earlier, Step::AddWireGuardPeer(earlier) if (&earlier.dev, earlier.key) == (&self.dev, self.key))
    }

    fn lack(&self) -> Option<Lack> {
        let allowed: Vec<String> = self.allowed.iter().map(ToString::to_string).collect();
        let words = format!("{} has no peer {} with {}", self.dev, self.key, allowed.join(", "));
        Some(Lack { part: LackedPart::TunnelPeer, address: Some(self.endpoint.ip()), words })
    }

    fn subject(&self) -> String {
        format!("peer {} of link {}", self.key, self.dev)
    }

    fn command(&self, place: &Place) -> String {
        let WireGuardPeer { dev, key, endpoint, allowed, keepalive_s } = self;
        let mut text =
            format!("wg set {} peer {key} endpoint {endpoint} allowed-ips {}", word(dev), list(allowed));
        if *keepalive_s > 0 {
            text += &format!(" persistent-keepalive {keepalive_s}");
        }
        inside(place, &text)
    }

    fn removal(&self, place: &Place) -> String {
        inside(place, &format!("wg set {} peer {} remove", word(&self.dev), self.key))
    }
}

/// What a peer is like, where it is not as it should be.
fn another(peer: &WireGuardPeer, found: &WireGuardPeerInfo) -> String {
    let allowed = if found.allowed.is_empty() { "no prefix".to_owned() } else { list(&found.allowed) };
    format!("peer {} with {allowed} and a keepalive of {} s", peer.key, found.keepalive_s)
}

fn list(prefixes: &[IpNet]) -> String {
    prefixes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
