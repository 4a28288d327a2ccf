//! The numbers of a network card.

use linux::IfName;
use linux::ethtool::NicParameter;
use serde::{Deserialize, Serialize};

use super::delays::{self, Delays};
use super::indirection;
use super::queues::{self, QueueState};
use super::register::{Along, At, Register, Times, Undoing};
use crate::Place;
use crate::error::StepError;
use crate::lifetime::Lifetime;
use crate::show::{inside, word};

/// Set one of the numbers of a network card. With a new number of queues goes what was set for each of them, and a
/// driver may change other delays of interrupts together with one; undo brings these back, too.
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

/// What a driver may change together with a number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Others {
    #[default]
    None,
    Queues(QueueState),
    Delays {
        delays: Delays,
    },
}

impl Register for SetNic {
    type Value = Number;
    type Along = Others;

    fn read(&self, at: &At<'_>) -> Result<Option<Number>, StepError> {
        let found = at.opened.ethtool()?.read(at.name(), self.parameter)?;
        Ok(found.map(|found| Number { wanted: found.wanted, now: found.now }))
    }

    fn write(&self, at: &At<'_>, value: &Number) -> Result<(), StepError> {
        if self.parameter == NicParameter::Channels {
            indirection::give_way(at, value.wanted)?;
        }
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
        let SetNic { parameter, value, .. } = *self;
        let (link, typed) = (word(&self.link), |words: String| inside(place, &format!("ethtool {words}")));
        let command = typed(parameter.command(&link, value));
        match parameter.command_without_pairs(&link, value) {
            Some(other) => format!("{command} || {}", typed(other)),
            None => command,
        }
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
        // It is asked for already, and the kernel keeps it otherwise: to ask again changes nothing.
        let rests = is_feature && was.wanted == *value && was.now != *value;
        let why = || match value {
            // A feature that nobody can switch is asked for by nobody.
            0 => format!("{parameter} of {link} cannot be switched off"),
            _ => format!("{parameter} of {link} stays off while another offload that it needs is off"),
        };
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

impl Along<SetNic> for Others {
    fn read(register: &SetNic, at: &At<'_>) -> Result<Others, StepError> {
        Ok(match register.parameter {
            // Rings are replaced together with their queues, and some drivers do the same as for a new number of
            // queues.
            NicParameter::Channels | NicParameter::RingRx | NicParameter::RingTx => {
                Others::Queues(queues::read(at)?)
            }
            NicParameter::CoalesceRxUsecs
            | NicParameter::CoalesceTxUsecs
            | NicParameter::CoalesceAdaptiveRx => Others::Delays { delays: delays::read(at)? },
            NicParameter::Feature(_) => Others::None,
        })
    }

    /// All of it is kept: what a driver left alone shows what another program has set since.
    fn changed_since(self, _: &Others) -> Others {
        self
    }

    /// A journal from before delays were kept has none of them.
    fn put_back(undoing: &Undoing<'_, SetNic>, along: &Times<'_, Others>) -> Result<bool, StepError> {
        match (along.was, along.found) {
            (Others::Queues(were), Others::Queues(found)) => {
                let left = along.left.and_then(Others::queues);
                queues::OfEach { were, left, found }.put_back(undoing.at)
            }
            (Others::Delays { delays: were }, Others::Delays { delays: found }) => {
                let left = along.left.and_then(Others::delays);
                delays::OfCard { were, left, found }.put_back(undoing.at)
            }
            _ => Ok(false),
        }
    }
}

impl Others {
    fn queues(&self) -> Option<&QueueState> {
        if let Others::Queues(queues) = self { Some(queues) } else { None }
    }

    fn delays(&self) -> Option<&Delays> {
        if let Others::Delays { delays } = self { Some(delays) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use linux::ethtool::Delay;

    use super::*;

    /// What the card has is not known when the command is shown.
    #[test]
    fn a_number_of_queues_is_typed_for_cards_with_pairs_and_for_those_without() {
        let link = IfName::new("own0").unwrap();
        let command = |parameter| SetNic { link: link.clone(), parameter, value: 2 }.command(&Place::Host);
        let expected = "ethtool -L own0 combined 2 || ethtool -L own0 rx 2 tx 2";
        assert_eq!(command(NicParameter::Channels), expected);
        assert_eq!(command(NicParameter::RingRx), "ethtool -G own0 rx 2");
    }

    #[test]
    fn what_older_journals_hold_is_read() {
        let read = |json: &str| serde_json::from_str::<Others>(json).unwrap();
        assert_eq!(read("null"), Others::None);
        let queues = read(r#"{"cpus":[],"flows":[[0,64]],"table":null,"interrupts":[]}"#);
        assert!(queues.queues().is_some_and(|queues| queues.flows == [(0, 64)]), "{queues:?}");
        let delays = Others::Delays { delays: [(Delay::RxUsecs, 64)].into() };
        for others in [queues, delays] {
            assert_eq!(read(&serde_json::to_string(&others).unwrap()), others);
        }
    }
}
