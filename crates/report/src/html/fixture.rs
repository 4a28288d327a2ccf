//! Summaries for tests of the page, with figures of the size that a small virtual machine gives.

use std::collections::BTreeMap;

mod course;
mod cpus;
mod curve;
mod figures;
mod rates;
mod swept;

use record::{Capacity, Experiment, Machine, Placement, RequestedRate};

use self::rates::{empty, need, rate};
pub(super) use self::{course::course, cpus::by_cpu, swept::swept};

use crate::{
    Candidate, CurvePoint, Load, Noise, Progress, Quantiles, RateSummary, Ratio, Ratios, Role, SCHEMA,
    Summary, Verdict, VoidReason,
};

/// Name, meaning, MTU, and p50, p99 and capacity relative to the host.
type Path = (&'static str, &'static str, u32, [f64; 3]);

const PATHS: [Path; 9] = [
    ("host", "`--net=host`, the reference", 1500, [1.0, 1.0, 1.0]),
    ("host again", "`--net=host`, the reference", 1500, [1.004, 0.98, 0.997]),
    ("docker", "Docker's default: a bridge with NAT and published ports", 1500, [1.296, 1.22, 0.665]),
    ("bridge+direct", "flannel host-gw", 1500, [1.220, 1.13, 0.713]),
    ("bridge+vpc", "flannel aws-vpc: the route table of a cloud", 1500, [1.231, 1.15, 0.702]),
    ("bridge+vxlan", "flannel vxlan", 1450, [1.365, 1.53, 0.588]),
    ("ptp+direct", "Calico's routed veth pairs, without its netfilter rules", 1500, [1.081, 1.06, 0.848]),
    ("ptp+vxlan", "Calico's veth pairs and VXLAN, without its netfilter rules", 1450, [1.210, 1.41, 0.701]),
    ("macvlan", "macvlan on the node's wire", 1500, [0.982, 0.95, 0.982]),
];

/// Requested rate, share of capacity, and the host's p50, p90, p99, p99.9 and p99.99 in nanoseconds.
const LOADS: [(Option<f64>, Option<f64>, [f64; 5]); 3] = [
    (None, None, [129_000.0, 171_000.0, 288_000.0, 1_310_000.0, 3_400_000.0]),
    (Some(70_231.0), Some(0.3), [23_100.0, 38_400.0, 82_700.0, 413_700.0, 1_210_000.0]),
    (Some(117_052.0), Some(0.5), [27_900.0, 52_100.0, 112_700.0, 506_000.0, 2_050_000.0]),
];

/// The default race: nine that ran, three that could not.
pub(super) fn race() -> Summary {
    let mut candidates: Vec<Candidate> = PATHS.iter().map(ran).collect();
    candidates.extend(["ipvlan-l2", "ipvlan-l3", "ipvlan-l3s"].map(absent));
    let requests = candidates.iter().flat_map(|c| &c.rates).map(|rate| rate.trials).sum::<u64>();
    Summary {
        schema: SCHEMA,
        hostgap: "0.1.0".to_owned(),
        started_unix_s: 1_795_291_500,
        seed: 17_446_744_073_709_551_557 % (1 << 62),
        experiment: experiment(),
        machine: machine(),
        server: "nginx/1.22.1".to_owned(),
        pair: None,
        progress: Progress {
            rounds_asked: 30,
            rounds: 30,
            rounds_missing: 0,
            builds: 6,
            wall_s: Some(124.6),
            stopped: None,
            trials: requests + 3,
            void_trials: 3,
            void_reasons: Vec::new(),
        },
        capacities: vec![Capacity {
            body_bytes: 100,
            rate_per_s: 234_104.0,
            samples_per_s: vec![229_780.0, 234_104.0, 236_210.5],
        }],
        loads: LOADS
            .map(|(requested_rps, of_capacity, _)| Load {
                body_bytes: 100,
                requested_rps,
                of_capacity,
                measure: record::Measure::Latency,
            })
            .to_vec(),
        candidates,
        noise: LOADS.map(noise).to_vec(),
        until: None,
        exact: Vec::new(),
        published: figures::published(),
        agreements: figures::agreements(),
        agreement: Some(
            "This run: of 5 published comparisons, 2 agree, 1 has the same direction and another size, 0 contradict, \
             1 cannot be decided by this run, 1 is not comparable."
                .to_owned(),
        ),
        sweep: None,
        timeline: None,
        witness: None,
        profiles: vec![],
        late: vec![],
        verdict:
            "macvlan and ptp+direct come closest to the host: p50 at 50 % of capacity differs by −1.8 % and \
                  +8.1 %. bridge+vxlan costs 36 % of p50 and 41 % of capacity."
                .to_owned(),
        notes: vec!["6 builds: intervals between builds rest on few values.".to_owned()],
    }
}

