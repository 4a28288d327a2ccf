//! `hostgap cni install --from`: what a race says is to be installed, and why.

use std::path::{Path, PathBuf};

use ::record::{Placement, RaceRecord};
use ::report::{Candidate, RateSummary, Summary, Verdict, analyse};
use node::choice::{Choice, Fate, choose};
use serde_json::{Value, json};
use verdict::{ComparedAt, Past};

use crate::exit::BadInput;
use crate::{output, report};

/// The choice of a race with its figures.
pub(super) struct Chosen {
    record: PathBuf,
    summary: Summary,
    pub(super) choice: Choice,
}

impl Chosen {
    /// Reads a race's record and chooses.
    ///
    /// # Errors
    /// It is no record of a race, the race is not whole or not valid, or none of its candidates can be installed.
    pub(super) fn read(record: &Path) -> anyhow::Result<Chosen> {
        let race = RaceRecord::read(record)?;
        let choice = choose(&race)?;
        let summary = analyse(&race);
        if let Some(why) = report::why_invalid(&summary) {
            return Err(BadInput(format!("{} is no race to choose by: {why}", record.display())).into());
        }
        Ok(Chosen { record: record.to_owned(), summary, choice })
    }

    /// Prints why: each contender with what the race says of it and what the choice made of that.
    pub(super) fn print(&self) -> Result<(), output::OutputError> {
        let Summary { experiment, progress, machine, .. } = &self.summary;
        output::result(format_args!(
            "{}: {}, {} rounds on {} builds, Linux {}",
            self.record.display(),
            experiment.name,
            progress.rounds,
            progress.builds,
            machine.kernel
        ))?;
        let reference = &self.summary.candidates[0].name;
        output::result(format_args!("At {}, each against {reference}:", self.load()))?;
        for (candidate, rate, fate) in self.contenders() {
            let judged = rate.map_or_else(String::new, |rate| format!("{}\n      ", of(rate)));
            output::result(format_args!("  {}: {judged}{}", candidate.name, self.words(fate)))?;
        }
        output::result("")
    }

    /// What must be known before a race's result is used on this machine.
    pub(super) fn remarks(&self) -> Vec<String> {
        let (raced, here) = (&self.summary.machine.kernel, linux::features::release());
        let other = (*raced != here).then(|| {
            format!("the race ran on Linux {raced}, and this is {here}: the ranking depends on the kernel")
        });
        let is_one_node = self.summary.experiment.placement == Placement::SameNode;
        let one_node = is_one_node.then(|| {
            "the race was between pods of one node: it does not say what a way to pods of other nodes costs".to_owned()
        });
        let routes = (self.choice.had_routes && !is_one_node).then(|| {
            "in the race the nodes had routes to each other's pods, and the plugin makes none: flannel host-gw, a BGP daemon \
             or static routes do"
                .to_owned()
        });
        let noise = &self.summary.noise[self.choice.load];
        let differs = |verdict: Verdict| verdict != Verdict::Indistinguishable;
        let off = noise.verdict.is_some_and(differs).then(|| {
            "the reference differs from itself at this load: differences of that size mean nothing".to_owned()
        });
        let ComparedAt { main, past, uncounted, load } = &self.choice.compared_at;
        let is_lower = *load != Some(*main);
        let uncounted = uncounted.iter().filter(|_| is_lower).map(|entrant| {
            let (name, main) = (&self.summary.candidates[*entrant].name, &self.summary.loads[*main]);
            format!("no trial of {name} counts with {main}: the choice is by {}", self.load())
        });
        let uncounted: Vec<String> = uncounted.collect();
        let name = |past: &Past| self.summary.candidates[past.entrant].name.as_str();
        let past: Vec<&str> = past.iter().map(name).collect();
        let past = (!past.is_empty()).then(|| {
            let main = &self.summary.loads[*main];
            format!("{main} is past the capacity of {}: the choice is by {}", past.join(", "), self.load())
        });
        let before = [other, one_node, routes].into_iter().flatten();
        before.chain(uncounted).chain(past).chain(off).collect()
    }

    pub(super) fn json(&self) -> Value {
        let contenders = self.contenders().map(|(candidate, rate, fate)| {
            let (fate, why) = match fate {
                Fate::Chosen => ("chosen", None),
                Fate::WithinNoise => ("within_noise", None),
                Fate::Beaten => ("beaten", None),
                Fate::Uncompared => ("uncompared", None),
                Fate::NotShipped(why) => ("not_shipped", Some(why)),
            };
            json!({
                "name": candidate.name,
                "verdict": rate.and_then(|rate| rate.verdict),
                "reason": rate.map(|rate| &rate.verdict_reason),
                "fate": fate,
                "why": why,
            })
        });
        json!({
            "record": self.record,
            "load": self.load(),
            "candidates": contenders.collect::<Vec<_>>(),
            "remarks": self.remarks(),
        })
    }

    fn load(&self) -> String {
        self.summary.loads[self.choice.load].to_string()
    }

    fn contenders(&self) -> impl Iterator<Item = (&Candidate, Option<&RateSummary>, &Fate)> {
        self.choice.contenders.iter().map(|considered| {
            let candidate = &self.summary.candidates[considered.entrant];
            (candidate, candidate.rates.get(self.choice.load), &considered.fate)
        })
    }

    fn words(&self, fate: &Fate) -> String {
        let attach = self.choice.path.name;
        match fate {
            Fate::Chosen => format!("chosen, as attach {attach}"),
            Fate::WithinNoise => "within the noise of the chosen one, which ranks ahead of it".to_owned(),
            Fate::Beaten => "worse than the chosen one".to_owned(),
            Fate::Uncompared => "not comparable with the chosen one".to_owned(),
            Fate::NotShipped(why) => format!("not to be chosen: {why}"),
        }
    }
}

/// "worse, p99 decides: …".
fn of(rate: &RateSummary) -> String {
    let verdict = match rate.verdict {
        Some(Verdict::Better) => "better: ",
        Some(Verdict::Worse) => "worse: ",
        Some(Verdict::Indistinguishable) => "indistinguishable: ",
        Some(Verdict::Reference) | None => "",
    };
    format!("{verdict}{}", rate.verdict_reason)
}
