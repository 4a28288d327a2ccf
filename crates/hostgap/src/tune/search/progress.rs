//! The progress of a search on stderr: a bar on a terminal, a line for each stage elsewhere.

use ::lab::SearchEvent;
use ::report::terminal;
use indicatif::ProgressBar;

use crate::output;
use crate::progress::{Progress, bar};

/// Shows the events of a search.
pub(super) struct SearchProgress {
    bar: Option<ProgressBar>,
    race: Progress,
}

impl SearchProgress {
    pub(super) fn new() -> SearchProgress {
        SearchProgress { bar: bar(), race: Progress::quiet() }
    }

    pub(super) fn show(&mut self, event: &SearchEvent) {
        match event {
            SearchEvent::Race(event) => self.race.show(event),
            SearchEvent::CannotSet(option) => {
                self.line(&format!("{} cannot be set here: {}", option.label(), option.unmet.join("; ")));
            }
            SearchEvent::NotTogether(what) => self.line(&format!("not tried together: {what}")),
            SearchEvent::Load(None, _) => self.line("load: closed loop"),
            SearchEvent::Load(Some(rate), capacity) => {
                let of = capacity.map_or_else(String::new, |most| format!(", capacity {most:.0}"));
                self.line(&format!("load: {rate:.0} requests/s{of}"));
            }
            SearchEvent::Block { done, arms, spent, budget } => {
                if let Some(bar) = &self.bar {
                    bar.set_length(budget.as_secs());
                    bar.set_position(spent.as_secs());
                    bar.set_message(format!("block {}, {arms} arms", done + 1));
                }
            }
            SearchEvent::Stage(stage) => {
                let kept = stage.arms.iter().filter(|arm| arm.kept).count();
                let (name, blocks, arms) = (&stage.name, stage.blocks, stage.arms.len());
                self.line(&format!("{name}: {blocks} blocks, {kept} of {arms} arms kept"));
            }
        }
    }

    pub(super) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        self.race.finish();
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(terminal::safe(text)),
            None => output::aside(text),
        }
    }
}