/// The host alone with its control.
pub(super) fn host_only() -> Summary {
    let mut summary = race();
    summary.candidates.truncate(2);
    summary.published.clear();
    summary.agreements = crate::Agreements::default();
    summary.agreement = None;
    summary.notes.clear();
    summary
}

/// The host and one contender, one load.
pub(super) fn one_contender() -> Summary {
    let mut summary = race();
    summary.candidates.truncate(3);
    summary.loads.remove(0);
    summary.noise.remove(0);
    summary.candidates.iter_mut().for_each(|candidate| {
        candidate.rates.remove(0);
        candidate.capacity_ratio = None;
    });
    summary
}

/// As many contenders as an experiment may well have, with long names.
pub(super) fn crowd() -> Summary {
    let mut summary = race();
    let contenders: Vec<Candidate> = summary.candidates.drain(2..9).collect();
    for index in 0..25 {
        let mut candidate = contenders[index % contenders.len()].clone();
        candidate.name = format!("{} with setting {index}", candidate.name);
        let factor = 1.0 + index as f64 * 0.004;
        for rate in &mut candidate.rates {
            rate.curve.iter_mut().for_each(|point| point.ns = (point.ns as f64 * factor) as u64);
        }
        summary.candidates.insert(2 + index, candidate);
    }
    summary
}

/// Too short for any p99.
pub(super) fn short() -> Summary {
    let mut summary = race();
    for rate in summary.candidates.iter_mut().flat_map(|candidate| &mut candidate.rates) {
        rate.response_ns = Quantiles { p50: rate.response_ns.p50, count: 410, ..Quantiles::default() };
        rate.ratio = Ratios { p50: rate.ratio.p50, ..Ratios::default() };
        rate.curve.retain(|point| point.quantile <= 0.95);
        rate.needs = vec![need("p90", 100, 1), need("p99", 1000, 2), need("p99.9", 10_000, 16)];
    }
    summary.noise.iter_mut().for_each(|noise| noise.p99_floor = None);
    summary
}

/// Cut off, with void trials and one candidate that never had a trial that counts.
pub(super) fn interrupted() -> Summary {
    let mut summary = race();
    summary.progress =
        Progress { rounds: 4, builds: 1, wall_s: None, void_trials: 31, trials: 108, ..summary.progress };
    summary.notes = vec!["The file is cut off: a damaged last line was left out.".to_owned()];
    summary.noise[1].verdict = Some(Verdict::Worse);
    for (index, rate) in summary.candidates.iter_mut().flat_map(|c| &mut c.rates).enumerate() {
        rate.void_trials = index as u64 % 3;
        rate.void_reasons = vec![VoidReason {
            reason: "the generator was late: p99 of its lag was 412 µs, limit 100 µs".to_owned(),
            trials: rate.void_trials,
        }];
    }
    for rate in &mut summary.candidates[5].rates {
        *rate = RateSummary {
            void_trials: 4,
            trials: 0,
            void_reasons: vec![VoidReason { reason: "the client's CPU was 99 % busy".to_owned(), trials: 4 }],
            ..empty(rate.requested_rps, rate.of_capacity)
        };
    }
    summary.candidates[5].capacity_ratio = None;
    summary.candidates[5].capacity_rps = None;
    summary
}

