//! The machines of a race, each diagnosed before it: what it compares may be two settings of a card.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::doctor::{ExaminedNetns, Window, diagnose};
use ::lab::OwnProgram;
use ::lab::remote::{SshAddress, SshCommand};
use anyhow::Context;
use serde_json::Value;

use super::several::{Diagnoses, Seen};
use super::{json, look_twice};
use crate::{exit, output};

/// The time between the two readings. Settings need one; counters show what goes on beside the race.
const WINDOW: Duration = Duration::from_secs(1);
/// The file's name beside the record, without its ending.
const FILE: &str = "doctor";

/// How the machines of a race are looked at.
#[derive(Debug)]
pub(crate) struct MachineSurvey<'a> {
    /// How others are reached.
    pub(crate) ssh: &'a SshCommand,
    /// This program, which runs there.
    pub(crate) own: &'a OwnProgram,
    /// Set to give up.
    pub(crate) stop: &'a AtomicBool,
}

impl MachineSurvey<'_> {
    /// Looks at all of them at the same time, `None` for this one, and shows warnings and differences. `None` if
    /// asked to stop meanwhile.
    pub(crate) fn look(&self, machines: &[Option<&SshAddress>]) -> Option<MachineDiagnoses> {
        let seen = std::thread::scope(|scope| {
            let looks: Vec<_> =
                machines.iter().map(|machine| scope.spawn(move || self.look_at(*machine))).collect();
            looks.into_iter().map(|look| look.join().expect("a look does not panic")).collect()
        });
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let diagnoses = Diagnoses { kind: "machine", seen };
        output::aside(format_args!("doctor: {}", diagnoses.headline()));
        diagnoses.differences().iter().for_each(|line| output::aside(format_args!("doctor: {line}")));
        for Seen { host, printed } in &diagnoses.seen {
            if let Err(why) = printed {
                output::aside(format_args!("doctor: {host} could not be looked at: {why}"));
            }
        }
        Some(MachineDiagnoses(diagnoses))
    }

    fn look_at(&self, machine: Option<&SshAddress>) -> Seen {
        let Some(address) = machine else {
            let printed = self.here().map_err(|error| format!("{error:#}"));
            return Seen { host: "this machine".to_owned(), printed };
        };
        let arguments = format!("doctor --json --for {}ms", WINDOW.as_millis());
        let printed = self.ssh.printed(address, self.own, &arguments, exit::INVALID);
        let read = |text: Option<String>| {
            let text = text.ok_or_else(|| "stopped".to_owned())?;
            // A shell may greet before.
            let line = text.lines().last().unwrap_or_default();
            serde_json::from_str(line).map_err(|error| format!("read its diagnosis: {error}"))
        };
        Seen { host: address.to_string(), printed: printed.and_then(read) }
    }

    fn here(&self) -> anyhow::Result<Value> {
        let looks = look_twice(&ExaminedNetns::here(), WINDOW, self.stop)?.context("stopped")?;
        let ((before, _), (after, _)) = looks;
        Ok(json::diagnosis(&diagnose(&Window { before: &before, after: &after })))
    }
}

/// What the doctor says of the machines of a race.
#[derive(Debug)]
pub(crate) struct MachineDiagnoses(Diagnoses);

impl MachineDiagnoses {
    /// Writes it beside the race's record, if there is one, as text and as JSON. A race does not fail by that.
    pub(crate) fn write_beside(&self, record: &Path) {
        if !record.exists() {
            return;
        }
        for (ending, content) in [("json", format!("{}\n", self.0.json())), ("txt", self.0.text())] {
            let file = record.with_file_name(FILE).with_extension(ending);
            match fs::write(&file, content) {
                Ok(()) if ending == "txt" => output::aside(format_args!("doctor: {}", file.display())),
                Ok(()) => {}
                Err(error) => {
                    output::aside(format_args!("hostgap: could not write {}: {error}", file.display()));
                }
            }
        }
    }
}
