//! The identity of a WireGuard device: its private key, and the port on which it listens.

use std::path::PathBuf;

use linux::netlink::WireGuardDevice;
use linux::{IfName, PrivateKey, PublicKey};
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::Place;
use crate::error::StepError;
use crate::lack::{Lack, LackedPart};
use crate::show::{inside, quoted, word};

/// Give a WireGuard device the private key that a file holds, and its port.
///
/// The key is read from the file when the device gets it. Plans, journals and commands have the file's name and the
/// public key: by that one, which the kernel gives too, they know whether the device still has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetWireGuard {
    /// The name of the device.
    pub link: IfName,
    /// The file with the private key, as `wg genkey` writes one.
    pub key_file: PathBuf,
    /// The public key that belongs to it.
    pub public: PublicKey,
    /// The UDP port on which it listens.
    pub port: u16,
}

/// What a device is to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireGuardEnd {
    /// Its public key; `None`: it has no private one.
    pub public: Option<PublicKey>,
    /// Its UDP port; 0: none yet.
    pub port: u16,
}

impl Register for SetWireGuard {
    type Value = WireGuardEnd;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<WireGuardEnd>, StepError> {
        let end = |device: &WireGuardDevice| WireGuardEnd { public: device.public, port: device.port };
        let link = at.link();
        Ok(at.listing.wireguard(at.opened, (&link.name, link.index), None, end)?)
    }

    fn write(&self, at: &At<'_>, end: &WireGuardEnd) -> Result<(), StepError> {
        let (wireguard, link) = (at.opened.wireguard()?, &at.link().name);
        at.opened.devices.forget(at.link().index);
        if end.public.is_none() {
            return Ok(wireguard.clear_key(link, end.port)?);
        }
        let key = PrivateKey::read(&self.key_file)?;
        if let Some(public) = end.public.filter(|public| *public != key.public()) {
            let file = self.key_file.display();
            let why = format!("the private key in {file} does not belong to the public key {public}");
            return Err(StepError::Refused { why });
        }
        Ok(wireguard.set_key(link, &key, end.port)?)
    }

    fn wanted(&self, _: &WireGuardEnd) -> WireGuardEnd {
        WireGuardEnd { public: Some(self.public), port: self.port }
    }

    fn subject(&self) -> String {
        format!("the key of link {}", self.link)
    }

    fn words(&self, end: &WireGuardEnd) -> String {
        match end.public {
            Some(public) => format!("public key {public} at port {}", end.port),
            None if end.port == 0 => "none".to_owned(),
            None => format!("none, at port {}", end.port),
        }
    }

    fn command(&self, place: &Place) -> String {
        let file = quoted(&self.key_file.to_string_lossy());
        let set = format!("wg set {} listen-port {} private-key {file}", word(&self.link), self.port);
        inside(place, &set)
    }

    /// A key that is not in the file could not be given back.
    fn refusal(&self, _: &At<'_>, was: &WireGuardEnd) -> Result<Option<String>, StepError> {
        let other = was.public.filter(|public| *public != self.public);
        Ok(other.map(|public| {
            format!(
                "link {} has a key already, whose public one is {public}, and it could not be given back",
                self.link
            )
        }))
    }

    fn lack(&self) -> Option<Lack> {
        let SetWireGuard { link, public, port, .. } = self;
        let words = format!("{link} does not have the key {public} and port {port}");
        Some(Lack { part: LackedPart::TunnelKey, address: None, words })
    }

    fn missing(&self) -> StepError {
        StepError::Refused { why: format!("link {} is no WireGuard device", self.link) }
    }
}
