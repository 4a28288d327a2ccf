//! How many queues settings ask for, and what so many of them cannot have.

use linux::ethtool::NicParameter;

use crate::{Cpus, Lives, Nic, Setting, Settings, TuneError, Value};

/// The number of queues that settings of one side ask for, if they do.
pub fn channels(settings: &[Setting]) -> Option<u16> {
    number(asked(settings)?)
}

/// What asks for a number of queues.
fn asked(settings: &[Setting]) -> Option<&Setting> {
    settings.iter().find(|setting| matches!(setting.lives, Lives::Nic([NicParameter::Channels])))
}

fn number(setting: &Setting) -> Option<u16> {
    match setting.value {
        Value::Number(queues) => Some(u16::try_from(queues).expect("the table takes at most 1024 queues")),
        _ => None,
    }
}

impl Setting {
    /// Why a link with these queues cannot have it: lists of CPUs may not match their number.
    pub fn refused_by(&self, nic: &Nic) -> Option<String> {
        match &self.value {
            Value::Cpus(Cpus::Groups(lists)) if !usize::from(nic.tx).is_multiple_of(lists.len()) => {
                let lists = lists.len();
                Some(format!("{}, which {lists} lists of CPUs cannot share out evenly", there_are(nic.tx)))
            }
            _ => None,
        }
    }

    /// Why a card with these queues cannot have it: its table may name queues that are not there.
    pub fn exceeds(&self, nic: &Nic) -> Option<String> {
        match (self.lives, &self.value) {
            (Lives::Indirection, Value::Number(queues)) if *queues > u64::from(nic.rx) => {
                Some(format!("{} to spread flows over", there_are(nic.rx)))
            }
            _ => None,
        }
    }
}

fn there_are(queues: u16) -> String {
    if queues == 1 { "there is 1 queue".to_owned() } else { format!("there are {queues} queues") }
}

impl Settings {
    /// Refuses settings of one side that no card can have together: they are for other queues than they ask for.
    ///
    /// # Errors
    /// [`TuneError::Contradiction`], with the first that does not go with its side's number of queues.
    pub fn consistent(&self) -> Result<(), TuneError> {
        for side in [&self.client, &self.server] {
            let Some(channels) = asked(side) else { continue };
            let Some(queues) = number(channels) else { continue };
            let nic = Nic { rx: queues, tx: queues, ..Nic::default() };
            for setting in side {
                if let Some(why) = setting.refused_by(&nic).or_else(|| setting.exceeds(&nic)) {
                    return Err(TuneError::Contradiction {
                        knob: setting.knob.id.to_owned(),
                        value: setting.value.to_string(),
                        other: format!("{} = {}", channels.knob.id, channels.value),
                        why,
                    });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use record::{RequestedValue, Tuning};

    use super::*;

    fn settings(client: &[(&str, &str)], server: &[(&str, &str)]) -> Settings {
        let named = |settings: &[(&str, &str)]| {
            let value = |value: &str| RequestedValue::Text(value.to_owned());
            settings.iter().map(|(knob, of)| ((*knob).to_owned(), value(of))).collect()
        };
        let tuning = Tuning { client: named(client), server: named(server), ..Tuning::default() };
        Settings::read(&tuning).unwrap()
    }

    #[test]
    fn settings_for_other_queues_than_they_ask_for_contradict_each_other() {
        let refused = |settings: Settings| settings.consistent().unwrap_err().to_string();
        let lists = ("xps_cpus", "0;1");
        assert_eq!(
            refused(settings(&[], &[("channels", "1"), lists])),
            "xps_cpus cannot be \"0;1\" beside channels = 1: there is 1 queue, which 2 lists of CPUs cannot \
             share out evenly"
        );
        assert_eq!(
            refused(settings(&[("channels", "2"), ("rss_indirection", "3")], &[])),
            "rss_indirection cannot be \"3\" beside channels = 2: there are 2 queues to spread flows over"
        );
        for fits in [
            settings(&[("channels", "4"), lists], &[("channels", "1")]),
            // What the card has is not known here.
            settings(&[], &[lists, ("rss_indirection", "64")]),
            settings(&[("channels", "2"), ("rss_indirection", "2")], &[]),
        ] {
            assert_eq!(fits.consistent(), Ok(()));
        }
    }
}
