//! The progress of a race on stderr: a bar on a terminal, plain lines elsewhere.

use std::time::Duration;

use ::lab::Event;
use ::report::terminal;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// A bar if stderr is a terminal on which one can be drawn.
pub(crate) fn bar() -> Option<ProgressBar> {
    output::takes_orders(&std::io::stderr()).then(|| {
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}")
            .expect("the template is constant and was tried");
        ProgressBar::new(1).with_style(style)
    })
}

/// Shows the events of a race.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    voided: u32,
}

impl Progress {
    /// A bar if stderr is a terminal.
    pub(crate) fn new() -> Progress {
        Progress { bar: bar(), voided: 0 }
    }

    /// Without a bar, where the caller shows its own.
    pub(crate) fn quiet() -> Progress {
        Progress { bar: None, voided: 0 }
    }

    /// Shows what an event changes: a line of its own, or the bar.
    pub(crate) fn show(&mut self, event: &Event) {
        match event {
            Event::CleanedUp { id } => self.line(&format!("removed what the dead race {id} left behind")),
            Event::NotCleanedUp { id, failures } => self.line(&not_cleaned_up(id, failures)),
            Event::Waiting { pid } => {
                self.line(&format!(
                    "another race (process {pid}) is running on this machine; waiting until it ends"
                ));
            }
            Event::Connecting { machine } => self.line(&format!("connecting to {machine}")),
            Event::CreatingPods { namespace, pods } => {
                self.line(&format!("creating {pods} pods in namespace {namespace}"));
            }
            Event::AwaitingPod { why } => self.line(&format!("waiting for {why}")),
            Event::Booting { release, how } => self.line(&format!("booting Linux {release}: {how}")),
            Event::CannotRun { name, reasons } => {
                self.line(&format!("{name} cannot run here: {}", reasons.join("; ")));
            }
            Event::Crowded { why } | Event::Fragments { why } => self.line(why),
            Event::Recording { path } => self.line(&format!("record: {}", path.display())),
            Event::Steering { chosen } => self.line(&format!("receive steering: {}", chosen.describe())),
            Event::Building { build, of } => self.message(&match of {
                Some(of) => format!("building ({}/{of})", build + 1),
                None => format!("building ({})", build + 1),
            }),
            Event::Capacity(found) => self.line(&format!(
                "capacity of host with {} B bodies: {:.0} requests/s",
                found.body_bytes, found.rate_per_s
            )),
            Event::Loads(_) => {}
            Event::Witness(witness) => {
                if let Some(change) = witness.cost {
                    let then = if witness.left_off { ": too much, so the race goes without" } else { "" };
                    let change = report::witness_cost(&change);
                    self.line(&format!("watching the machine for stalls changes {change}{then}"));
                }
            }
            Event::Trial { round, of, name, share } => {
                self.set_share(*share);
                self.message(&format!("round {}  {name}", counted(round + 1, *of)));
            }
            Event::Voided { .. } => self.voided += 1,
            Event::Broke { name, round, why } => {
                self.line(&format!("{name} broke in round {} and leaves the race: {why}", round + 1));
            }
            Event::LeftAlone { name, what } => self.line(&format!("{name}: {what}")),
            Event::Round { done, of, left } => self.round(*done, *of, *left),
            Event::Looked { builds, undecided, comparisons, left } => {
                self.line(&looked(*builds, undecided, *comparisons, *left));
            }
            Event::Slot { build, builds, slot, slots, pairs, left } => {
                self.slot((*build, *builds), (*slot, *slots), pairs, *left);
            }
            Event::NodeLeftOut { node, why } => self.line(&format!("without node {node}: {why}")),
            Event::NotDeleted { namespace, why, command } => self.not_deleted(namespace, why, command),
            Event::Preparing { what, slot, slots, pairs } => {
                self.part((what, what), (*slot, *slots), &pairs.join(", "));
            }
            Event::LowestCapacity { pair, capacity } => self.line(&format!(
                "{pair} has the lowest capacity with {} B bodies: {:.0} requests/s",
                capacity.body_bytes, capacity.rate_per_s
            )),
            Event::PairLeft { pair, why } => self.line(&format!("{pair} leaves the race: could not {why}")),
            Event::Watching { name, done, total } => {
                self.part(("watching for late answers", "late answers"), (*done, *total), name);
            }
            Event::Profiling { name, done, total } => {
                self.part(("profiling", "profiling"), (*done, *total), name);
            }
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    /// How much of the race is done, 0 to 1.
    fn set_share(&self, share: f64) {
        if let Some(bar) = &self.bar {
            bar.set_length(BAR);
            bar.set_position((share * BAR as f64) as u64);
        }
    }

    fn round(&self, done: u32, of: Option<u32>, left: Duration) {
        let void =
            if self.voided == 0 { String::new() } else { format!(", {} void trials repeated", self.voided) };
        let (round, most) = (counted(done, of), if of.is_none() { "at most " } else { "" });
        let text = format!("round {round} done, {most}{} s left{void}", left.as_secs());
        match &self.bar {
            Some(bar) => bar.set_message(terminal::line(&text).into_owned()),
            // In a log a line now and then is enough; one for each round would be too many.
            None if Some(done) == of || done.is_multiple_of(5) => output::aside(text),
            None => {}
        }
    }

    fn slot(
        &self,
        (build, builds): (u32, u32),
        (slot, slots): (usize, usize),
        pairs: &[String],
        left: Option<Duration>,
    ) {
        let left = left.map(|left| format!(", {} s left", left.as_secs())).unwrap_or_default();
        let place = format!("build {}/{builds}, slot {}/{slots}{left}", build + 1, slot + 1);
        match &self.bar {
            Some(bar) => {
                bar.set_length(BAR);
                let done = u64::from(build) * slots as u64 + slot as u64;
                bar.set_position(done * BAR / (u64::from(builds) * slots as u64).max(1));
                bar.set_message(terminal::line(&format!("{place}  {}", pairs.join(", "))).into_owned());
            }
            // In a log a line for each build is enough.
            None if slot == 0 => output::aside(place),
            None => {}
        }
    }

    /// A part of several, `at` from 0: in a log a line for the first is enough.
    fn part(&self, (in_log, on_bar): (&str, &str), (at, of): (usize, usize), name: &str) {
        match &self.bar {
            None if at == 0 => output::aside(in_log),
            _ => self.message(&format!("{on_bar} {}/{of}  {name}", at + 1)),
        }
    }

    fn not_deleted(&self, namespace: &str, why: &str, command: &str) {
        self.line(&format!("could not delete what was made in namespace {namespace}: {why}"));
        self.line(&format!("hint: {command}"));
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(terminal::safe(text)),
            None => output::aside(text),
        }
    }

    fn message(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(terminal::line(text).into_owned());
        }
    }
}

