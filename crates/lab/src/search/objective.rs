//! What a search wants to get better, and what must not get worse meanwhile.

use std::fmt;
use std::str::FromStr;

use record::{Measure, RequestedRate, TrialRecord, WorkloadKind};
use stats::{Columns, Percentile, Sparse};

/// What is to get better: `p99@30%`, `p50@20k`, `throughput`, `cpu`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Objective {
    pub figure: VisitMetric,
    /// The rate at which it is measured; `None`: the experiment's first, or 30 % of capacity. Throughput has none.
    pub rate: Option<RequestedRate>,
}

/// A figure of a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitMetric {
    /// A percentile of response time.
    Percentile(Percentile),
    /// Answers, bytes or datagrams per second.
    Throughput,
    /// CPU time of both nodes for each of those.
    Cpu,
    /// TCP segments sent for each that had to be.
    Retransmits,
}

/// How trials are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    /// As many requests go as can.
    pub(super) closed: bool,
    /// What the throughput of the workload counts.
    pub(super) measure: Measure,
    /// Bytes of an answer.
    pub(super) body_bytes: u32,
}

/// Bytes of a TCP segment on an Ethernet of 1500 bytes, with timestamps.
const SEGMENT_BYTES: f64 = 1448.0;

/// The percentiles that can be an objective: higher ones take more answers than a visit has.
const PERCENTILES: [Percentile; 5] =
    [Percentile::P50, Percentile::P90, Percentile::P95, Percentile::P99, Percentile::P99_9];

impl VisitMetric {
    /// Of trials that count; `None` where they have too few samples, or nothing was done.
    pub(super) fn of(self, trials: &[&TrialRecord], reading: Reading) -> Option<f64> {
        let sum = |of: &dyn Fn(&TrialRecord) -> u64| trials.iter().map(|trial| of(trial)).sum::<u64>();
        let work = sum(&|trial| trial.work(reading.measure)) as f64;
        // CPU time and packets are also of the answers that come when a slice is over, one a connection.
        let done = match reading.measure {
            Measure::Latency => sum(&|trial| trial.answered) as f64,
            Measure::Packets | Measure::Frames | Measure::Bandwidth => work,
        };
        let found = match self {
            VisitMetric::Percentile(percentile) => percentile_ns(trials, percentile, reading.closed)?,
            VisitMetric::Throughput => work / sum(&TrialRecord::throughput_ns) as f64 * 1e9,
            VisitMetric::Cpu => {
                let busy_ns = sum(&|trial| trial.client_cpu.busy_ns() + trial.server_cpu.busy_ns());
                // What the generator waited is not the requests', however it waited.
                let spun_ns = sum(&|trial| trial.counters.client_spun_ns);
                busy_ns.saturating_sub(spun_ns) as f64 / done
            }
            VisitMetric::Retransmits => {
                1.0 + sum(&|trial| trial.counters.retransmits) as f64 / (done * reading.segments())
            }
        };
        (found.is_finite() && found > 0.0).then_some(found)
    }

    /// By how much it may get worse where it is guarded, as a logarithm. 2 % is too little to give up a gain for; a
    /// share of lost packets that has grown by 0.2 % costs a connection over a long wire its window.
    pub(super) fn bearable_ln(self) -> f64 {
        match self {
            VisitMetric::Percentile(_) | VisitMetric::Throughput | VisitMetric::Cpu => 0.02,
            VisitMetric::Retransmits => 0.002,
        }
    }

    /// How much better one value is than another, as a logarithm.
    pub(super) fn gain(self, value: f64, incumbent: f64) -> f64 {
        let ln = (value / incumbent).ln();
        if self.is_better_high() { ln } else { -ln }
    }

    /// True if more is better.
    pub(super) fn is_better_high(self) -> bool {
        match self {
            VisitMetric::Throughput => true,
            VisitMetric::Percentile(_) | VisitMetric::Cpu | VisitMetric::Retransmits => false,
        }
    }
}

impl Reading {
    /// Segments for each piece of work, at least.
    fn segments(&self) -> f64 {
        match self.measure {
            Measure::Latency => (f64::from(self.body_bytes) / SEGMENT_BYTES).ceil().max(1.0),
            Measure::Bandwidth => 1.0 / SEGMENT_BYTES,
            Measure::Packets | Measure::Frames => 1.0,
        }
    }
}

