//! Races with known truth from a seeded generator: builds that settle at different values, a machine that
//! drifts, latencies with a tail, and lost packets on request.

use std::collections::BTreeMap;

use record::{
    Capacity, Counters, CpuTime, Direction, End, Entrant, Experiment, Header, Histogram, Latencies, Load,
    Machine, Metric, NodePair, Published, RaceRecord, RequestedRate, Round, SCHEMA, TrialRecord, Void,
};
use stats::Random;

/// A contender and its true figures.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    pub(crate) name: &'static str,
    /// Latency ÷ the host's.
    pub(crate) factor: f64,
    /// One request in this many loses a packet. 0: none.
    pub(crate) lost_one_in: u64,
    /// Why it cannot run.
    pub(crate) unmet: Option<&'static str>,
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) contenders: Vec<Truth>,
    /// The slowdown of "host again". 1 in an honest race.
    pub(crate) control_factor: f64,
    pub(crate) builds: u32,
    pub(crate) rounds_a_build: u32,
    /// Requests per second; `None`: a closed loop.
    pub(crate) loads: Vec<Option<f64>>,
    /// Standard deviations of the logarithm between builds and between trials.
    pub(crate) scatter: (f64, f64),
    pub(crate) samples: u64,
    /// Where it ran, in a race of all pairs.
    pub(crate) pair: Option<NodePair>,
    /// Latency of all candidates ÷ the usual.
    pub(crate) pace: f64,
}

impl Truth {
    pub(crate) fn of(name: &'static str, factor: f64) -> Truth {
        Truth { name, factor, lost_one_in: 0, unmet: None }
    }
}

impl Plan {
    /// Six builds of five rounds at one rate. The builds differ by 1 %.
    pub(crate) fn of(seed: u64, contenders: Vec<Truth>) -> Plan {
        Plan {
            seed,
            contenders,
            control_factor: 1.0,
            builds: 6,
            rounds_a_build: 5,
            loads: vec![Some(20_000.0)],
            scatter: (0.01, 0.01),
            samples: 600,
            pair: None,
            pace: 1.0,
        }
    }

    /// Generates the race; equal seeds give equal races.
    pub(crate) fn race(&self) -> RaceRecord {
        let mut random = Random::from_seed(self.seed);
        let entrants = self.entrants();
        let mut rounds = vec![];
        for build in 0..self.builds {
            let settled: Vec<f64> = entrants.iter().map(|_| self.scatter.0 * normal(&mut random)).collect();
            for _ in 0..self.rounds_a_build {
                let round = rounds.len() as u32;
                let drift = 0.05 * normal(&mut random);
                let trials = self.trials(&settled, drift, &mut random);
                // A build takes as long as two rounds.
                let ended_s = Some(f64::from(7 * (round + 1) + 14 * (build + 1)));
                rounds.push(Round { round, build, ended_s, trials, broken: vec![] });
            }
        }
        RaceRecord {
            header: self.header(entrants),
            capacities: vec![Capacity {
                body_bytes: 100,
                rate_per_s: 66_000.0,
                samples_per_s: vec![65_000.0, 66_000.0, 67_000.0],
            }],
            loads: self.loads.iter().map(|rate| load(*rate)).collect(),
            end: Some(End { wall_s: f64::from(self.builds * self.rounds_a_build) * 2.0, stopped: None }),
            rounds,
            witness: None,
            looks: vec![],
            profiles: vec![],
            late: vec![],
            notes: vec![],
        }
    }

    fn trials(&self, settled: &[f64], drift: f64, random: &mut Random) -> Vec<TrialRecord> {
        let mut order: Vec<(usize, usize)> = (0..self.loads.len())
            .flat_map(|load| self.factors().into_iter().map(move |(entrant, _)| (entrant, load)))
            .collect();
        random.shuffle(&mut order);
        let factors: Vec<(usize, f64)> = self.factors();
        order
            .into_iter()
            .map(|(entrant, load)| {
                let (_, factor) = factors.iter().find(|(other, _)| *other == entrant).expect("it races");
                let shift =
                    (factor * self.pace).ln() + settled[entrant] + drift + self.scatter.1 * normal(random);
                let lost_one_in =
                    entrant.checked_sub(2).map_or(0, |index| self.contenders[index].lost_one_in);
                trial(entrant, load, self.loads[load], shift, lost_one_in, self.samples, random)
            })
            .collect()
    }

    /// The candidates that race, with their true factors.
    fn factors(&self) -> Vec<(usize, f64)> {
        let contenders = self.contenders.iter().enumerate().filter(|(_, truth)| truth.unmet.is_none());
        let contenders = contenders.map(|(index, truth)| (index + 2, truth.factor));
        [(0, 1.0), (1, self.control_factor)].into_iter().chain(contenders).collect()
    }