/// Steps of the bar.
const BAR: u64 = 1_000;

/// More names than these are counted.
const NAMES_MAX: usize = 4;

/// "3/30", or "3" where it is not known how many there will be.
fn counted(done: u32, of: Option<u32>) -> String {
    of.map_or_else(|| done.to_string(), |of| format!("{done}/{of}"))
}

fn not_cleaned_up(id: &str, failures: &[String]) -> String {
    format!("could not remove all that the dead race {id} left: {}", failures.join("; "))
}

/// What is still open after a look.
fn looked(builds: u32, undecided: &[String], comparisons: usize, left: Duration) -> String {
    if undecided.is_empty() {
        return format!("after {builds} builds every comparison is settled");
    }
    let names = undecided[..undecided.len().min(NAMES_MAX)].join(", ");
    let more = match undecided.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let comparisons =
        if comparisons == 1 { "1 comparison".to_owned() } else { format!("{comparisons} comparisons") };
    format!("after {builds} builds {comparisons} undecided: {names}{more}; at most {} s left", left.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_names_who_is_undecided() {
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let left = Duration::from_millis(61_900);
        let text = "after 8 builds 9 comparisons undecided: a, b, c, d and 1 more; at most 61 s left";
        assert_eq!(looked(8, &names, 9, left), text);
        assert_eq!(
            looked(6, &names[..1], 1, left),
            "after 6 builds 1 comparison undecided: a; at most 61 s left"
        );
        assert_eq!(looked(6, &[], 0, left), "after 6 builds every comparison is settled");
        assert_eq!((counted(3, Some(30)), counted(3, None)), ("3/30".to_owned(), "3".to_owned()));
    }
}
