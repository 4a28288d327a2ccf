//! Flags of a bridge port.

use linux::IfName;
use linux::netlink::PortFlag;
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::Place;
use crate::error::StepError;
use crate::show::{Tool, word};

/// Turn a flag of a bridge port on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetPortFlag {
    /// The link, which is a port of a bridge.
    pub link: IfName,
    /// Which flag. A journal of a version that knew one alone does not name it.
    #[serde(default = "hairpin")]
    pub flag: PortFlag,
}

fn hairpin() -> PortFlag {
    PortFlag::Hairpin
}

impl Register for SetPortFlag {
    type Value = bool;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<bool>, StepError> {
        Ok(at.link().port_flag(self.flag))
    }

    fn write(&self, at: &At<'_>, on: &bool) -> Result<(), StepError> {
        Ok(at.opened.netlink.link_set_port_flag(at.link().index, self.flag, *on)?)
    }

    fn wanted(&self, _: &bool) -> bool {
        true
    }

    fn subject(&self) -> String {
        let what = match self.flag {
            PortFlag::Hairpin => "hairpin mode",
            PortFlag::Isolated => "isolation",
        };
        format!("{what} of link {}", self.link)
    }

    fn words(&self, on: &bool) -> String {
        if *on { "on" } else { "off" }.to_owned()
    }

    fn command(&self, place: &Place) -> String {
        Tool("bridge", place).run(&format!("link set dev {} {} on", word(&self.link), self.flag.word()))
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn missing(&self) -> StepError {
        StepError::Refused { why: format!("link {} is not a port of a bridge", self.link) }
    }
}
