//! The keys of flannel's backend `wireguard`.

use datapath::Family;
use serde_json::{Map, Value};

use super::{NetworkError, read};

/// flannel's ports of tunnels over IPv4 and over IPv6.
const PORT: u16 = 51820;
const PORT_V6: u16 = 51821;
/// The keys of `Backend` that only this one has.
pub(super) const KEYS: [&str; 5] =
    ["ListenPort", "ListenPortV6", "PSK", "PersistentKeepaliveInterval", "Mode"];

/// How the tunnels of `wireguard` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireGuardConfig {
    /// Which tunnels there are (`Mode`).
    pub mode: Mode,
    /// The UDP port of the tunnel over IPv4, or of the only one (`ListenPort`).
    pub port: u16,
    /// The UDP port of the tunnel over IPv6, where there is one of each (`ListenPortV6`).
    pub port_v6: u16,
    /// After how many silent seconds another node is sent an empty packet (`PersistentKeepaliveInterval`); 0: never.
    pub keepalive_s: u16,
    /// Whether nodes share a secret beside their keys (`PSK`). It is not kept here.
    pub has_preshared_key: bool,
}

/// Which tunnels a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One for each family of pods, over that family.
    Separate,
    /// One for both, over the family by which the other node is likelier to be reached.
    Auto,
    /// One for both, over IPv4.
    Ipv4,
    /// One for both, over IPv6.
    Ipv6,
}

impl WireGuardConfig {
    pub(super) fn parse(backend: &Map<String, Value>) -> Result<WireGuardConfig, NetworkError> {
        let number = |key, expected| {
            let number = |value: &Value| u16::try_from(value.as_u64()?).ok();
            read(backend, "Backend.", key, expected, number)
        };
        let port = |key, usual| {
            let port = number(key, "a port from 0 to 65535")?.filter(|port| *port > 0);
            Ok(port.unwrap_or(usual))
        };
        let mode = read(backend, "Backend.", "Mode", "separate, auto, ipv4 or ipv6", |value| {
            Some(match value.as_str()? {
                "separate" => Mode::Separate,
                "auto" => Mode::Auto,
                "ipv4" => Mode::Ipv4,
                "ipv6" => Mode::Ipv6,
                _ => return None,
            })
        })?;
        let has_preshared_key = super::field(backend, "PSK").is_some_and(|key| key.as_str() != Some(""));
        Ok(WireGuardConfig {
            mode: mode.unwrap_or(Mode::Separate),
            port: port("ListenPort", PORT)?,
            port_v6: port("ListenPortV6", PORT_V6)?,
            keepalive_s: number("PersistentKeepaliveInterval", "seconds from 0 to 65535")?.unwrap_or(0),
            has_preshared_key,
        })
    }

    /// The port of the tunnel over a family.
    pub(crate) fn port_over(&self, outer: Family) -> u16 {
        match (self.mode, outer) {
            (Mode::Separate, Family::V6) => self.port_v6,
            (Mode::Separate, Family::V4) | (Mode::Auto | Mode::Ipv4 | Mode::Ipv6, _) => self.port,
        }
    }
}
