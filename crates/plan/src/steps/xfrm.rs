//! IPsec: security associations and policies.

use std::path::Path;

use linux::netlink::XfrmPolicyInfo;
use linux::{EspKey, EspTunnel, XfrmPolicy, XfrmState};

use super::object::Object;
use crate::Place;
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{Tool, quoted};

/// An association, and the file of its key. The key is read from the file when the kernel gets it. Plans, journals and
/// commands have the file's name; whether the kernel still has the association they know by its number.
pub(super) struct KeyedState<'s> {
    pub(super) state: &'s XfrmState,
    pub(super) key_file: &'s Path,
}

impl Object for KeyedState<'_> {
    fn look(&self, opened: &OpenNetns, _: &Listing, _: u32) -> Result<StepState, StepError> {
        let found = opened.xfrm()?.state(self.state)?;
        Ok(found.map_or(StepState::Absent, |found| {
            StepState::of(found.is(self.state), || {
                format!("another association {} from {}", self.state.spi, found.tunnel.src)
            })
        }))
    }

    fn add(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        let key = EspKey::read(self.key_file)?;
        Ok(opened.xfrm()?.state_add(self.state, &key)?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.xfrm()?.state_del(self.state)?)
    }

    fn is_listed(&self) -> bool {
        false
    }

    /// A destination has a number once.
    fn slot(&self) -> String {
        self.removal(&Place::Host)
    }

    fn subject(&self) -> String {
        format!("association {} to {}", self.state.spi, self.state.tunnel.dst)
    }

    /// The shell reads the key from its file.
    fn command(&self, place: &Place) -> String {
        let XfrmState { tunnel: EspTunnel { src, dst, reqid }, spi } = self.state;
        let key = format!("\"$(cat {})\"", quoted(&self.key_file.to_string_lossy()));
        Tool("ip", place).run(&format!(
            "xfrm state add src {src} dst {dst} proto esp spi {spi} reqid {reqid} mode tunnel replay-window 1024 \
             flag af-unspec flag esn aead 'rfc4106(gcm(aes))' {key} 128"
        ))
    }

    fn removal(&self, place: &Place) -> String {
        let XfrmState { tunnel, spi } = self.state;
        Tool("ip", place).run(&format!("xfrm state delete dst {} proto esp spi {spi}", tunnel.dst))
    }
}

impl Object for &XfrmPolicy {
    fn look(&self, opened: &OpenNetns, _: &Listing, _: u32) -> Result<StepState, StepError> {
        let found = opened.xfrm()?.policy(self)?;
        Ok(found.map_or(StepState::Absent, |found| {
            StepState::of(found.tunnel == Some(self.tunnel), || another(self, &found))
        }))
    }

    fn add(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.xfrm()?.policy_add(self)?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.xfrm()?.policy_del(self)?)
    }

    fn is_listed(&self) -> bool {
        false
    }

    /// There is one for the same packets in a direction.
    fn slot(&self) -> String {
        self.removal(&Place::Host)
    }

    fn subject(&self) -> String {
        packets(self)
    }

    fn command(&self, place: &Place) -> String {
        let XfrmPolicy { direction, src, dst, tunnel } = self;
        let EspTunnel { src: begin, dst: end, reqid } = tunnel;
        Tool("ip", place).run(&format!(
            "xfrm policy add src {src} dst {dst} dir {} tmpl src {begin} dst {end} proto esp reqid {reqid} mode tunnel",
            direction.name()
        ))
    }

    fn removal(&self, place: &Place) -> String {
        let XfrmPolicy { direction, src, dst, .. } = self;
        Tool("ip", place).run(&format!("xfrm policy delete src {src} dst {dst} dir {}", direction.name()))
    }
}

/// What a policy is like, where it is not as it should be.
fn another(policy: &XfrmPolicy, found: &XfrmPolicyInfo) -> String {
    let packets = packets(policy);
    match found.tunnel {
        Some(EspTunnel { src, dst, reqid }) => {
            format!("{packets} with a tunnel from {src} to {dst} of reqid {reqid}")
        }
        None => format!("{packets} without such a tunnel"),
    }
}

fn packets(XfrmPolicy { direction, src, dst, .. }: &XfrmPolicy) -> String {
    format!("the {} policy from {src} to {dst}", direction.name())
}
