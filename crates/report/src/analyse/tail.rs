//! What the counters of lost packets say about a tail, and what they do not.

use record::{Entrant, Histogram, Race, Underlay, WorkloadKind};

use super::merged::Cell;
use crate::figures::counted;

/// Linux's minimum retransmission time-out (`TCP_RTO_MIN`, 200 ms), less what a clock tick may round off.
const RTO_MIN_NS: u64 = 190_000_000;
/// A wire that takes no longer than this for a round trip makes no sample of that length by itself, and adds little to
/// the 200 ms: the four round trips of a connection in TLS are still less than half of them.
const ROUND_TRIP_NS_MAX: u64 = 20_000_000;
/// Settings that give TCP another minimum.
const RTO_KNOBS: [&str; 2] = ["rto_min", "tcp_rto_min_us"];

/// What was sent again, which time-outs expired, and how many answers took as long as one. That an answer took so long
/// says by itself nothing about why: a wire, a queue or an object may be as long.
pub(super) fn tail(race: &Race, entrant: usize, cell: &Cell<'_>) -> Option<String> {
    let sent_again = cell.sum(|trial| trial.counters.retransmits);
    let expiries = cell.sum(|trial| trial.counters.rto_expiries);
    let told = format!(
        "{} retransmitted, {}",
        counted(sent_again, "segment"),
        match expiries {
            0 => "no retransmission time-out".to_owned(),
            some => counted(some, "retransmission time-out"),
        }
    );
    if !shows_time_outs(race, &race.header.entrants[entrant]) {
        return (expiries > 0).then_some(told);
    }
    let response = Histogram::from(&cell.response);
    let late: u64 = response.bins().iter().filter(|(ns, _)| *ns >= RTO_MIN_NS).map(|(_, count)| count).sum();
    if sent_again == 0 || (expiries == 0 && late == 0) {
        return None;
    }
    let took = match late {
        0 => "no sample took 190 ms or more".to_owned(),
        late => format!("{} took 190 ms or more", counted(late, "sample")),
    };
    let why = match (expiries, late) {
        (_, 0) => String::new(),
        // A request that is alone on its connection is mostly sent again by the probe, after as long.
        (0, _) => {
            ", and these counters do not show why: a tail loss probe waits as long, and a queue may do so too"
                .to_owned()
        }
        (expiries, late) => {
            let beyond = match late > expiries {
                true => {
                    ". There are more samples than time-outs: others waited behind them on their connections, or in a queue"
                }
                false => "",
            };
            format!(
                ". A time-out, usually of a lost packet, takes 200 ms, or 600 or 1400 ms if repeated; the counters do not show \
                 who lost it{beyond}"
            )
        }
    };
    Some(format!("{told}; {took}{why}"))
}

/// Whether a sample of 200 ms can be a time-out at all, and not what the workload, the wire or a setting makes of it.
fn shows_time_outs(race: &Race, entrant: &Entrant) -> bool {
    let experiment = &race.header.experiment;
    let one_answer = match experiment.workload.kind {
        WorkloadKind::Http | WorkloadKind::Connect | WorkloadKind::Grpc | WorkloadKind::TcpRr => true,
        // An object takes as long as it is large; what is no TCP is not sent again; and streams have no answers.
        WorkloadKind::Download | WorkloadKind::UdpRr | WorkloadKind::TcpStream | WorkloadKind::UdpStream => {
            false
        }
    };
    let own = experiment.candidates.iter().find(|candidate| candidate.title() == entrant.name);
    let underlay = own.map_or_else(
        || experiment.underlay.clone(),
        |candidate| experiment.underlay.with(&candidate.underlay),
    );
    let usual_rto = !entrant.settings.iter().any(|setting| RTO_KNOBS.contains(&&*setting.knob));
    one_answer && usual_rto && is_short(&underlay)
}

/// A wire with a rate has a queue of its own, which holds a round trip's worth of packets or 20 ms' in each direction,
/// and of large packets several times that; the queue before a line rate holds a thousand packets.
fn is_short(underlay: &Underlay) -> bool {
    let ways = [underlay.to_server(), underlay.to_client()];
    let ns = |of: Option<record::Delay>| of.map_or(0, |delay| delay.ns);
    let round_trip: u64 = ways.iter().map(|way| ns(way.delay) + ns(way.jitter)).sum();
    round_trip <= ROUND_TRIP_NS_MAX && ways.iter().all(|way| way.narrowest().is_none())
}
