//! The settings of both sides of a race: read, and written down.

use std::collections::BTreeMap;

use record::{RequestedValue, Side, Tuning};

use crate::knob::{Knob, Lives};
use crate::setting::{Setting, TuneError, nearest};
use crate::{Value, all, find};

/// The settings of both sides, each side's in the order of the table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Settings {
    pub client: Vec<Setting>,
    pub server: Vec<Setting>,
}

/// Values by the knobs' own names.
type Named<'a> = BTreeMap<&'static str, &'a RequestedValue>;

/// Values by the knobs' own names, where some may have been given by the kernel's.
fn named(values: &BTreeMap<String, RequestedValue>) -> Result<Named<'_>, TuneError> {
    let mut named = Named::new();
    for (name, value) in values {
        let Some(knob) = find(name) else {
            return Err(TuneError::Unknown { knob: name.clone(), nearest: nearest(name) });
        };
        if named.insert(knob.id, value).is_some() {
            return Err(TuneError::Twice { knob: knob.id.to_owned() });
        }
    }
    Ok(named)
}

impl Settings {
    /// Parses the requested settings. A value for one side overrides a value for both sides.
    ///
    /// # Errors
    /// The first knob that is unknown, set under two of its names, gone, or given an invalid value.
    pub fn read(tuning: &Tuning) -> Result<Settings, TuneError> {
        let [both, client, server] = [named(&tuning.both)?, named(&tuning.client)?, named(&tuning.server)?];
        let side = |own: &Named<'_>| -> Result<Vec<Setting>, TuneError> {
            let requested = |knob: &'static Knob| {
                own.get(knob.id).or_else(|| both.get(knob.id)).map(|value| (knob, *value))
            };
            all().filter_map(requested).map(|(knob, value)| Setting::read(knob, value)).collect()
        };
        Ok(Settings { client: side(&client)?, server: side(&server)? })
    }

    /// The settings that [`Settings::recorded`] wrote down.
    ///
    /// # Errors
    /// Those of [`Settings::read`]: another version of this program wrote them.
    pub fn of_recorded(recorded: &[record::Setting]) -> Result<Settings, TuneError> {
        let mut tuning = Tuning::default();
        for record::Setting { knob, value, side } in recorded {
            let values = match side {
                Side::Both => &mut tuning.both,
                Side::Client => &mut tuning.client,
                Side::Server => &mut tuning.server,
            };
            values.insert(knob.clone(), RequestedValue::Text(value.clone()));
        }
        Settings::read(&tuning)
    }

    /// True if no setting is requested.
    pub fn is_empty(&self) -> bool {
        self.client.is_empty() && self.server.is_empty()
    }

    /// The value of a knob on both sides; `None` where they differ or it is not set.
    pub fn of_both(&self, lives: Lives) -> Option<&Value> {
        let of = |settings: &'_ [Setting]| settings.iter().position(|setting| setting.lives == lives);
        let client = &self.client[of(&self.client)?].value;
        (self.server[of(&self.server)?].value == *client).then_some(client)
    }

    /// For the record, in the order of the table; what both sides have in common once.
    pub fn recorded(&self) -> Vec<record::Setting> {
        let entry = |setting: &Setting, side| record::Setting {
            knob: setting.knob.id.to_owned(),
            value: setting.value.to_string(),
            side,
        };
        let on = |settings: &'_ [Setting], knob: &Knob| settings.iter().position(|one| one.knob == knob);
        let of = |knob: &'static Knob| {
            let client = on(&self.client, knob).map(|at| &self.client[at]);
            let server = on(&self.server, knob).map(|at| &self.server[at]);
            match (client, server) {
                (Some(client), Some(server)) if client.value == server.value => {
                    vec![entry(client, Side::Both)]
                }
                (client, server) => {
                    let client = client.map(|setting| entry(setting, Side::Client));
                    client.into_iter().chain(server.map(|setting| entry(setting, Side::Server))).collect()
                }
            }
        };
        all().flat_map(of).collect()
    }
}