impl Objective {
    /// The rate at which it is measured: none in a closed loop.
    pub(super) fn rate_of(&self, kind: WorkloadKind, rates: &[RequestedRate]) -> Option<RequestedRate> {
        const USUAL: RequestedRate = RequestedRate::OfCapacity(0.3);
        let has_rate = kind.measure() == Measure::Latency && self.figure != VisitMetric::Throughput;
        has_rate.then(|| self.rate.or(rates.first().copied()).unwrap_or(USUAL))
    }

    /// What must not get worse: the other end of the distribution, what it costs, and what it does to the network.
    pub(super) fn guards(&self, kind: WorkloadKind) -> Vec<VisitMetric> {
        let (p50, p99) = (VisitMetric::Percentile(Percentile::P50), VisitMetric::Percentile(Percentile::P99));
        let answered = kind.measure() == Measure::Latency;
        let candidates = match self.figure {
            VisitMetric::Percentile(Percentile::P50 | Percentile::P90) => vec![p99, VisitMetric::Cpu],
            VisitMetric::Percentile(_) => vec![p50, VisitMetric::Cpu],
            VisitMetric::Throughput if answered => vec![p99, VisitMetric::Cpu],
            VisitMetric::Throughput => vec![VisitMetric::Cpu],
            VisitMetric::Cpu | VisitMetric::Retransmits if answered => vec![p50, p99],
            VisitMetric::Cpu | VisitMetric::Retransmits => vec![VisitMetric::Throughput],
        };
        let retransmits = (!kind.is_udp()).then_some(VisitMetric::Retransmits);
        candidates.into_iter().chain(retransmits).collect()
    }

    /// Why a kind of workload has no such figure, if it has none.
    pub(super) fn unfit_for(&self, kind: WorkloadKind) -> Option<String> {
        match self.figure {
            VisitMetric::Percentile(_) if kind.measure() != Measure::Latency => {
                Some(format!("{} has no response times: its objective is throughput or cpu", kind.name()))
            }
            VisitMetric::Percentile(_)
            | VisitMetric::Throughput
            | VisitMetric::Cpu
            | VisitMetric::Retransmits => None,
        }
    }
}

/// A percentile of all of them, unanswered requests above every answer. Where it falls among these it is at least
/// as long as the oldest of them had waited when its trial ended; to leave out such visits would favour
/// candidates that lose requests.
fn percentile_ns(trials: &[&TrialRecord], percentile: Percentile, closed: bool) -> Option<f64> {
    let beyond = |trial: &TrialRecord| if closed { 0 } else { trial.counted().1 };
    let sparse: Vec<Sparse<'_>> =
        trials.iter().map(|trial| Sparse { bins: trial.counted().0.bins(), beyond: beyond(trial) }).collect();
    let columns = Columns::new(&sparse);
    let all = vec![1; columns.width()];
    let enough = percentile.is_valid(columns.count(&all));
    let found = columns.percentile(percentile, &all).or_else(|| trials.iter().filter_map(longest_ns).max());
    found.filter(|_| enough).map(|ns| ns as f64)
}

/// The longest that a request of a trial is known to have waited.
fn longest_ns(trial: &&TrialRecord) -> Option<u64> {
    let answered = trial.latencies.response.bins().last().map(|(ns, _)| *ns);
    answered.max(Some(trial.missed_age_max_ns).filter(|ns| *ns > 0))
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Objective, String> {
        let (name, rate) = match text.split_once('@') {
            None => (text, None),
            Some((name, rate)) => {
                (name, Some(rate.parse::<RequestedRate>().map_err(|error| error.to_string())?))
            }
        };
        let figure = match name {
            "throughput" => VisitMetric::Throughput,
            "cpu" => VisitMetric::Cpu,
            _ => {
                let found = PERCENTILES.into_iter().find(|percentile| percentile.label() == name);
                VisitMetric::Percentile(found.ok_or_else(|| {
                    format!(
                        "`{text}` is no objective: p50, p90, p95, p99 or p99.9, each also at a rate (p99@30%, p50@20k), \
                         throughput or cpu is expected"
                    )
                })?)
            }
        };
        if figure == VisitMetric::Throughput && rate.is_some() {
            return Err(
                "throughput is measured without a rate: requests are sent as fast as they are answered"
                    .to_owned(),
            );
        }
        Ok(Objective { figure, rate })
    }
}

