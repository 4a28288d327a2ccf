//! A proposal as a file, which is applied only if everything is still as it was.

use std::path::Path;

use plan::{Placed, Preview};
use serde::{Deserialize, Serialize};
use tune::{Setting, WantedSetting};

use crate::{Change, Conflict, Device, HostError, Proposal, RequestedSetting, Skipped, WantedText};

/// The version of the format.
const SCHEMA: u32 = 1;

/// A proposal as `plan --json` writes it; docs/tune.md describes it. What reading leaves out is for people.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredPlan {
    schema: u32,
    netns: Option<String>,
    device: Option<Device>,
    changes: Vec<StoredChange>,
    #[serde(default)]
    later: Vec<WantedText>,
    #[serde(skip_deserializing)]
    already: Vec<Pair>,
    #[serde(skip_deserializing)]
    skipped: Vec<Skipped>,
    #[serde(skip_deserializing)]
    conflicts: Vec<Conflict>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredChange {
    #[serde(flatten)]
    wanted: WantedText,
    #[serde(default)]
    steps: Vec<Step>,
    #[serde(skip_deserializing)]
    held: Option<Held>,
    #[serde(skip_deserializing)]
    reaches: String,
    #[serde(skip_deserializing)]
    disrupts: String,
    #[serde(skip_deserializing)]
    risk: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Step {
    old: String,
    #[serde(skip_deserializing)]
    new: String,
    command: String,
}

#[derive(Debug, Serialize)]
struct Held {
    old: String,
    new: String,
}

#[derive(Debug, Serialize)]
struct Pair {
    knob: &'static str,
    value: String,
}

impl StoredPlan {
    /// A proposal in words.
    pub fn of(proposal: &Proposal) -> StoredPlan {
        StoredPlan {
            schema: SCHEMA,
            netns: proposal.host.netns.as_ref().map(ToString::to_string),
            device: proposal.host.device.clone(),
            changes: proposal.changes.iter().map(StoredChange::of).collect(),
            later: proposal.later.iter().map(|wish| WantedText::from(&wish.wanted)).collect(),
            already: proposal.already.iter().map(|WantedSetting { setting, .. }| Pair::of(setting)).collect(),
            skipped: proposal.skipped.clone(),
            conflicts: proposal.conflicts.clone(),
        }
    }

    /// Reads what was in the file at `path`.
    ///
    /// # Errors
    /// [`HostError::BadRequest`]: the text is no such plan, or one of another version.
    pub fn parse(path: &Path, text: &str) -> Result<StoredPlan, HostError> {
        let bad = |what: String| HostError::BadRequest(format!("plan {}: {what}", path.display()));
        let stored: StoredPlan = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
        if stored.schema != SCHEMA {
            return Err(bad(format!("it has schema {}, this hostgap knows {SCHEMA}", stored.schema)));
        }
        Ok(stored)
    }

    /// The settings, which were possible when the plan was made.
    ///
    /// # Errors
    /// [`HostError::BadRequest`]: there is no such knob, or it does not take the value.
    pub fn wishes(&self) -> Result<Vec<RequestedSetting>, HostError> {
        let all = self.changes.iter().map(|change| &change.wanted).chain(&self.later);
        all.map(|text| Ok(RequestedSetting { wanted: text.read()?, is_named: true })).collect()
    }

    /// Makes the proposal again, of its [`StoredPlan::wishes`].
    ///
    /// # Errors
    /// Those of [`Proposal::of_wishes`].
    pub fn proposal(&self, wishes: &[RequestedSetting]) -> Result<Proposal, HostError> {
        let device = self.device.as_ref().map(|device| device.name.as_str());
        Proposal::of_wishes(self.netns.as_deref(), device, wishes)
    }

    /// What is not as it was when the plan was made, a line each.
    pub fn differences(&self, now: &Proposal) -> Vec<String> {
        let mut differences = Vec::new();
        if self.device != now.host.device {
            let [was, is] = [&self.device, &now.host.device].map(|device| match device {
                Some(device) => format!(
                    "{} (index {}, {}, {})",
                    device.name,
                    device.index,
                    device.mac.as_deref().unwrap_or("no address"),
                    device.driver.as_deref().unwrap_or("no driver")
                ),
                None => "none".to_owned(),
            });
            differences.push(format!("the link was {was} and is {is}"));
        }
        for planned in &self.changes {
            let is_same = |change: &&Change| change.wanted.setting.knob.id == planned.wanted.knob;
            differences.extend(planned.differences(now.changes.iter().find(is_same)));
        }
        differences
    }
}

impl StoredChange {
    fn of(change: &Change) -> StoredChange {
        let knob = change.wanted.setting.knob;
        let step = |(placed, preview): &(Placed, Preview)| Step {
            old: preview.old.clone(),
            new: preview.new.clone(),
            command: command(placed),
        };
        let held = change.held.clone();
        StoredChange {
            wanted: WantedText::from(&change.wanted),
            steps: change.steps.iter().map(step).collect(),
            held: held.map(|(old, new)| Held { old, new }),
            reaches: knob.reaches.to_string(),
            disrupts: knob.disrupts.to_string(),
            risk: knob.risk.to_string(),
        }
    }

    fn differences(&self, now: Option<&Change>) -> Vec<String> {
        let knob = &self.wanted.knob;
        let instead = if now.is_none() { "is already set" } else { "would be set differently now" };
        let steps = now.map(|change| change.steps.as_slice()).unwrap_or_default();
        let mut differences = Vec::new();
        for Step { old, command: planned, .. } in &self.steps {
            match steps.iter().find(|(placed, _)| command(placed) == *planned) {
                Some((_, preview)) if preview.old == *old => {}
                Some((_, preview)) => differences.push(format!("{knob} was {old} and is {}", preview.old)),
                None => differences.push(format!("{knob} was {old} and {instead}")),
            }
        }
        if self.steps.is_empty() && now.is_none() {
            differences.push(format!("{knob} is already set"));
        }
        if steps.len() > self.steps.len() {
            differences.push(format!("{knob} has more to change than planned"));
        }
        differences
    }
}

impl Pair {
    fn of(setting: &Setting) -> Pair {
        Pair { knob: setting.knob.id, value: setting.value.to_string() }
    }
}

fn command(placed: &Placed) -> String {
    placed.commands().join("\n")
}
