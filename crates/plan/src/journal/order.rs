//! Which lines of a journal can follow which: a line that is missing in the middle shows.

use crate::entry::Entry;

/// What the lines so far have come to.
#[derive(Debug, Default)]
pub(super) struct Order {
    has_header: bool,
    /// Of each step by its number.
    steps: Vec<Answers>,
}

/// What was written of a step after its intent.
#[derive(Debug, Clone, Copy, Default)]
struct Answers {
    done: bool,
    undone: bool,
}

impl Order {
    /// Takes the next line, or says why it cannot be the next.
    pub(super) fn take(&mut self, entry: &Entry) -> Result<(), String> {
        if matches!(entry, Entry::Header(_)) == self.has_header {
            return Err("a header is the first line and no other".to_owned());
        }
        self.has_header = true;
        let next = self.steps.len() as u64;
        match entry {
            Entry::Header(_) => Ok(()),
            Entry::Intent(intent) if intent.seq == next => {
                self.steps.push(Answers::default());
                Ok(())
            }
            Entry::Intent(intent) => {
                Err(format!("it begins step {}, and step {next} would be the next", intent.seq))
            }
            Entry::Done { seq, .. } => {
                let answers = self.begun(*seq)?;
                if answers.done || answers.undone {
                    return Err(format!("step {seq} is done a second time"));
                }
                answers.done = true;
                Ok(())
            }
            Entry::Undone { seq, outcome, .. } => {
                let answers = self.begun(*seq)?;
                if answers.undone {
                    return Err(format!("step {seq} is undone a second time"));
                }
                answers.undone = outcome.is_final();
                Ok(())
            }
        }
    }

    /// How many steps were begun.
    pub(super) fn steps(&self) -> usize {
        self.steps.len()
    }

    fn begun(&mut self, seq: u64) -> Result<&mut Answers, String> {
        let answers = usize::try_from(seq).ok().and_then(|seq| self.steps.get_mut(seq));
        answers.ok_or_else(|| format!("it answers for step {seq}, which no line has begun"))
    }
}