/// Every text that a record brings is an attack, and some figures are no figures.
pub(super) fn hostile() -> Summary {
    let evil = || {
        "</script></style><script src=\"http://x.example/\">'\"&\u{1b}\u{0}\u{9b}\u{7f}\u{202e}\u{2066}"
            .to_owned()
    };
    let mut summary = race();
    summary.hostgap = evil();
    summary.server = evil();
    summary.verdict = evil();
    summary.notes = vec![evil()];
    summary.progress.stopped = Some(evil());
    summary.experiment.name = evil();
    summary.experiment.description = evil();
    summary.experiment.candidates[0].path = evil();
    summary.machine.kernel = evil();
    summary.machine.cpu_model = evil();
    summary.machine.client_cpus = evil();
    summary.machine.server_cpus = evil();
    summary.machine.facts.insert(evil(), evil());
    summary.agreement = Some(evil());
    summary.sweep = Some(swept::hostile(&evil()));
    summary.timeline = course().timeline;
    summary.experiment.reading = evil();
    summary.experiment.reading_of = Some(record::AuthorsRun { date: evil(), machine: evil() });
    summary.agreements.obstacles = vec![crate::Obstacle { reason: evil(), figures: 1 }];
    for figure in &mut summary.published {
        (figure.path, figure.what, figure.unit, figure.source) = (evil(), evil(), evil(), evil());
        (figure.setting, figure.reason, figure.against) = (evil(), evil(), evil());
        figure.brief = evil();
        (figure.place, figure.key) = (evil(), format!("{0}/{0}/{0}/{0}", evil()));
        (figure.value, figure.ours) = (Some(f64::NAN), Some(f64::INFINITY));
        figure.ratio = Some(Ratio { value: 0.0, low: f64::NEG_INFINITY, high: f64::NAN });
    }
    summary.noise[0].p50_floor = Some(f64::INFINITY);
    for candidate in &mut summary.candidates {
        (candidate.name, candidate.path, candidate.stands_for) = (evil(), evil(), evil());
        candidate.commands = vec![evil()];
        candidate.reasons.iter_mut().for_each(|reason| *reason = evil());
        for rate in &mut candidate.rates {
            rate.verdict_reason = evil();
            rate.tail = Some(evil());
            rate.void_reasons = vec![VoidReason { reason: evil(), trials: 1 }];
            rate.server_cpu_us_per_request = Some(f64::NAN);
            rate.client_softirq_share = Some(-3.0);
            rate.ratio.p50 = Some(Ratio { value: 0.0, low: f64::NEG_INFINITY, high: f64::NAN });
            rate.curve.insert(0, CurvePoint { quantile: f64::NAN, ns: 0 });
            rate.curve.push(CurvePoint { quantile: 1.0, ns: u64::MAX });
        }
    }
    summary
}

/// The same race between two pods of one node.
pub(super) fn same_node() -> Summary {
    let mut summary = race();
    summary.experiment.placement = Placement::SameNode;
    summary
}

fn experiment() -> Experiment {
    let paths = PATHS.iter().skip(2).map(|path| path.0).chain(["ipvlan-l2", "ipvlan-l3", "ipvlan-l3s"]);
    Experiment {
        schema: 1,
        name: "default".to_owned(),
        description: "Which data path loses least against the host?".to_owned(),
        candidates: paths
            .map(|path| record::Candidate {
                path: path.to_owned(),
                required: false,
                ..record::Candidate::default()
            })
            .collect(),
        rates: vec![RequestedRate::OfCapacity(0.3), RequestedRate::OfCapacity(0.5)],
        rounds: 30,
        builds: 6,
        ..Experiment::default()
    }
}

