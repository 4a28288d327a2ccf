//! `apply --plan FILE`: applies a stored plan if the same plan would still be made now.

use std::path::Path;

use ::record::Asked;
use ::tune::{Setting, Wanted};
use anyhow::Context;
use ipnet::IpNet;
use serde::Deserialize;

use super::host::Device;
use super::proposal::Proposal;
use super::request::Request;
use super::show::SCHEMA;
use crate::exit::BadInput;

/// A plan as `plan --json` writes it; only the fields that matter here.
#[derive(Deserialize)]
pub(super) struct StoredPlan {
    schema: u32,
    netns: Option<String>,
    device: Option<Device>,
    changes: Vec<Change>,
    #[serde(default)]
    later: Vec<Change>,
}

#[derive(Deserialize)]
struct Change {
    knob: String,
    value: String,
    #[serde(default)]
    at_least: bool,
    why: String,
    #[serde(default)]
    route: Option<IpNet>,
    #[serde(default)]
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    old: String,
    command: String,
}

impl StoredPlan {
    /// Reads a plan.
    pub(super) fn read(path: &Path) -> anyhow::Result<StoredPlan> {
        let text = crate::input::text("plan", path)?;
        let bad = |what: String| BadInput(format!("plan {}: {what}", path.display()));
        let bound: StoredPlan = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
        if bound.schema != SCHEMA {
            return Err(bad(format!("it has schema {}, this hostgap knows {SCHEMA}", bound.schema)).into());
        }
        Ok(bound)
    }

    /// Makes the same proposal again.
    ///
    /// # Errors
    /// Something is not as it was when the plan was made. The error names each difference.
    pub(super) fn proposal(&self) -> anyhow::Result<Proposal> {
        let wish = |change: &Change| {
            let setting = Setting::asked(&change.knob, &Asked::Text(change.value.clone()));
            let setting = setting.map_err(|error| BadInput(error.to_string()))?;
            let Change { at_least, route, ref why, .. } = *change;
            let wanted = Wanted { setting, at_least, route, why: why.clone() };
            anyhow::Ok(Request { wanted, is_named: true })
        };
        let wishes: Vec<Request> =
            self.changes.iter().chain(&self.later).map(wish).collect::<Result<_, _>>()?;
        let device = self.device.as_ref().map(|device| device.name.as_str());
        let proposal =
            Proposal::of_wishes(self.netns.as_deref(), device, &wishes).context("the plan no longer fits")?;
        let differences = self.differences(&proposal);
        if differences.is_empty() {
            return Ok(proposal);
        }
        let text = format!("the plan no longer fits; make it again:\n{}", differences.join("\n"));
        Err(BadInput(text).into())
    }

    fn differences(&self, proposal: &Proposal) -> Vec<String> {
        let mut differences = Vec::new();
        if self.device != proposal.host.device {
            let told = |device: &Option<Device>| match device {
                Some(device) => format!(
                    "{} (index {}, {}, {})",
                    device.name,
                    device.index,
                    device.mac.as_deref().unwrap_or("no address"),
                    device.driver.as_deref().unwrap_or("no driver")
                ),
                None => "none".to_owned(),
            };
            differences.push(format!(
                "the link was {} and is {}",
                told(&self.device),
                told(&proposal.host.device)
            ));
        }
        for planned in &self.changes {
            let now = proposal.changes.iter().find(|change| change.wanted.setting.knob.id == planned.knob);
            let instead = if now.is_none() { "is already set" } else { "would be set differently now" };
            for step in &planned.steps {
                let steps = now.map(|change| change.steps.as_slice()).unwrap_or_default();
                let same = steps.iter().find(|(placed, _)| placed.commands().join("\n") == step.command);
                match same {
                    Some((_, preview)) if preview.old == step.old => {}
                    Some((_, preview)) => {
                        differences.push(format!("{} was {} and is {}", planned.knob, step.old, preview.old));
                    }
                    None => differences.push(format!("{} was {} and {instead}", planned.knob, step.old)),
                }
            }
            if planned.steps.is_empty() && now.is_none() {
                differences.push(format!("{} is already set", planned.knob));
            }
            let count = now.map_or(0, |change| change.steps.len());
            if count > planned.steps.len() {
                differences.push(format!("{} has more to change than planned", planned.knob));
            }
        }
        differences
    }
}
