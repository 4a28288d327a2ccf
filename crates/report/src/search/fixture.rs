//! Records of searches for tests, with figures of the size that a small virtual machine gives.

use record::{
    Candidate, Experiment, Machine, RequestedValue, SearchAnswer, SearchArm, SearchBlock, SearchOption,
    SearchRatio, SearchRecord, SearchStage, SearchVerdict, SearchVisit, Side, Tuning,
};

fn option(knob: &str, value: &str, side: Side) -> SearchOption {
    SearchOption { knob: knob.to_owned(), value: value.to_owned(), side, unmet: Vec::new() }
}

fn arm(arm: &[usize], value: f64, kept: bool) -> SearchArm {
    let ratio = Some(SearchRatio { value, low: value - 0.01, high: value + 0.01, blocks: 20 });
    SearchArm { arm: arm.to_vec(), ratio, broken: None, kept }
}

fn stage(name: &str, blocks: u32, arms: Vec<SearchArm>) -> SearchStage {
    SearchStage { name: name.to_owned(), blocks, arms }
}

/// Blocks of the incumbent and these arms.
fn blocks(number: usize, arms: &[&[usize]]) -> Vec<SearchBlock> {
    let visit = |arm: &[usize]| SearchVisit {
        arm: arm.to_vec(),
        objective: Some(100_000.0),
        guards: vec![Some(50_000.0), None],
        ..SearchVisit::default()
    };
    let visits = std::iter::once(&[][..]).chain(arms.iter().copied()).map(visit).collect();
    vec![SearchBlock { visits }; number]
}

/// A search that found two helpful settings of three, and one setting that cannot be made.
pub(crate) fn better() -> SearchRecord {
    let mut tune = Tuning::default();
    tune.both.insert("tcp_sack".to_owned(), RequestedValue::Number(0));
    tune.client.insert("tcp_rmem".to_owned(), RequestedValue::Text("4096 8192 16384".to_owned()));
    let incumbent = Candidate { path: "docker".to_owned(), ..Candidate::default() };
    let broken = SearchArm { ratio: None, broken: Some("it broke".to_owned()), ..arm(&[2], 1.0, false) };
    let winner = arm(&[0, 1], 0.9, true);
    let mut unmet = option("qdisc", "fq", Side::Both);
    unmet.unmet = vec!["this kernel has no fq".to_owned()];
    let all = [
        blocks(8, &[&[]]),
        blocks(1, &[&[0], &[1], &[2], &[0, 1]]),
        blocks(2, &[&[0], &[1], &[0, 1]]),
        blocks(5, &[&[1], &[0, 1]]),
        blocks(20, &[&[0, 1], &[]]),
        blocks(20, &[&[0, 1, 2], &[0, 1], &[1, 2]]),
    ];
    SearchRecord {
        schema: 1,
        hostgap: "0".to_owned(),
        started_unix_s: 1_795_291_500,
        seed: 1,
        experiment: Experiment { candidates: vec![incumbent], ..Experiment::default() },
        machine: Machine { kernel: "6.18.1".to_owned(), cpus: 2, ..Machine::default() },
        incumbent: "docker".to_owned(),
        objective: "p99@30%".to_owned(),
        guards: vec!["p50".to_owned(), "cpu".to_owned()],
        rate_per_s: Some(1000.0),
        budget_s: 600.0,
        options: vec![
            option("tcp_sack", "0", Side::Both),
            option("tcp_rmem", "4096 8192 16384", Side::Client),
            option("tcp_frto", "0", Side::Server),
            unmet,
        ],
        blocks: all.concat(),
        stages: vec![
            stage("calibration", 8, vec![arm(&[], 1.004, false)]),
            stage("race", 8, vec![arm(&[0], 1.1, false), arm(&[1], 0.97, false), broken, winner.clone()]),
            stage("confirmation", 20, vec![winner.clone(), arm(&[], 0.998, false)]),
            stage(
                "ablation",
                20,
                vec![arm(&[0, 1, 2], 0.9, false), arm(&[0, 1], 1.0, false), arm(&[1, 2], 0.8, true)],
            ),
        ],
        answer: Some(SearchAnswer {
            verdict: SearchVerdict::Better,
            arm: vec![0, 1],
            ratio: winner.ratio,
            guards: vec![winner.ratio, None],
            dropped: vec![2],
            why: "p99@30% is lower".to_owned(),
            resolvable: Some(0.03),
            tune,
        }),
        wall_s: 500.0,
    }
}

/// That search without a proven result.
pub(crate) fn nothing() -> SearchRecord {
    let mut search = better();
    let answer = search.answer.as_mut().expect("it has one");
    answer.verdict = SearchVerdict::NothingHelps;
    answer.why = "tcp_sack=0 was best in the race, but is no proven gain".to_owned();
    (answer.guards, answer.dropped, answer.tune) = (Vec::new(), Vec::new(), Tuning::default());
    search.stages.truncate(3);
    search
}

/// A search that was cut off in its race.
pub(crate) fn interrupted() -> SearchRecord {
    let mut search = better();
    search.stages.truncate(2);
    search.blocks.truncate(10);
    search.answer = None;
    search
}

/// A search whose texts are markup and whose figures are invalid.
pub(crate) fn hostile() -> SearchRecord {
    let mut search = better();
    let evil = "</script></style><script src=\"http://x.example/\">\u{1b}\0\u{9b}\u{7f}\u{202e}\u{2066}";
    for text in [&mut search.incumbent, &mut search.machine.kernel, &mut search.options[0].value] {
        *text = evil.to_owned();
    }
    search.options[2].unmet = vec![evil.to_owned()];
    search.stages[1].arms[2].broken = Some(evil.to_owned());
    search.stages[1].arms[0].ratio =
        Some(SearchRatio { value: f64::NAN, low: f64::NEG_INFINITY, high: f64::INFINITY, blocks: 0 });
    search.stages[2].arms[1].ratio = Some(SearchRatio { value: 1e9, low: 1e-9, high: 1e12, blocks: 3 });
    search.stages[0].arms[0].ratio = None;
    search.wall_s = f64::NAN;
    search.answer.as_mut().expect("it has one").why = evil.to_owned();
    search
}