/// One figure of each kind, of two sources.
fn machine() -> Machine {
    let facts = [
        ("clock source", "kvm-clock"),
        ("governor", "none: the hypervisor decides"),
        ("hypervisor", "Firecracker"),
        ("load average", "0.31"),
        ("mitigations", "spectre_v2: Mitigation: Retpolines; meltdown: Not affected; mds: Not affected"),
        ("scheduling", "client and server SCHED_FIFO 10"),
    ];
    Machine {
        kernel: "6.18.44".to_owned(),
        cpu_model: "AMD EPYC 7R13 Processor".to_owned(),
        cpus: 2,
        client_cpus: "0".to_owned(),
        server_cpus: "1".to_owned(),
        memory_bytes: 7_800 << 20,
        facts: facts
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<BTreeMap<_, _>>(),
    }
}

fn noise((requested_rps, _, _): (Option<f64>, Option<f64>, [f64; 5])) -> Noise {
    let floors =
        requested_rps.map_or((0.041, 0.09), |rate| if rate < 1e5 { (0.021, 0.11) } else { (0.024, 0.17) });
    Noise {
        body_bytes: 100,
        requested_rps,
        ratio: Ratios {
            p50: Some(interval(1.004, 0.02)),
            p99: Some(interval(0.98, 0.1)),
            typical_p99: requested_rps.map(|_| interval(0.99, 0.04)),
            ..Ratios::default()
        },
        p50_floor: Some(floors.0),
        p99_floor: Some(floors.1),
        typical_p99_floor: requested_rps.map(|_| 0.04),
        rps_floor: requested_rps.is_none().then_some(0.032),
        named_floor: None,
        verdict: Some(Verdict::Indistinguishable),
    }
}

fn interval(value: f64, half_width: f64) -> Ratio {
    Ratio { value, low: value / (1.0 + half_width), high: value * (1.0 + half_width) }
}

fn absent(name: &'static str) -> Candidate {
    Candidate {
        name: name.to_owned(),
        path: name.to_owned(),
        stands_for: "ipvlan on the node's wire".to_owned(),
        role: Role::Contender,
        runnable: false,
        reasons: vec!["kernel module ipvlan is missing and not built in".to_owned()],
        broke: None,
        commands: vec![format!("ip link add ipv0 link eth0 type ipvlan mode {}", &name[7..])],
        settings: Vec::new(),
        mtu: None,
        capacity_rps: None,
        capacity_ratio: None,
        rates: Vec::new(),
    }
}

fn ran(path: &Path) -> Candidate {
    let (name, stands_for, mtu, factors) = *path;
    let role = match name {
        "host" => Role::Reference,
        "host again" => Role::Control,
        _ => Role::Contender,
    };
    let commands = "ip netns add n1\nip netns add n2\nip link add eth0 netns n1 type veth peer name eth0 netns n2\n\
                    ip -n n1 addr add 192.168.100.1/24 dev eth0\nip -n n1 link set eth0 up\n\
                    ip -n n1 link add cni0 type bridge\nip netns exec n1 sysctl -w net.ipv4.ip_forward=1\n\
                    ip -n n1 route add 10.244.2.0/24 via 192.168.100.2 dev eth0 proto static metric 100 mtu lock 1500";
    Candidate {
        name: name.to_owned(),
        path: name.split(' ').next().expect("a split has a first part").to_owned(),
        stands_for: stands_for.to_owned(),
        role,
        runnable: true,
        reasons: Vec::new(),
        broke: None,
        commands: commands.lines().map(str::to_owned).collect(),
        settings: Vec::new(),
        mtu: Some(mtu),
        capacity_rps: Some(234_104.0 * factors[2]),
        capacity_ratio: (role != Role::Reference).then(|| interval(factors[2], 0.03)),
        rates: LOADS.iter().map(|load| rate(role, load, factors)).collect(),
    }
}
