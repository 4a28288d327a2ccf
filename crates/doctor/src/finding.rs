//! What a check is and what it finds.

use std::fmt;

use record::RequestedValue;
use serde::Serialize;
use tune::Setting;

use crate::Window;

/// Checks of one part of the packet path, under a common heading.
#[derive(Debug)]
pub struct CheckGroup {
    /// The heading in the report and in docs/doctor.md.
    pub title: &'static str,
    /// The rows, by code.
    pub checks: &'static [Check],
}

/// A row of the table.
#[derive(Debug)]
pub struct Check {
    /// By which people and programs call it; never given to another.
    pub code: &'static str,
    /// The problem, in a few words.
    pub title: &'static str,
    /// The consequence for packets, and the reason.
    pub why: &'static str,
    /// The general remedy, where a finding does not give a more specific one.
    pub remedy: &'static str,
    /// Knobs of `tune` that the remedy turns.
    pub knobs: &'static [&'static str],
    /// What must move, and whither, if the remedy helped.
    pub verify: &'static str,
    /// The kernel source or document that supports it.
    pub source: &'static str,
    /// Findings that cause this one: if one of them warns, it is listed first.
    pub follows: &'static [&'static str],
    /// The check itself: a pure function of a window.
    pub run: fn(&Window<'_>) -> Vec<Observation>,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing: a symptom without an effect in the window, or a setting that will hurt when load comes.
    Information,
    /// A symptom, and an effect in the window.
    Warning,
}

/// A figure, and where it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// What was seen, with the figure.
    pub saw: String,
    /// The file or the question to the kernel.
    pub read_from: String,
}

/// What a check saw of one subject.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Whether it is a warning or information.
    pub severity: Severity,
    /// The link, listener or group concerned; empty for the machine.
    pub subject: String,
    /// The figures that support it.
    pub evidence: Vec<Evidence>,
    /// What to do here, where that is more exact than the row's words.
    pub remedy: Option<String>,
    /// Settings that would remedy it.
    pub proposals: Vec<KnobProposal>,
    /// 0 to 100: about how many hundredths of the packets, connections or time are harmed. It orders findings.
    pub impact: f64,
}

/// A knob and the value proposed for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KnobProposal {
    /// The knob's name in `tune`.
    pub knob: &'static str,
    /// The value, as it would be written in a file.
    pub value: String,
    /// For a property of routes: the destination of the route to change. `None` means the knob's usual routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
}

/// A check that saw something.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The row of the table that found it.
    pub check: &'static Check,
    /// The result of the check.
    pub seen: Observation,
    /// The link concerned, if it is a single link.
    pub device: Option<String>,
    /// The codes of warnings in the same window of which this is probably a consequence.
    pub because_of: Vec<&'static str>,
}

/// The starting point of rows.
pub(crate) const USUAL: Check = Check {
    code: "",
    title: "",
    why: "",
    remedy: "",
    knobs: &[],
    verify: "",
    source: "",
    follows: &[],
    run: |_| Vec::new(),
};

impl Observation {
    /// A symptom with an effect.
    pub(crate) fn warning(impact: f64) -> Observation {
        Observation::of(Severity::Warning, impact)
    }

    /// A result that needs no action.
    pub(crate) fn information() -> Observation {
        Observation::of(Severity::Information, 0.0)
    }

    /// A warning if it has an effect.
    pub(crate) fn with_effect(effect: bool, impact: f64) -> Observation {
        if effect { Observation::warning(impact) } else { Observation::of(Severity::Information, impact) }
    }

    fn of(severity: Severity, impact: f64) -> Observation {
        let impact = if impact.is_finite() { impact.clamp(0.0, 100.0) } else { 0.0 };
        Observation {
            severity,
            subject: String::new(),
            evidence: Vec::new(),
            remedy: None,
            proposals: Vec::new(),
            impact,
        }
    }

    pub(crate) fn on(mut self, subject: impl fmt::Display) -> Observation {
        self.subject = subject.to_string();
        self
    }

    pub(crate) fn saw(mut self, saw: impl Into<String>, read_from: impl Into<String>) -> Observation {
        self.evidence.push(Evidence { saw: saw.into(), read_from: read_from.into() });
        self
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Observation {
        self.remedy = Some(remedy.into());
        self
    }

    /// Proposes a setting; does nothing if the value is empty (for example when no CPU is left).
    pub(crate) fn set(mut self, knob: &'static str, value: impl fmt::Display) -> Observation {
        let value = value.to_string();
        if !value.is_empty() {
            self.proposals.push(KnobProposal { knob, value, route: None });
        }
        self
    }

    /// Proposes a larger number than there is now, as far as the knob goes; does nothing if that is no larger.
    pub(crate) fn raise(self, knob: &'static str, now: u64, wanted: u64) -> Observation {
        let wanted = wanted.min(greatest(knob));
        if wanted > now { self.set(knob, wanted) } else { self }
    }

    /// The same for the last of three sizes.
    pub(crate) fn raise_last(
        self,
        knob: &'static str,
        [least, first, most]: [u64; 3],
        wanted: u64,
    ) -> Observation {
        let wanted = wanted.min(greatest(knob));
        if wanted > most { self.set(knob, format!("{least} {first} {wanted}")) } else { self }
    }

    /// Proposes a property of the route to a destination.
    pub(crate) fn set_route(
        mut self,
        knob: &'static str,
        value: impl fmt::Display,
        route: impl fmt::Display,
    ) -> Observation {
        self.proposals.push(KnobProposal { knob, value: value.to_string(), route: Some(route.to_string()) });
        self
    }
}

fn greatest(knob: &str) -> u64 {
    tune::find(knob).and_then(|knob| knob.kind.greatest()).unwrap_or(u64::MAX)
}

impl KnobProposal {
    /// The setting, if `tune` has the knob and the knob takes the value.
    pub fn setting(&self) -> Option<Setting> {
        let knob = tune::find(self.knob)?;
        let value = self
            .value
            .parse()
            .map_or_else(|_| RequestedValue::Text(self.value.clone()), RequestedValue::Number);
        Setting::read(knob, &value).ok()
    }
}

impl Finding {
    /// What to do, in words.
    pub fn remedy(&self) -> String {
        let words = self.seen.remedy.as_deref().unwrap_or(self.check.remedy);
        if self.seen.proposals.is_empty() {
            return words.to_owned();
        }
        let settings = self.seen.proposals.iter().map(|KnobProposal { knob, value, route }| match route {
            Some(route) => format!("{knob} = {value} on the route to {route}"),
            None => format!("{knob} = {value}"),
        });
        let settings = settings.collect::<Vec<_>>().join(", ");
        if words.is_empty() { format!("set {settings}") } else { format!("set {settings}: {words}") }
    }
}
