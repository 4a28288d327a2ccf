//! A search for settings, rendered from its record: as text, as JSON, and for the page.

#[cfg(test)]
pub(crate) mod fixture;
mod text;

use std::collections::BTreeMap;

use record::{
    Candidate, RequestedValue, SearchAnswer, SearchArm, SearchRecord, SearchStage, SearchVerdict, Side,
    Tuning,
};

use crate::terminal;

pub use text::text;

/// The record as JSON, indented, with a newline at the end: what `hostgap tune search --json` prints.
pub fn json(search: &SearchRecord) -> String {
    let mut text = serde_json::to_string_pretty(search).expect("a search has text keys only");
    text.push('\n');
    terminal::safe(&text).into_owned()
}

/// A round of a race by halves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HalvingRound {
    /// The arms that raced in this round.
    pub(crate) arms: Vec<Vec<usize>>,
    /// How many blocks it took.
    pub(crate) blocks: usize,
}

/// The rounds of a race, seen from its blocks: the next begins where arms are missing that have not been given up.
pub(crate) fn halving(search: &SearchRecord, stage: usize) -> Vec<HalvingRound> {
    let broken = |arm: &Vec<usize>| {
        search.stages[stage].arms.iter().any(|other| other.arm == *arm && other.broken.is_some())
    };
    let mut rounds: Vec<HalvingRound> = Vec::new();
    for block in search.blocks_of(stage) {
        // The first is the incumbent, to which the others are compared.
        let arms: Vec<Vec<usize>> = block.visits.iter().skip(1).map(|visit| visit.arm.clone()).collect();
        let goes_on =
            |last: &&mut HalvingRound| last.arms.iter().all(|arm| arms.contains(arm) || broken(arm));
        match rounds.last_mut().filter(goes_on) {
            Some(last) => last.blocks += 1,
            None => rounds.push(HalvingRound { arms, blocks: 1 }),
        }
    }
    rounds
}

/// Whether more of the objective is better.
pub(crate) fn is_better_high(search: &SearchRecord) -> bool {
    search.objective == "throughput"
}

/// What a stage's figures are of.
pub(crate) fn about(stage: &SearchStage) -> &'static str {
    match stage.name.as_str() {
        "calibration" => "the incumbent against itself",
        "screening" => "each option, among the others",
        "race" => "the choice is made by these, so they flatter",
        "confirmation" => "fresh blocks",
        "ablation" => "the winner, and the winner against itself without an option",
        _ => "the remaining settings, on new blocks",
    }
}

/// A stage's arms, the best first and those without a figure last.
pub(crate) fn arms_of(stage: &SearchStage, better_high: bool) -> Vec<&SearchArm> {
    let sign = if better_high { -1.0 } else { 1.0 };
    let value = |arm: &SearchArm| arm.ratio.map_or(f64::INFINITY, |ratio| sign * ratio.value);
    let mut arms: Vec<&SearchArm> = stage.arms.iter().collect();
    arms.sort_by(|a, b| value(a).total_cmp(&value(b)));
    arms
}

/// The texts of options, by their indexes.
pub(crate) fn settings(search: &SearchRecord, places: &[usize]) -> String {
    places.iter().map(|place| search.options[*place].label()).collect::<Vec<_>>().join(" + ")
}

/// An arm as it is called in its stage.
pub(crate) fn name(arm: &SearchArm, stage: &SearchStage, search: &SearchRecord) -> String {
    if arm.arm.is_empty() {
        return "incumbent again".to_owned();
    }
    if stage.name != "ablation" {
        return settings(search, &arm.arm);
    }
    // The first of an ablation is the winner, whole; every other lacks one of its options.
    let whole = stage.arms.first().map_or(&[][..], |first| &first.arm);
    match whole.iter().find(|place| !arm.arm.contains(place)) {
        Some(left_out) => format!("what {} adds", settings(search, &[*left_out])),
        None => "the winner, whole".to_owned(),
    }
}

/// What stands in place of the answer of a search that was interrupted.
pub(crate) const NO_ANSWER: &str = "No answer: the search was interrupted.";
/// What must be known of its stages, whose best arm may have been lucky.
pub(crate) const ONLY_STAGES: &str = "Only these stages were finished; they are no answer.";

/// The answer as a sentence.
pub(crate) fn sentence(answer: &SearchAnswer) -> String {
    let begin = match answer.verdict {
        SearchVerdict::Better => "Better",
        SearchVerdict::NothingHelps => "Nothing helps",
        SearchVerdict::NotSearched => "No answer",
    };
    format!("{begin}: {}.", answer.why)
}

/// The incumbent with the settings, as TOML.
pub(crate) fn candidate(search: &SearchRecord, tune: &Tuning) -> String {
    let incumbent = search.experiment.candidates.first();
    let origin = match incumbent {
        Some(Candidate { cni: Some(file), .. }) => format!("cni = {file:?}"),
        Some(Candidate { path, in_container, .. }) => match in_container {
            Side::Both => format!("path = {path:?}"),
            Side::Client => format!("path = {path:?}\nin_container = \"client\""),
            Side::Server => format!("path = {path:?}\nin_container = \"server\""),
        },
        None => "path = \"host\"".to_owned(),
    };
    let of = |side: &str, knobs: &BTreeMap<String, RequestedValue>| -> Vec<String> {
        knobs.iter().map(|(knob, value)| format!("tune.{side}{knob} = {}", toml(value))).collect()
    };
    let name = format!("name = {:?}", format!("{} tuned", search.incumbent));
    let settings = [of("", &tune.both), of("client.", &tune.client), of("server.", &tune.server)].concat();
    [vec!["[[candidates]]".to_owned(), origin, name], settings].concat().join("\n") + "\n"
}

fn toml(value: &RequestedValue) -> String {
    match value {
        RequestedValue::Switch(_) | RequestedValue::Number(_) => value.to_string(),
        RequestedValue::Text(text) => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_race_by_halves_has_its_rounds() {
        let search = fixture::better();
        let race = search.stages.iter().position(|stage| stage.name == "race").unwrap();
        let rounds = halving(&search, race);
        let sizes: Vec<_> = rounds.iter().map(|round| (round.arms.len(), round.blocks)).collect();
        // One of the four is given up after the first block, which is no new round.
        assert_eq!(sizes, [(4, 3), (2, 5)]);
        assert!(rounds[1].arms.contains(&vec![0, 1]));
    }

    #[test]
    fn the_best_is_first_and_what_broke_is_last() {
        let search = fixture::better();
        let order = |better_high| {
            let arms = arms_of(&search.stages[1], better_high);
            arms.iter().map(|arm| arm.arm.clone()).collect::<Vec<_>>()
        };
        assert_eq!(order(false), [vec![0, 1], vec![1], vec![0], vec![2]]);
        assert_eq!(order(true), [vec![0], vec![1], vec![0, 1], vec![2]]);
    }

    #[test]
    fn a_race_that_was_cut_off_has_the_rounds_that_there_were() {
        let mut search = fixture::better();
        search.blocks.truncate(9);
        let race = search.stages.iter().position(|stage| stage.name == "race").unwrap();
        assert_eq!(halving(&search, race).iter().map(|round| round.blocks).collect::<Vec<_>>(), [1]);
    }
}