impl fmt::Display for VisitMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VisitMetric::Percentile(percentile) => percentile.label(),
            VisitMetric::Throughput => "throughput",
            VisitMetric::Cpu => "cpu",
            VisitMetric::Retransmits => "retransmits",
        })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Some(rate) => write!(f, "{}@{rate}", self.figure),
            None => self.figure.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use record::{Counters, CpuTime, Histogram};

    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn objectives_are_read_and_shown() {
        for text in ["p99@30%", "p50", "p99.9@20000", "throughput", "cpu@10%"] {
            assert_eq!(text.parse::<Objective>().unwrap().to_string(), text);
        }
        for (text, why) in [
            ("p98", "is no objective"),
            ("p99.999", "is no objective"),
            ("p99@fast", "not a rate"),
            ("p99@0%", "above 0%"),
            ("throughput@30%", "without a rate"),
            ("retransmits", "is no objective"),
            ("", "is no objective"),
        ] {
            let error = text.parse::<Objective>().expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_rate_is_the_objectives_or_the_experiments_or_the_usual() {
        let rate = |text: &str, kind: WorkloadKind, rates: &[RequestedRate]| {
            text.parse::<Objective>().unwrap().rate_of(kind, rates).map(|rate| rate.to_string())
        };
        let rates = [RequestedRate::PerSecond(500.0), RequestedRate::OfCapacity(0.5)];
        assert_eq!(rate("p99@40%", WorkloadKind::Http, &rates).as_deref(), Some("40%"));
        assert_eq!(rate("p99", WorkloadKind::Http, &rates).as_deref(), Some("500"));
        assert_eq!(rate("cpu", WorkloadKind::TcpRr, &[]).as_deref(), Some("30%"));
        assert_eq!(rate("throughput", WorkloadKind::Http, &rates), None);
        assert_eq!(rate("cpu", WorkloadKind::TcpStream, &[]), None);
        let p99: Objective = "p99".parse().unwrap();
        assert!(
            p99.unfit_for(WorkloadKind::Download).is_some() && p99.unfit_for(WorkloadKind::Http).is_none()
        );
    }

    #[test]
    fn figures_of_trials_that_count() {
        let mut hdr = Histogram::empty_hdr();
        hdr.record_n(1_000, 950).unwrap();
        hdr.record_n(9_000, 50).unwrap();
        let trial = TrialRecord {
            duration_ns: 500_000_000,
            intended: 1_000,
            answered_in_time: 1_000,
            // What came when the slice was over took CPU time and packets too.
            answered: 1_250,
            loop_ns: None,
            latencies: record::Latencies { response: Histogram::from(&hdr), ..Default::default() },
            witnessed: None,
            client_cpu: CpuTime { user_ns: 4_000, idle_ns: 7, ..CpuTime::default() },
            server_cpu: CpuTime { softirq_ns: 8_500, ..CpuTime::default() },
            client_by_cpu: BTreeMap::new(),
            server_by_cpu: BTreeMap::new(),
            counters: Counters { retransmits: 3, ..Counters::default() },
            ..TrialRecord::default()
        };
        let (p50, p99) = (VisitMetric::Percentile(Percentile::P50), VisitMetric::Percentile(Percentile::P99));
        let reading = Reading { closed: false, measure: Measure::Latency, body_bytes: 2_000 };
        let of = |figure: VisitMetric| figure.of(&[&trial, &trial], reading);
        let [half, tail] = [p50, p99].map(|figure| of(figure).unwrap());
        assert!((half / 1_000.0 - 1.0).abs() < 0.01 && (tail / 9_000.0 - 1.0).abs() < 0.01, "{half} {tail}");
        assert_eq!(of(VisitMetric::Throughput), Some(2_000.0));
        assert_eq!(of(VisitMetric::Cpu), Some(10.0));
        assert_eq!(of(VisitMetric::Retransmits), Some(1.0 + 6.0 / 5_000.0));
        // Twenty unanswered requests of each rank above every answer.
        let lossy = TrialRecord { intended: 1_020, ..trial.clone() };
        assert_eq!(p99.of(&[&lossy], reading), p99.of(&[&trial], reading), "no less than the longest answer");
        let waited = TrialRecord { missed_age_max_ns: 70_000_000, ..lossy.clone() };
        assert_eq!(p99.of(&[&waited], reading), Some(70_000_000.0));
        assert!(p99.of(&[&lossy], Reading { closed: true, ..reading }).is_some());
        assert_eq!(of(VisitMetric::Percentile(Percentile::P99_9)), None, "2000 answers are too few");
        assert_eq!(VisitMetric::Throughput.of(&[], reading), None);
        assert!(VisitMetric::Throughput.gain(2.0, 1.0) > 0.6 && p50.gain(2.0, 1.0) < -0.6);
    }
}
