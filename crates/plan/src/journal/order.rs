//! Which lines of a journal can follow which: a line that is missing in the middle shows, and one that no step writes.

use crate::Step;
use crate::entry::Entry;

/// What the lines so far have come to.
#[derive(Debug, Default)]
pub(super) struct JournalOrder {
    has_header: bool,
    /// Of each step by its number.
    steps: Vec<Begun>,
}

/// A step, and what was written of it after its intent.
#[derive(Debug)]
struct Begun {
    step: Step,
    done: bool,
    undone: bool,
}

impl JournalOrder {
    /// Takes the next line, or says why it cannot be the next.
    pub(super) fn take(&mut self, entry: &Entry) -> Result<(), String> {
        if matches!(entry, Entry::Header(_)) == self.has_header {
            return Err("a header is the first line and no other".to_owned());
        }
        self.has_header = true;
        let next = self.steps.len() as u64;
        match entry {
            Entry::Header(_) => Ok(()),
            Entry::Intent(intent) if intent.seq != next => {
                Err(format!("it begins step {}, and step {next} would be the next", intent.seq))
            }
            Entry::Intent(intent) => {
                let step = intent.placed.step.clone();
                if !step.effect().admits_before(&intent.before) {
                    return Err(format!(
                        "its state before step {next} does not belong to a step of that kind"
                    ));
                }
                self.steps.push(Begun { step, done: false, undone: false });
                Ok(())
            }
            Entry::Done { seq, after } => {
                let begun = self.begun(*seq)?;
                if begun.done || begun.undone {
                    return Err(format!("step {seq} is done a second time"));
                }
                if !begun.step.effect().admits_after(after) {
                    return Err(format!("its state after step {seq} does not belong to a step of that kind"));
                }
                begun.done = true;
                Ok(())
            }
            Entry::Undone { seq, outcome, .. } => {
                let begun = self.begun(*seq)?;
                if begun.undone {
                    return Err(format!("step {seq} is undone a second time"));
                }
                begun.undone = outcome.is_final();
                Ok(())
            }
        }
    }

    /// How many steps were begun.
    pub(super) fn steps(&self) -> usize {
        self.steps.len()
    }

    fn begun(&mut self, seq: u64) -> Result<&mut Begun, String> {
        let begun = usize::try_from(seq).ok().and_then(|seq| self.steps.get_mut(seq));
        begun.ok_or_else(|| format!("it has an outcome of step {seq}, which was not begun"))
    }
}
