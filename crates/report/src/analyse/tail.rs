//! Explains a tail by the counters of lost packets, within their limits.

use record::{Entrant, Histogram, RaceRecord, Underlay, WorkloadKind};

use crate::figures::counted;
use verdict::Cell;

/// Linux's minimum retransmission time-out (`TCP_RTO_MIN`, 200 ms), less what a clock tick may round off.
const RTO_MIN_NS: u64 = 190_000_000;
/// A wire with at most this round-trip time cannot cause a sample of 200 ms by itself, and adds little to one: even
/// the four round trips of a TLS connection are less than half of it.
const ROUND_TRIP_NS_MAX: u64 = 20_000_000;
/// Settings that change TCP's minimum retransmission timeout.
const RTO_KNOBS: [&str; 2] = ["rto_min", "tcp_rto_min_us"];

/// Reports retransmissions, expired timers, and how many answers took at least as long as a timeout. A long answer
/// alone does not prove a timeout: a wire, a queue or an object may take as long.
pub(super) fn tail(race: &RaceRecord, entrant: usize, cell: &Cell<'_>) -> Option<String> {
    let sent_again = cell.sum(|trial| trial.counters.retransmits);
    let expiries = cell.sum(|trial| trial.counters.rto_expiries);
    let counts = format!(
        "{} retransmitted, {}",
        counted(sent_again, "segment"),
        match expiries {
            0 => "no retransmission time-out".to_owned(),
            some => counted(some, "retransmission time-out"),
        }
    );
    if !shows_time_outs(race, &race.header.entrants[entrant]) {
        return (expiries > 0).then_some(counts);
    }
    // The counters are of all of the time, so the samples are too.
    let response = Histogram::from(cell.whole.as_ref().map_or(&cell.response, |whole| &whole.response));
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
    Some(format!("{counts}; {took}{why}"))
}

/// Whether a sample of 200 ms can come from a timeout, as opposed to the workload, the wire or a setting.
fn shows_time_outs(race: &RaceRecord, entrant: &Entrant) -> bool {
    let experiment = &race.header.experiment;
    let one_answer = match experiment.workload.kind {
        WorkloadKind::Http | WorkloadKind::Connect | WorkloadKind::Grpc | WorkloadKind::TcpRr => true,
        // An object's time depends on its size, UDP is not retransmitted, RDMA does that by itself, and streams have no
        // answers.
        WorkloadKind::Download
        | WorkloadKind::UdpRr
        | WorkloadKind::Verbs
        | WorkloadKind::TcpStream
        | WorkloadKind::UdpStream
        | WorkloadKind::Packets => false,
    };
    let own = experiment.candidates.iter().find(|candidate| candidate.title() == entrant.name);
    let underlay = own.map_or_else(
        || experiment.underlay.clone(),
        |candidate| experiment.underlay.with(&candidate.underlay),
    );
    let usual_rto = !entrant.settings.iter().any(|setting| RTO_KNOBS.contains(&&*setting.knob));
    one_answer && usual_rto && is_short(&underlay)
}

/// A wire with a rate has its own queue, which holds the packets of a round trip or of 20 ms in each direction, and
/// several times that for large packets; the queue in front of a line rate holds a thousand packets.
fn is_short(underlay: &Underlay) -> bool {
    let ways = [underlay.to_server(), underlay.to_client()];
    let ns = |of: Option<record::Delay>| of.map_or(0, |delay| delay.ns);
    let round_trip: u64 = ways.iter().map(|way| ns(way.delay) + ns(way.jitter)).sum();
    round_trip <= ROUND_TRIP_NS_MAX && ways.iter().all(|way| way.narrowest().is_none())
}