    fn entrants(&self) -> Vec<Entrant> {
        let entrant = |name: &str, path: &str, unmet: Option<&str>| Entrant {
            name: name.to_owned(),
            path: path.to_owned(),
            stands_for: format!("what {path} stands for"),
            unmet: unmet.into_iter().map(str::to_owned).collect(),
            commands: vec![format!("ip link add name {path}0 type dummy")],
            settings: Vec::new(),
            mtu: unmet.is_none().then_some(1500),
            carried: false,
            crowded: false,
        };
        let hosts = [entrant("host", "host", None), entrant("host again", "host", None)];
        hosts
            .into_iter()
            .chain(self.contenders.iter().map(|truth| entrant(truth.name, truth.name, truth.unmet)))
            .collect()
    }

    fn header(&self, entrants: Vec<Entrant>) -> Header {
        let mut experiment =
            Experiment::from_toml("schema = 1\nname = \"made\"").expect("two keys are enough");
        experiment.rounds = self.builds * self.rounds_a_build;
        experiment.builds = self.builds;
        experiment.seed = Some(self.seed);
        experiment.published = published();
        Header {
            schema: SCHEMA,
            hostgap: "0.0.0".to_owned(),
            started_unix_s: 1_800_000_000,
            seed: self.seed,
            experiment,
            machine: Machine {
                kernel: "6.1.0".to_owned(),
                cpu_model: "a made CPU".to_owned(),
                cpus: 4,
                client_cpus: "0-1".to_owned(),
                server_cpus: "2-3".to_owned(),
                memory_bytes: 8 << 30,
                facts: [("clock source".to_owned(), "tsc".to_owned())].into(),
            },
            server: "nginx/1.22.1".to_owned(),
            entrants,
            pair: self.pair.clone(),
        }
    }
}

/// A figure of each kind, at the loads of [`eventful`].
pub(crate) fn published() -> Vec<Published> {
    let of = |candidate: &str, metric, value: f64, unit: &str, rate| Published {
        candidate: candidate.to_owned(),
        what: String::new(),
        value: Some(value),
        source: "a talk, 2015".to_owned(),
        direction: None,
        key: String::new(),
        place: String::new(),
        metric,
        against: None,
        unit: unit.to_owned(),
        rate,
        body_bytes: None,
        rounded_to: None,
        setting: String::new(),
        not_comparable: String::new(),
    };
    let slow = Some(RequestedRate::OfCapacity(20_000.0 / 66_000.0));
    let shown =
        Published { what: "p99 ms at 150k req/s".to_owned(), ..of("bridge+vxlan", None, 1.5, "", None) };
    let cell = |key: &str, value| Published {
        key: format!("a-talk/mpstat/{key}"),
        place: "slide 7".to_owned(),
        setting: "iperf, before".to_owned(),
        ..of("bridge+vxlan", None, value, "%", None)
    };
    vec![
        of("host", Some(Metric::P95), 0.5, "ms", slow),
        Published { rounded_to: Some(0.1), ..of("bridge+direct", Some(Metric::P95), 0.6, "ms", slow) },
        of("bridge+vxlan", Some(Metric::P95), 1200.0, "us", slow),
        of("macvlan", Some(Metric::P95), 0.9, "ms", slow),
        of("ipvlan-l2", Some(Metric::P95), 0.7, "ms", slow),
        of("docker", Some(Metric::P95), 0.7, "ms", slow),
        of("bridge+vxlan", Some(Metric::P99_99), 9.0, "ms", slow),
        of("host", Some(Metric::P99_99), 3.0, "ms", slow),
        of("bridge+vxlan", Some(Metric::Max), 400.0, "ms", slow),
        of("host", Some(Metric::Max), 10.0, "ms", slow),
        of("host", Some(Metric::Requests), 500_000.0, "requests/s", None),
        of("bridge+vxlan", Some(Metric::Requests), 350_000.0, "requests/s", None),
        Published {
            against: Some("bridge+vxlan".to_owned()),
            ..of("bridge+direct", Some(Metric::Requests), 1.27, "ratio", None)
        },
        of("bridge+vxlan", Some(Metric::CpuSoftirq), 15.3, "%", Some(RequestedRate::PerSecond(7.0))),
        // Less than the noise of this race at p99.
        of("macvlan", Some(Metric::P99), 1.05, "ratio", slow),
        Published {
            value: None,
            direction: Some(Direction::Lower),
            against: Some("bridge+vxlan".to_owned()),
            ..of("bridge+direct", Some(Metric::P99), 0.0, "", slow)
        },
        shown,
        cell("CPU 0/%soft", 100.0),
        cell("CPU 0/%idle", 0.0),
        cell("CPU 1/%soft", 9.25),
        cell("CPU 1/%idle", 90.75),
    ]
}

