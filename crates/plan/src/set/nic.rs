//! The numbers of a network card.

use linux::IfName;
use linux::ethtool::NicParameter;
use serde::{Deserialize, Serialize};

use super::queues::{self, QueueState};
use super::register::{Along, At, Register, Times, Undoing};
use crate::Place;
use crate::error::StepError;
use crate::lifetime::Lifetime;
use crate::show::{inside, word};

/// Set one of the numbers of a network card. With a new number of queues goes what was set for each of them, which undo
/// brings back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetNic {
    /// The link of the card.
    pub link: IfName,
    /// The ring, number of queues, delay or offload to set.
    pub parameter: NicParameter,
    /// The new value; 0 or 1 for what is off or on.
    pub value: u32,
}

/// A number of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Number {
    /// What it was asked to be.
    wanted: u32,
    /// What the card uses.
    now: u32,
}

impl Register for SetNic {
    type Value = Number;
    /// `None` for a number that changes nothing else.
    type Along = Option<QueueState>;

    fn read(&self, at: &At<'_>) -> Result<Option<Number>, StepError> {
        let found = at.opened.ethtool()?.read(at.name(), self.parameter)?;
        Ok(found.map(|found| Number { wanted: found.wanted, now: found.now }))
    }

    fn write(&self, at: &At<'_>, value: &Number) -> Result<(), StepError> {
        Ok(at.opened.ethtool()?.write(at.name(), self.parameter, value.wanted)?)
    }

    fn wanted(&self, _: &Number) -> Number {
        Number { wanted: self.value, now: self.value }
    }

    fn is_met(&self, found: &Number) -> bool {
        found.now == self.value
    }

    /// A feature that is asked for may be off, since another one is that it needs.
    fn is_ours(&self, values: &Times<'_, Number>) -> bool {
        let left = values.left.map_or(self.value, |left| left.now);
        values.found.now == left || values.found.now == values.was.now
    }

    fn subject(&self) -> String {
        format!("{} of link {}", self.parameter, self.link)
    }

    fn words(&self, value: &Number) -> String {
        value.now.to_string()
    }

    fn command(&self, place: &Place) -> String {
        inside(place, &format!("ethtool {}", self.parameter.command(&word(&self.link), self.value)))
    }

    /// What the card says that it does not take is refused, so that nothing is changed in vain.
    fn refusal(&self, at: &At<'_>, was: &Number) -> Result<Option<String>, StepError> {
        let SetNic { link, parameter, value } = self;
        let is_feature = matches!(parameter, NicParameter::Feature(_));
        let found = at.opened.ethtool()?.read(at.name(), *parameter)?;
        if let Some(max) = found.and_then(|found| found.max).filter(|max| value > max) {
            return Ok(Some(match is_feature {
                true => format!("{parameter} of {link} cannot be switched on"),
                false => format!("{parameter} of {link} can be {max} at most"),
            }));
        }
        // It is asked for already, and the kernel keeps it off: to ask again changes nothing.
        let rests = is_feature && was.wanted == *value && was.now != *value;
        let why = || format!("{parameter} of {link} stays off while another offload that it needs is off");
        Ok(rests.then(why))
    }

    /// A feature can be asked for and be off, because another one that it needs is: what counts is what was asked for.
    fn set(&self, at: &At<'_>, was: &Number) -> Result<(), StepError> {
        if was.wanted == self.value { Ok(()) } else { self.write(at, &self.wanted(was)) }
    }

    /// A card survives its namespace.
    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Machine
    }

    fn missing(&self) -> StepError {
        let SetNic { link, parameter, .. } = self;
        let why = match parameter {
            NicParameter::Channels => {
                format!("{link} has no number of queues to set, or not the same number in both directions")
            }
            _ => format!("{link} does not have {parameter}"),
        };
        StepError::Refused { why }
    }
}

impl Along<SetNic> for Option<QueueState> {
    fn read(register: &SetNic, at: &At<'_>) -> Result<Option<QueueState>, StepError> {
        match register.parameter {
            // Rings are replaced together with their queues, and some drivers do the same as for a new number of
            // queues.
            NicParameter::Channels | NicParameter::RingRx | NicParameter::RingTx => {
                queues::read(at).map(Some)
            }
            NicParameter::CoalesceRxUsecs
            | NicParameter::CoalesceTxUsecs
            | NicParameter::CoalesceAdaptiveRx
            | NicParameter::Feature(_) => Ok(None),
        }
    }

    /// All of it is kept: what a driver left alone shows what another program has set since.
    fn changed_since(self, _: &Option<QueueState>) -> Option<QueueState> {
        self
    }

    fn put_back(
        undoing: &Undoing<'_, SetNic>,
        along: &Times<'_, Option<QueueState>>,
    ) -> Result<bool, StepError> {
        let (Some(were), Some(found)) = (along.was, along.found) else { return Ok(false) };
        queues::OfEach { were, left: along.left.and_then(Option::as_ref), found }.put_back(undoing.at)
    }
}
