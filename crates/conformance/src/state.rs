//! What stands in a namespace, and what differs from it later.

use std::collections::BTreeMap;

use linux::{Netlink, Netns};

use crate::outcome::{Judged, Stop};

/// The links, addresses, routes, rules, permanent neighbours and queueing disciplines of a namespace, a line for
/// each with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State(BTreeMap<String, usize>);

/// How many differences a message shows.
const SHOWN_MAX: usize = 6;

impl State {
    pub(crate) fn of(netns: &Netns) -> Judged<State> {
        let lines = Netlink::open_in(netns)?.standing()?;
        Ok(State::from_lines(lines))
    }

    fn from_lines(lines: impl IntoIterator<Item = String>) -> State {
        let mut counted = BTreeMap::new();
        for line in lines {
            *counted.entry(line).or_default() += 1;
        }
        State(counted)
    }

    /// Fails if there is more or less than before. `when`: "after DEL".
    pub(crate) fn must_be(&self, before: &State, place: &str, when: &str) -> Judged {
        let differences = before.differences(self);
        if differences.is_empty() {
            return Ok(());
        }
        let more = differences.len().saturating_sub(SHOWN_MAX);
        let mut shown = differences[..differences.len() - more].join("; ");
        if more > 0 {
            shown.push_str(&format!("; and {more} more"));
        }
        Err(Stop::failed(format!("{when}, {place} is not as before: {shown}")))
    }

    /// `-` is gone, `+` is new.
    fn differences(&self, later: &State) -> Vec<String> {
        let gone = self
            .0
            .iter()
            .filter(|(line, count)| later.0.get(*line) != Some(count))
            .map(|(line, _)| format!("- {line}"));
        let new = later
            .0
            .iter()
            .filter(|(line, count)| self.0.get(*line) != Some(count))
            .map(|(line, _)| format!("+ {line}"));
        gone.chain(new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(lines: &[&str]) -> State {
        State::from_lines(lines.iter().map(|line| (*line).to_owned()))
    }

    #[test]
    fn order_does_not_matter_and_numbers_do() {
        assert!(state(&["a", "b"]).must_be(&state(&["b", "a"]), "the node", "after DEL").is_ok());
        let Err(Stop::Failed { why, .. }) =
            state(&["a", "a"]).must_be(&state(&["a", "b"]), "the node", "after DEL")
        else {
            panic!("they differ")
        };
        assert_eq!(why, "after DEL, the node is not as before: - a; - b; + a");
    }
}
