//! What the switch in a card holds a virtual function to.

use linux::IfName;
use linux::netlink::FunctionRules;
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::Place;
use crate::error::StepError;
use crate::kernel::device_taken;
use crate::lifetime::Lifetime;
use crate::show::{Tool, word};

/// Set the rules for a virtual function of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetFunction {
    /// The card's own link.
    pub link: IfName,
    /// The number of the function, from 0.
    pub number: u32,
    /// Its VLAN, as [`FunctionRules::vlan`]; `None` leaves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Whether its source addresses are checked, as [`FunctionRules::spoof_check`]; `None` leaves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoof_check: Option<bool>,
}

impl Register for SetFunction {
    type Value = FunctionRules;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<FunctionRules>, StepError> {
        Ok(at.opened.netlink.function(at.link().index, self.number)?)
    }

    fn write(&self, at: &At<'_>, rules: &FunctionRules) -> Result<(), StepError> {
        Ok(at.opened.netlink.function_set(at.link().index, self.number, *rules)?)
    }

    /// A VLAN is asked for without a priority, as 802.1Q.
    fn wanted(&self, was: &FunctionRules) -> FunctionRules {
        let spoof_check = self.spoof_check.unwrap_or(was.spoof_check);
        match self.vlan {
            None => FunctionRules { spoof_check, ..*was },
            Some(vlan) => FunctionRules { vlan, priority: Some(0), service_tag: false, spoof_check },
        }
    }

    /// Journals of earlier versions do not say which priority there was.
    fn is_same(&self, one: &FunctionRules, other: &FunctionRules) -> bool {
        one.is_same(other)
    }

    /// Another container or a virtual machine to which the function was given meanwhile may want the same rules.
    fn taken(&self, at: &At<'_>) -> Result<Option<String>, StepError> {
        let sysfs = at.opened.sysfs()?;
        let functions = sysfs.functions(at.name())?;
        let Some((_, device)) = functions.into_iter().find(|(number, _)| *number == self.number) else {
            return Ok(None);
        };
        if sysfs.elsewhere(&device).is_none() {
            return Ok(None);
        }
        let others = device_taken(at.opened, &device)?;
        // It may have come back while it was looked for.
        if others.is_none() && sysfs.elsewhere(&device).is_some() {
            let why = format!("the link of device {device} is in a namespace that has not ended");
            return Err(StepError::Refused { why });
        }
        Ok(others)
    }

    fn subject(&self) -> String {
        format!("the rules for virtual function {} of link {}", self.number, self.link)
    }

    fn words(&self, rules: &FunctionRules) -> String {
        let mut words = format!("vlan {}", rules.vlan);
        if let Some(priority) = rules.priority.filter(|priority| *priority > 0) {
            words += &format!(" qos {priority}");
        }
        if rules.service_tag {
            words += " proto 802.1ad";
        }
        format!("{words} spoofchk {}", if rules.spoof_check { "on" } else { "off" })
    }

    fn command(&self, place: &Place) -> String {
        let mut words = format!("link set dev {} vf {}", word(&self.link), self.number);
        words += &self.vlan.map_or_else(String::new, |vlan| format!(" vlan {vlan}"));
        let check = self.spoof_check.map(|on| format!(" spoofchk {}", if on { "on" } else { "off" }));
        words += &check.unwrap_or_default();
        Tool("ip", place).run(&words)
    }

    /// A card survives its namespace.
    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Machine
    }

    fn missing(&self) -> StepError {
        let why = format!("link {} has no virtual function {}", self.link, self.number);
        StepError::Refused { why }
    }
}