fn load(rate_per_s: Option<f64>) -> Load {
    let of_capacity = rate_per_s.map(|rate| rate / 66_000.0);
    Load { rate_per_s, of_capacity, ..Load::closed_loop(100) }
}

fn trial(
    entrant: usize,
    load: usize,
    rate: Option<f64>,
    shift: f64,
    lost_one_in: u64,
    samples: u64,
    random: &mut Random,
) -> TrialRecord {
    let mut response = Histogram::empty_hdr();
    let mut lag = Histogram::empty_hdr();
    let mut lost = 0;
    for _ in 0..samples {
        let slow = if random.unit() < 0.02 { 1.5 } else { 0.0 };
        let mut ns = (50_000.0 * (shift + slow + 0.25 * normal(random)).exp()) as u64;
        if lost_one_in > 0 && random.below(lost_one_in) == 0 {
            ns += 200_000_000;
            lost += 1;
        }
        response.record(ns).expect("far below an hour");
        lag.record(500 + random.below(2_000)).expect("far below an hour");
    }
    // In a closed loop, a slower path answers fewer requests in the same time.
    let rate = rate.unwrap_or(66_000.0 * (-shift).exp());
    let duration_ns = (samples as f64 / rate * 1e9) as u64;
    let response = Histogram::from(&response);
    TrialRecord {
        entrant,
        load,
        duration_ns,
        intended: samples,
        sent: samples,
        answered: samples,
        answered_in_time: samples,
        loop_ns: None,
        clients_apart: None,
        missed: 0,
        missed_age_max_ns: 0,
        connection_errors: 0,
        unexpected: 0,
        latencies: Latencies { service: response.clone(), lag: Histogram::from(&lag), response },
        witnessed: None,
        client_cpu: cpu(duration_ns, samples * 8_000),
        server_cpu: cpu(duration_ns, (samples as f64 * 10_000.0 * shift.exp()) as u64),
        client_by_cpu: BTreeMap::new(),
        server_by_cpu: BTreeMap::new(),
        counters: Counters { retransmits: lost, rto_expiries: lost, ..Counters::default() },
        cards: None,
        carried: None,
        frames: None,
        junk: None,
        handshakes: None,
        void: None,
    }
}

/// A node of two CPUs that spends 40 % of its busy time in softirq.
fn cpu(duration_ns: u64, busy_ns: u64) -> CpuTime {
    CpuTime {
        user_ns: busy_ns * 3 / 10,
        system_ns: busy_ns * 3 / 10,
        softirq_ns: busy_ns * 4 / 10,
        idle_ns: (2 * duration_ns).saturating_sub(busy_ns),
        ..CpuTime::default()
    }
}

/// Normal with mean 0 and standard deviation 1 (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

/// The race of the goldens: every element of a report appears once.
pub(crate) fn eventful() -> RaceRecord {
    let vxlan = Truth { lost_one_in: 4_000, ..Truth::of("bridge+vxlan", 1.45) };
    let ipvlan = Truth {
        unmet: Some("ipvlan links not available: unknown device type"),
        ..Truth::of("ipvlan-l2", 1.0)
    };
    let contenders = vec![Truth::of("bridge+direct", 1.15), vxlan, Truth::of("macvlan", 1.03), ipvlan];
    let plan = Plan { loads: vec![Some(20_000.0), Some(33_000.0), None], ..Plan::of(7, contenders) };
    let mut race = plan.race();
    let is = |entrant: usize| move |trial: &&mut TrialRecord| trial.entrant == entrant && trial.load == 1;
    for round in race.rounds.iter_mut().take(2) {
        let late =
            Void::GeneratorLate { late_p99_ns: 1_500_000 + u64::from(round.round), limit_ns: 1_000_000 };
        round.trials.iter_mut().find(is(2)).expect("it races").void = Some(late);
    }
    let trial = race.rounds[5].trials.iter_mut().find(is(3)).expect("it races");
    (trial.intended, trial.missed, trial.missed_age_max_ns) = (trial.intended + 3, 3, 800_000_000);
    race
}

/// Half of the requests are answered in time, each later than the one before.
pub(crate) fn flood(trial: &mut TrialRecord) {
    queue(trial, 0.5);
}

/// A share of the requests is answered in time, each later than the one before.
pub(crate) fn queue(trial: &mut TrialRecord, in_time: f64) {
    trial.answered_in_time = (trial.intended as f64 * in_time) as u64;
    // An answer takes so much longer than there is between two requests.
    let behind_ns = trial.duration_ns as f64 / trial.intended as f64 * (1.0 / in_time - 1.0);
    let mut waited = Histogram::empty_hdr();
    for place in 0..trial.intended {
        waited.record(50_000 + (behind_ns * place as f64) as u64).expect("below an hour");
    }
    trial.latencies.response = Histogram::from(&waited);
}
