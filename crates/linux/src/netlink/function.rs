//! Virtual functions of a card, set at the switch in the card through the card's own link.

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkVfInfo, VfInfo, VfInfoSpoofCheck, VfInfoVlan, VfVlan, VfVlanInfo,
    VlanProtocol,
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
    /// The priority in the tags that it does not see, 0 to 7. The kernel always says it; `None` leaves it as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Those tags are of 802.1ad and not of 802.1Q: the function may have tags of its own behind them.
    #[serde(default)]
    pub service_tag: bool,
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

    /// Sets those that differ, so that a driver that knows but one of them is asked for no other. `EOPNOTSUPP` where it
    /// does not know one that differs, `EPROTONOSUPPORT` where it has no tags of 802.1ad.
    pub fn function_set(&self, card: u32, number: u32, rules: FunctionRules) -> Result<()> {
        let now = self.function(card, number)?;
        let priority = rules.priority.or(now.and_then(|now| now.priority));
        let rules = FunctionRules { priority, ..rules };
        let mut changes = Vec::new();
        if now.is_none_or(|now| now.tag() != rules.tag()) {
            changes.push(rules.vlan_change(number));
        }
        if now.is_none_or(|now| now.spoof_check != rules.spoof_check) {
            changes.push(VfInfo::SpoofCheck(VfInfoSpoofCheck::new(number, rules.spoof_check)));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let mut message = indexed(card);
        message.attributes.push(LinkAttribute::VfInfoList(vec![LinkVfInfo(changes)]));
        let vlan = rules.vlan;
        let attempted = format!("set VLAN {vlan} and the check for virtual function {number} of link {card}");
        self.change(Message::SetLink(message), 0, attempted)
    }
}

impl FunctionRules {
    /// Whether both can be the rules of one function: a priority that one of them leaves open may be the other's.
    pub fn is_same(&self, other: &FunctionRules) -> bool {
        let priority = self.priority.or(other.priority);
        FunctionRules { priority, ..*self }
            == FunctionRules { priority: other.priority.or(priority), ..*other }
    }

    /// What its frames are tagged with.
    fn tag(&self) -> (u16, Option<u8>, bool) {
        (self.vlan, self.priority, self.service_tag)
    }

    /// Tags of 802.1ad are asked for by an attribute that not every kernel has had (`IFLA_VF_VLAN_LIST`, Linux 4.9);
    /// others by the older one.
    fn vlan_change(&self, number: u32) -> VfInfo {
        let (vlan, priority) = (self.vlan.into(), self.priority.unwrap_or(0).into());
        match self.service_tag {
            false => VfInfo::Vlan(VfInfoVlan::new(number, vlan, priority)),
            true => {
                let tag = VfVlanInfo::new(number, vlan, priority, VlanProtocol::Ieee8021Ad);
                VfInfo::VlanList(vec![VfVlan::Info(tag)])
            }
        }
    }
}

/// The rules, if it is the function of that number.
fn read(function: &LinkVfInfo, number: u32) -> Option<FunctionRules> {
    let (vlan, priority) = function.0.iter().find_map(|info| match info {
        VfInfo::Vlan(vlan) if vlan.vf_id == number => {
            Some((u16::try_from(vlan.vlan_id).ok()?, u8::try_from(vlan.qos).ok()?))
        }
        _ => None,
    })?;
    let tags = function.0.iter().filter_map(|info| match info {
        VfInfo::VlanList(tags) => Some(tags.as_slice()),
        _ => None,
    });
    let is_service =
        |tag: &VfVlan| matches!(tag, VfVlan::Info(tag) if tag.protocol == VlanProtocol::Ieee8021Ad);
    let service_tag = tags.flatten().any(is_service);
    let spoof_check = function.0.iter().find_map(|info| match info {
        VfInfo::SpoofCheck(check) if check.vf_id == number => Some(check.enabled),
        _ => None,
    })?;
    Some(FunctionRules { vlan, priority: Some(priority), service_tag, spoof_check })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of a kernel about a function, and what is asked of it to have that again.
    #[track_caller]
    fn check(rules: FunctionRules) {
        let protocol = match rules.service_tag {
            true => VlanProtocol::Ieee8021Ad,
            false => VlanProtocol::Ieee8021Q,
        };
        let (vlan, priority) = (rules.vlan.into(), rules.priority.unwrap().into());
        let answer = LinkVfInfo(vec![
            VfInfo::Vlan(VfInfoVlan::new(3, vlan, priority)),
            VfInfo::SpoofCheck(VfInfoSpoofCheck::new(3, rules.spoof_check)),
            VfInfo::VlanList(vec![VfVlan::Info(VfVlanInfo::new(3, vlan, priority, protocol))]),
        ]);
        assert_eq!(read(&answer, 3), Some(rules));
        assert_eq!(read(&answer, 2), None);
        let asked = match rules.vlan_change(3) {
            VfInfo::Vlan(tag) => (tag.vlan_id, tag.qos, VlanProtocol::Ieee8021Q),
            VfInfo::VlanList(tags) => match tags.as_slice() {
                [VfVlan::Info(tag)] => (tag.vlan_id, tag.qos, tag.protocol),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!(asked, (vlan, priority, protocol));
    }

    #[test]
    fn priority_and_protocol_of_a_tag_are_read_and_asked_for() {
        check(FunctionRules { vlan: 0, priority: Some(0), service_tag: false, spoof_check: true });
        check(FunctionRules { vlan: 7, priority: Some(5), service_tag: false, spoof_check: false });
        check(FunctionRules { vlan: 4094, priority: Some(7), service_tag: true, spoof_check: true });
    }

    #[test]
    fn a_priority_that_is_left_open_is_any() {
        let of = |priority| FunctionRules { vlan: 7, priority, service_tag: false, spoof_check: true };
        assert!(of(None).is_same(&of(Some(3))) && of(Some(3)).is_same(&of(None)));
        assert!(of(Some(3)).is_same(&of(Some(3))) && !of(Some(3)).is_same(&of(Some(0))));
        assert!(!of(None).is_same(&FunctionRules { vlan: 8, ..of(None) }));
        let early: FunctionRules = serde_json::from_str(r#"{"vlan":7,"spoof_check":true}"#).unwrap();
        assert_eq!(early, of(None));
    }
}
