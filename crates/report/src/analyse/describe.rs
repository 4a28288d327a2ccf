//! Why trials are void, in words.

use std::collections::BTreeMap;

use record::{RaceRecord, TrialRecord, Void};
use verdict::{Cell, Cells};

use crate::figures::{counted, duration_ns};
use crate::summary::VoidReason;
use crate::void::VoidKind;

/// Why trials are void: each kind once, with its worst figure.
pub(super) fn void_reasons(void: &[&TrialRecord]) -> Vec<VoidReason> {
    let mut worst: BTreeMap<VoidKind, (u64, u64, String)> = BTreeMap::new();
    for reason in void.iter().filter_map(|trial| trial.void.as_ref()) {
        let (figure, words) = ranked_reason(reason);
        let entry = worst.entry(VoidKind::of(reason)).or_insert_with(|| (0, figure, words.clone()));
        entry.0 += 1;
        if figure > entry.1 {
            (entry.1, entry.2) = (figure, words);
        }
    }
    worst.into_values().map(|(trials, _, reason)| VoidReason { reason, trials }).collect()
}

/// Slices in which a candidate left most requests without an answer. That is not the machine's doing, as other
/// void trials are: path, machine and generator were found in order before it was asked. They are repeated, so
/// no percentile has them.
pub(super) fn silent_slices(cell: &Cell<'_>) -> Option<String> {
    let is_silent = |void: &Void| VoidKind::of(void) == VoidKind::Unanswered;
    let silent = cell.void.iter().filter(|trial| trial.void.as_ref().is_some_and(is_silent)).count();
    let all = counted((cell.trials.len() + cell.void.len()) as u64, "slice");
    (silent > 0).then(|| format!("left most requests without an answer in {silent} of {all}"))
}

/// What a reader must know of each candidate's silent slices, which its figures do not show.
pub(super) fn silence(race: &RaceRecord, cells: &Cells<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    for (index, entrant) in race.header.entrants.iter().enumerate() {
        for (load, of) in race.loads.iter().enumerate() {
            notes.extend(silent_slices(cells.cell(index, load)).map(|silent| {
                format!(
                    "{} {silent} at {}; these were repeated and are in no figure, and the machine was not the reason",
                    entrant.name,
                    crate::figures::load(&super::load(race, of))
                )
            }));
        }
    }
    notes
}

/// Its severity and the text for the worst case.
fn ranked_reason(void: &Void) -> (u64, String) {
    match void {
        Void::GeneratorLate { late_p99_ns, limit_ns } => {
            let (late, limit) = (duration_ns(*late_p99_ns), duration_ns(*limit_ns));
            (*late_p99_ns, format!("the generator sent late: p99 up to {late}, the limit is {limit}"))
        }
        Void::GeneratorStarved { run_queue_permille, limit_permille } => {
            let [waited, limit] = [run_queue_permille, limit_permille].map(|share| f64::from(*share) / 10.0);
            let words = format!(
                "the generator waited for a CPU up to {waited} % of the time, the limit is {limit} %"
            );
            (u64::from(*run_queue_permille), words)
        }
        Void::ClientBusy { busy_permille } => {
            let busy = f64::from(*busy_permille) / 10.0;
            (u64::from(*busy_permille), format!("the client's CPUs had no headroom: up to {busy} % busy"))
        }
        Void::Stolen { steal_permille } => {
            let stolen = f64::from(*steal_permille) / 10.0;
            (u64::from(*steal_permille), format!("the hypervisor took up to {stolen} % of the CPU time"))
        }
        Void::Throttled { throttled_permille, limit_permille } => {
            let [stopped, limit] = [throttled_permille, limit_permille].map(|share| f64::from(*share) / 10.0);
            let words =
                format!("a CPU quota stopped a side up to {stopped} % of the time, the limit is {limit} %");
            (u64::from(*throttled_permille), words)
        }
        Void::StoodStill { left_out_permille, limit_permille } => {
            let [left_out, limit] = [left_out_permille, limit_permille].map(|share| f64::from(*share) / 10.0);
            let words =
                format!("the machine stood still: up to {left_out} % are left out, the limit is {limit} %");
            (u64::from(*left_out_permille), words)
        }
        Void::PathChanged { what } => (0, format!("the path changed: {what}")),
        Void::FramesLost { made, judged, sunk } => {
            let arrived = sunk.map_or(String::new(), |sunk| format!(" and {sunk} arrived"));
            let words = format!(
                "frames were lost or others came: of {made} that were sent {judged} were judged{arrived}"
            );
            (made.abs_diff(sunk.map_or(*judged, |sunk| sunk.min(*judged))), words)
        }
        Void::FloodShort { sent, due } => {
            let words = format!("the flood was short: {sent} of its {due} frames were sent");
            (due.saturating_sub(*sent), words)
        }
        Void::Unanswered { intended, sent, unanswered, unexpected, connection_errors } => {
            let words = format!(
                "most requests got no answer: {unanswered} of {sent} that were sent, of {intended} that were due, with \
                 {unexpected} unexpected answers and {connection_errors} connection errors"
            );
            (*unanswered, words)
        }
        Void::FactsChanged { what } => (0, format!("the machine changed: {what}")),
        Void::OnClient { machine, why } => {
            let (figure, words) = ranked_reason(why);
            (figure, format!("on {machine} {words}"))
        }
        Void::ClientLost { machine, what } => (0, format!("{machine} did not do its part: {what}")),
    }
}
