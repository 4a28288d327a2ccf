//! Virtual functions of a card, as the switch in the card is told about them through the card's own link.

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkVfInfo, VfInfo, VfInfoSpoofCheck, VfInfoVlan,
};
use serde::{Deserialize, Serialize};

use super::Netlink;
use super::link_message::indexed;
use crate::Result;

/// What the switch of a card holds a virtual function to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionRules {
    /// The VLAN to which its frames belong, 1 to 4094; it sees no tag. 0: it sends frames with tags or without.
    pub vlan: u16,
    /// Frames with another source address than its own are dropped.
    pub spoof_check: bool,
}

impl Netlink {
    /// The rules for a virtual function of a card; `None` if the card has no such function.
    pub fn function(&self, card: u32, number: u32) -> Result<Option<FunctionRules>> {
        let attempted = format!("look at virtual function {number} of link {card}");
        let mut message = indexed(card);
        let mask = vec![LinkExtentMask::Vf, LinkExtentMask::SkipStats];
        message.attributes.push(LinkAttribute::ExtMask(mask));
        let answer = self.get(Message::GetLink(message)).map_err(|error| self.error(attempted, error))?;
        let attributes: &[LinkAttribute] = match &answer {
            Message::NewLink(link) => &link.attributes,
            _ => &[],
        };
        let functions = attributes.iter().flat_map(|attribute| match attribute {
            LinkAttribute::VfInfoList(list) => list.as_slice(),
            _ => &[],
        });
        Ok(functions.filter_map(|function| read(function, number)).next())
    }

    /// Sets those that differ, so that a driver that knows but one of them is asked for no other. `EOPNOTSUPP` where it does
    /// not know one that differs. A VLAN is set without a priority, as 802.1Q.
    pub fn function_set(&self, card: u32, number: u32, rules: FunctionRules) -> Result<()> {
        let FunctionRules { vlan, spoof_check } = rules;
        let now = self.function(card, number)?;
        let mut changes = Vec::new();
        if now.is_none_or(|now| now.vlan != vlan) {
            changes.push(VfInfo::Vlan(VfInfoVlan::new(number, vlan.into(), 0)));
        }
        if now.is_none_or(|now| now.spoof_check != spoof_check) {
            changes.push(VfInfo::SpoofCheck(VfInfoSpoofCheck::new(number, spoof_check)));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let mut message = indexed(card);
        message.attributes.push(LinkAttribute::VfInfoList(vec![LinkVfInfo(changes)]));
        let attempted = format!("set VLAN {vlan} and the check for virtual function {number} of link {card}");
        self.change(Message::SetLink(message), 0, attempted)
    }
}

/// The rules, if it is the function of that number.
fn read(function: &LinkVfInfo, number: u32) -> Option<FunctionRules> {
    let vlan = function.0.iter().find_map(|info| match info {
        VfInfo::Vlan(vlan) if vlan.vf_id == number => u16::try_from(vlan.vlan_id).ok(),
        _ => None,
    })?;
    let spoof_check = function.0.iter().find_map(|info| match info {
        VfInfo::SpoofCheck(check) if check.vf_id == number => Some(check.enabled),
        _ => None,
    })?;
    Some(FunctionRules { vlan, spoof_check })
}
