//! The progress of a race on stderr: a bar on a terminal, plain lines elsewhere.

use std::time::Duration;

use ::lab::Event;
use ::report::terminal;
use indicatif::{ProgressBar, ProgressStyle};

use crate::speak;

/// A bar if stderr is a terminal on which one can be drawn.
pub(crate) fn bar() -> Option<ProgressBar> {
    speak::takes_orders(&std::io::stderr()).then(|| {
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

    /// Shows an event.
    pub(crate) fn tell(&mut self, event: &Event) {
        match event {
            Event::CleanedUp { id } => self.line(&format!("removed what the dead race {id} left behind")),
            Event::Waiting { pid } => {
                self.line(&format!(
                    "another race (process {pid}) is running on this machine; waiting until it ends"
                ));
            }
            Event::Booting { release, how } => self.line(&format!("booting Linux {release}: {how}")),
            Event::CannotRun { name, reasons } => {
                self.line(&format!("{name} cannot run here: {}", reasons.join("; ")));
            }
            Event::Recording { path } => self.line(&format!("record: {}", path.display())),
            Event::Steering { chosen } => self.line(&format!("receive steering: {}", chosen.describe())),
            Event::Building { build, of } => self.message(&format!("building ({}/{of})", build + 1)),
            Event::Capacity(found) => self.line(&format!(
                "capacity of host with {} B bodies: {:.0} requests/s",
                found.body_bytes, found.rate_per_s
            )),
            Event::Loads(_) => {}
            Event::Trial { round, of, name, done, total } => {
                if let Some(bar) = &self.bar {
                    bar.set_length(*total);
                    bar.set_position(*done);
                }
                self.message(&format!("round {}/{of}  {name}", round + 1));
            }
            Event::Voided { .. } => self.voided += 1,
            Event::Broke { name, round, why } => {
                self.line(&format!("{name} broke in round {} and leaves the race: {why}", round + 1));
            }
            Event::Round { done, of, left } => self.round(*done, *of, *left),
            Event::Watching { name, done, total } => {
                if *done == 0 && self.bar.is_none() {
                    speak::aside("watching for late answers");
                }
                self.message(&format!("late answers {}/{total}  {name}", done + 1));
            }
            Event::Profiling { name, done, total } => {
                if *done == 0 && self.bar.is_none() {
                    speak::aside("profiling");
                }
                self.message(&format!("profiling {}/{total}  {name}", done + 1));
            }
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    fn round(&self, done: u32, of: u32, left: Duration) {
        let void =
            if self.voided == 0 { String::new() } else { format!(", {} void trials repeated", self.voided) };
        let text = format!("round {done}/{of} done, {} s left{void}", left.as_secs());
        match &self.bar {
            Some(bar) => bar.set_message(terminal::line(&text).into_owned()),
            // In a log a line now and then is enough; one for each round would be too many.
            None if done == of || done.is_multiple_of(5) => speak::aside(text),
            None => {}
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(terminal::safe(text)),
            None => speak::aside(text),
        }
    }

    fn message(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(terminal::line(text).into_owned());
        }
    }
}
