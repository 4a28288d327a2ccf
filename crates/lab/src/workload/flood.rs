//! A trial with a flood beside it: frames at a constant rate, each of which meets the candidate's filter.

use linux::cpu::Scheduling;
use record::{Load, TrialRecord, Void};

use crate::trial::Method;
use crate::trial_key::TrialKey;
use crate::{BuiltTopology, LabError};

/// The share of the frames that must meet the filter, in permille. A veth link has room for 256 packets and drops what
/// comes while it is full, requests and junk alike, as a card does.
const FILTERED_PERMILLE: u64 = 900;
/// The share of the frames due that must be sent, in permille: a trial without its flood would look like one in peace.
const SENT_PERMILLE: u64 = 900;

/// A trial of a candidate, with the flood beside it if the candidate has one.
///
/// The frames arrive at the first CPU of the server's node, as from a card whose interrupts go there. That
/// CPU makes them too, which costs it the same for each filter. A thread that does it goes before the server,
/// as an interrupt would.
pub(crate) fn trial(
    built: &mut BuiltTopology,
    method: &Method,
    load: &Load,
    key: TrialKey,
) -> Result<TrialRecord, LabError> {
    let driver = super::of(built.workload.kind);
    let flooded = built.topology.shape.flood.and_then(|flood| Some((flood, built.judge.take()?)));
    let Some((flood, judge)) = flooded else {
        return driver.trial(built, method, load, key);
    };
    let first = method.cpus.server.iter().next().expect("a node has a CPU");
    let scheduling = match method.scheduling {
        Scheduling::Fifo(priority) => Scheduling::Fifo(priority + 1),
        Scheduling::Normal => Scheduling::Normal,
    };
    let ended = judge.beside(flood, first, scheduling, || driver.trial(built, method, load, key));
    built.judge = Some(judge);
    let (trial, (junk, due)) = ended?;
    let short = (junk.sent < due * SENT_PERMILLE / 1000).then_some(Void::FloodShort { sent: junk.sent, due });
    let met = junk.sent * FILTERED_PERMILLE / 1000..=junk.sent;
    let lost = (!met.contains(&junk.filtered)).then_some(Void::FramesLost {
        made: junk.sent,
        judged: junk.filtered,
        sunk: None,
    });
    Ok(TrialRecord { void: trial.void.or(short).or(lost), junk: Some(junk), ..trial })
}
