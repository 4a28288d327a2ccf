//! Why trials are void and what makes a tail, in words.

use record::{Histogram, TrialRecord, Void};

use super::merged::Cell;
use crate::figures::{counted, duration_ns};
use crate::summary::VoidReason;

/// Linux's minimum retransmission time-out (`TCP_RTO_MIN`, 200 ms), less what a clock tick may round off.
const RTO_MIN_NS: u64 = 190_000_000;

/// The kinds of void, in the order in which they are told.
const KINDS: usize = 5;

/// Why trials are void: each kind once, with its worst figure.
pub(super) fn void_reasons(void: &[&TrialRecord]) -> Vec<VoidReason> {
    let mut worst: [Option<(u64, u64, String)>; KINDS] = Default::default();
    for reason in void.iter().filter_map(|trial| trial.void.as_ref()) {
        let (kind, figure, words) = told(reason);
        let entry = worst[kind].get_or_insert_with(|| (0, figure, words.clone()));
        entry.0 += 1;
        if figure > entry.1 {
            (entry.1, entry.2) = (figure, words);
        }
    }
    worst.into_iter().flatten().map(|(trials, _, reason)| VoidReason { reason, trials }).collect()
}

/// Its kind, how bad it is and what is said of the worst.
fn told(void: &Void) -> (usize, u64, String) {
    match void {
        Void::GeneratorLate { late_p99_ns, limit_ns } => {
            let (late, limit) = (duration_ns(*late_p99_ns), duration_ns(*limit_ns));
            (0, *late_p99_ns, format!("the generator sent late: p99 up to {late}, the limit is {limit}"))
        }
        Void::GeneratorStarved { run_queue_permille, limit_permille } => {
            let [waited, limit] = [run_queue_permille, limit_permille].map(|share| f64::from(*share) / 10.0);
            let words = format!(
                "the generator waited for a CPU up to {waited} % of the time, the limit is {limit} %"
            );
            (1, u64::from(*run_queue_permille), words)
        }
        Void::ClientBusy { busy_permille } => {
            let busy = f64::from(*busy_permille) / 10.0;
            (2, u64::from(*busy_permille), format!("the client's CPUs had no headroom: up to {busy} % busy"))
        }
        Void::Stolen { steal_permille } => {
            let stolen = f64::from(*steal_permille) / 10.0;
            (3, u64::from(*steal_permille), format!("the hypervisor took up to {stolen} % of the CPU time"))
        }
        Void::FactsChanged { what } => (4, 0, format!("the machine changed: {what}")),
    }
}

/// What makes the tail, where it is known not to be the data path: lost packets that TCP sent again. A lost request
/// that has no other behind it is sent again by the tail loss probe or by the retransmission timer, whichever the
/// kernel counts it as, and both wait for about the minimum RTO; so it is retransmissions that count, and answers that
/// took so long. After 200 ms the timer doubles, and answers come after its sums: 200, 600, 1400 ms.
pub(super) fn tail(cell: &Cell<'_>) -> Option<String> {
    let sent_again = cell.sum(|trial| trial.counters.retransmits);
    let expiries = cell.sum(|trial| trial.counters.rto_expiries);
    let response = Histogram::from(&cell.response);
    let late: u64 = response.bins().iter().filter(|(ns, _)| *ns >= RTO_MIN_NS).map(|(_, count)| count).sum();
    if sent_again == 0 || (expiries == 0 && late == 0) {
        return None;
    }
    let reached = match late {
        0 => "no answer took so long as that".to_owned(),
        late => format!(
            "{} of 190 ms or more {} in it",
            counted(late, "sample"),
            if late == 1 { "is" } else { "are" }
        ),
    };
    Some(format!(
        "{} sent again, {}: samples near 200, 600 or 1400 ms are lost packets and Linux's minimum RTO, not a data path; \
         {reached}",
        counted(sent_again, "segment"),
        counted(expiries, "time-out"),
    ))
}
