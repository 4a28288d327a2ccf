//! Simulated searches with known truth: how often does a search report a gain that does not exist, and how
//! often does it find one that does?
//!
//! A visit scatters by 5 % on its own, and the machine drifts by another 5 % from visit to visit (an
//! autoregression with a coefficient of 0.95), as machines do. Worlds differ in the effects of their options.

use stats::Random;
use stats::search::{
    Arm, Nothing, Response, Rules, SearchConclusion, Space, Stage, StageName, Trials, Unfit, search,
};

/// The effects of options, and the scatter of a machine.
#[derive(Clone)]
struct World {
    /// How many values each factor has.
    values: Vec<usize>,
    /// The effect of each option.
    effects: Vec<f64>,
    /// The additional effect of two options together.
    pairs: Vec<(usize, usize, f64)>,
    /// Options with which every visit fails.
    broken: Vec<usize>,
    /// Visits of those options give this response once the share of visits left is below this.
    below: (f64, Response),
    /// The effect of each option on the guarded figure.
    harms: Vec<f64>,
    /// The scatter of a single visit.
    noise: f64,
    visits: f64,
    /// The share of visits in which the machine freezes for a moment, which gives the scatter a tail on one
    /// side.
    freezes: f64,
    /// How much of the budget a visit takes in the second half.
    late_visit: f64,
}

impl World {
    /// Factors of two values each, with one of these effects.
    fn of(effects: &[f64], visits: f64) -> World {
        World {
            values: vec![1; effects.len()],
            effects: effects.to_vec(),
            pairs: vec![],
            broken: vec![],
            below: (1.0, Response::Broken("it does not work".to_owned())),
            harms: vec![0.0; effects.len()],
            noise: 0.05,
            freezes: 0.0,
            visits,
            late_visit: 1.0,
        }
    }

    fn gain(&self, arm: &Arm) -> f64 {
        let alone: f64 = arm.options().iter().map(|option| self.effects[*option]).sum();
        let together = self.pairs.iter().filter(|(a, b, _)| arm.holds(*a) && arm.holds(*b));
        alone + together.map(|(_, _, gain)| gain).sum::<f64>()
    }

    fn search(&self, seed: u64) -> (SearchConclusion, Machine<'_>) {
        let mut machine = Machine {
            world: self,
            random: Random::from_seed(seed),
            drift: 0.0,
            left: self.visits,
            stages: vec![],
        };
        let rules = Rules { seed, resolve_ln: 1.0, guards: vec![0.02] };
        let answer = search(&Space::new(&self.values), &rules, &mut machine).unwrap().answer;
        (answer, machine)
    }

    /// The share of searches for which `is` holds, with the ends of its 95 % interval (Wilson).
    fn share(&self, searches: u64, is: impl Fn(&SearchConclusion) -> bool) -> [f64; 3] {
        let count = (0..searches).filter(|seed| is(&self.search(1_000 + seed).0)).count() as f64;
        let (n, z) = (searches as f64, 1.96_f64);
        let p = count / n;
        let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
        let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt() / (1.0 + z * z / n);
        [p, middle - half, middle + half]
    }
}

struct Machine<'a> {
    world: &'a World,
    random: Random,
    drift: f64,
    left: f64,
    stages: Vec<Stage>,
}

impl Machine<'_> {
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.random.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.random.unit()).cos()
    }

    /// The logarithm of a visit's result.
    fn visit(&mut self) -> f64 {
        self.drift = 0.95 * self.drift + 0.05 * (1.0 - 0.95_f64.powi(2)).sqrt() * self.normal();
        let shown = self.drift + self.world.noise * self.normal();
        let frozen = self.world.freezes > 0.0 && self.random.unit() < self.world.freezes;
        if frozen { shown - 0.3 - 0.2 * self.random.unit() } else { shown }
    }
}

impl Trials for Machine<'_> {
    type Error = std::convert::Infallible;

    fn block(&mut self, arms: &[Arm]) -> Result<Vec<Response>, Self::Error> {
        let visit = if self.left < self.world.visits / 2.0 { self.world.late_visit } else { 1.0 };
        self.left -= visit * (arms.len() as f64 + 1.0);
        let mut order: Vec<usize> = (0..=arms.len()).collect();
        self.random.shuffle(&mut order);
        let mut seen = vec![(0.0, 0.0); arms.len() + 1];
        for at in order {
            seen[at] = (self.visit(), self.visit());
        }
        let incumbent = seen[arms.len()];
        let respond = |(arm, (gain, harm)): (&Arm, &(f64, f64))| {
            let (share, response) = &self.world.below;
            let is_late = self.left <= share * self.world.visits;
            if is_late && arm.options().iter().any(|option| self.world.broken.contains(option)) {
                return response.clone();
            }
            let harms: f64 = arm.options().iter().map(|option| self.world.harms[*option]).sum();
            Response::Measured {
                gain: self.world.gain(arm) + gain - incumbent.0,
                harms: vec![Some(harms + harm - incumbent.1)],
            }
        };
        Ok(arms.iter().zip(&seen).map(respond).collect())
    }

    fn visits_left(&self) -> f64 {
        self.left
    }

    fn ended(&mut self, stage: &Stage) -> Result<(), Self::Error> {
        self.stages.push(stage.clone());
        Ok(())
    }
}

fn adopted(answer: &SearchConclusion) -> Option<&Arm> {
    match answer {
        SearchConclusion::Better { arm, .. } => Some(arm),
        SearchConclusion::Unfit(_) | SearchConclusion::Nothing(_) => None,
    }
}

/// Eight options have no effect, two harm, one gives 3 % and one 6 %.
const USUAL: [f64; 12] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.05, -0.05, 0.03, 0.06];

/// Figures of many more searches, for the documentation:
/// `cargo test -p stats --test it -- --ignored --nocapture`.
#[test]
#[ignore = "takes a minute; prints figures and asserts nothing new"]
fn figures() {
    for visits in [250.0, 400.0, 800.0, 1600.0] {
        let usual = World::of(&USUAL, visits);
        let picked = |option: usize| {
            move |answer: &SearchConclusion| adopted(answer).is_some_and(|arm| arm.holds(option))
        };
        let dead = |answer: &SearchConclusion| {
            adopted(answer).is_some_and(|arm| arm.options().iter().any(|o| *o < 10))
        };
        let null = World::of(&[0.0; 12], visits);
        let some = |answer: &SearchConclusion| adopted(answer).is_some();
        println!(
            "{visits}: +6 % {:.3?}  +3 % {:.3?}  idle or harmful {:.3?}  nothing helps: {:.3?}",
            usual.share(2000, picked(11)),
            usual.share(2000, picked(10)),
            usual.share(2000, dead),
            null.share(4000, some)
        );
        let exact = usual.share(2000, |answer| adopted(answer) == Some(&Arm::of([10, 11])));
        let mean: f64 =
            (0..2000).map(|seed| adopted(&usual.search(seed).0).map_or(0.0, |arm| usual.gain(arm))).sum();
        let unfit = null.share(2000, |answer| matches!(answer, SearchConclusion::Unfit(_)));
        println!(
            "    both and nothing else {exact:.3?}  mean true gain {:.4}  refused {unfit:.3?}",
            mean / 2000.0
        );
    }
}

/// 1 500 searches without any helpful option: over many knobs, over the values of one, and over a single
/// setting.
#[test]
fn nothing_is_rarely_taken_for_something() {
    for (values, visits) in [(vec![1; 12], 400.0), (vec![3], 150.0), (vec![1], 60.0)] {
        let options = values.iter().sum();
        let world = World { values, ..World::of(&vec![0.0; options], visits) };
        let [share, _, high] = world.share(1500, |answer| adopted(answer).is_some());
        assert!(share < 0.05 && high < 0.06, "{share} of searches, {high} at most");
        assert!(share > 0.01, "{share}: a search that never reports a gain proves nothing");
    }
}

/// Student's test assumes normal noise, and that of a machine that freezes now and then is not normal.
#[test]
fn nothing_is_rarely_taken_for_something_where_the_machine_freezes() {
    for visits in [250.0, 400.0] {
        let world = World { freezes: 0.05, ..World::of(&[0.0; 12], visits) };
        let [share, _, high] = world.share(1_000, |answer| adopted(answer).is_some());
        assert!(share < 0.05 && high < 0.06, "{share} of searches, {high} at most");
    }
}

#[test]
fn a_harmful_world_is_left_as_it_is() {
    let world = World::of(&[-0.02, -0.05, -0.1, -0.2, -0.01, -0.4], 400.0);
    let [share, ..] = world.share(200, |answer| adopted(answer).is_some());
    assert!(share < 0.01, "{share}");
}

#[test]
fn what_helps_is_found_and_what_does_not_is_dropped() {
    let world = World::of(&USUAL, 400.0);
    let [found, ..] = world.share(250, |answer| adopted(answer).is_some_and(|arm| arm.holds(11)));
    assert!(found > 0.8, "{found}");
    let [idle, ..] = world.share(250, |answer| {
        adopted(answer).is_some_and(|arm| arm.options().iter().any(|option| *option < 10))
    });
    assert!(idle < 0.2, "{idle}");
    let with_time = World { visits: 1600.0, ..world };
    let [both, ..] = with_time.share(100, |answer| adopted(answer) == Some(&Arm::of([10, 11])));
    assert!(both > 0.8, "{both}");
}

/// The reported gain comes from the hold-out. Over many searches its mean is the true gain.
#[test]
fn the_reported_gain_is_the_true_one() {
    let world = World::of(&USUAL, 800.0);
    let (mut error, mut held, mut count) = (0.0, 0, 0);
    for seed in 0..300 {
        let SearchConclusion::Better { arm, effect, .. } = world.search(seed).0 else { continue };
        error += effect.ln - world.gain(&arm);
        held += i32::from(effect.ratio().holds(world.gain(&arm).exp()));
        count += 1;
    }
    let count = f64::from(count);
    assert!((error / count).abs() < 0.004, "the reported gain is {} too high", error / count);
    assert!(f64::from(held) / count > 0.91, "{held} of {count} intervals contain the truth");
}

/// A gain whose interval holds 0 is none that the confirmation would adopt.
#[test]
fn the_reported_gain_is_a_proven_one() {
    let world = World::of(&USUAL, 400.0);
    for seed in 0..250 {
        let SearchConclusion::Better { effect, .. } = world.search(seed).0 else { continue };
        assert!(effect.ratio().low > 1.0, "{effect:?} of search {seed}");
    }
}

/// From its recheck on the winner gains little, which is unproven, and a guarded figure is worse.
#[test]
fn harm_that_shows_in_the_recheck_is_refused() {
    let response = Response::Measured { gain: 0.005, harms: vec![Some(0.15)] };
    let world = World { broken: vec![0], below: (0.2, response), ..World::of(&[0.1, 0.02], 600.0) };
    let mut harmed = 0;
    for seed in 0..100 {
        let (answer, machine) = world.search(seed);
        if machine.stages.iter().any(|stage| stage.name == StageName::Recheck) {
            assert_eq!(adopted(&answer), None, "{answer:?}");
            harmed += i32::from(matches!(answer, SearchConclusion::Nothing(Nothing::Harms { .. })));
        }
    }
    assert!(harmed > 10, "{harmed}");
}

/// Where no option helps, the race still has a winner with a flattering score. The hold-out does not use that
/// score.
#[test]
fn the_race_flatters_and_the_hold_out_does_not() {
    let world = World::of(&[0.0; 12], 400.0);
    let (mut raced, mut held_out, mut count) = (0.0, 0.0, 0.0);
    for seed in 0..300 {
        let machine = world.search(seed).1;
        let gain = |name: StageName, at: usize| {
            let stage = machine.stages.iter().find(|stage| stage.name == name)?;
            let winner =
                if name == StageName::Race { stage.arms.iter().position(|one| one.kept)? } else { at };
            stage.arms[winner].effect.map(|effect| effect.ln)
        };
        let Some((race, hold_out)) = gain(StageName::Race, 0).zip(gain(StageName::Confirmation, 1)) else {
            continue;
        };
        raced += race;
        held_out += hold_out;
        count += 1.0;
    }
    assert!(raced / count > 0.015, "raced {}", raced / count);
    assert!((held_out / count).abs() < 0.003, "held out {}", held_out / count);
}

/// Two options that have an effect only together, among others that have none.
#[test]
fn what_works_only_together_is_found() {
    let world = World { pairs: vec![(2, 5, 0.08)], ..World::of(&[0.0; 8], 800.0) };
    let [found, ..] = world.share(150, |answer| adopted(answer) == Some(&Arm::of([2, 5])));
    assert!(found > 0.7, "{found}");
    // Each gives 8 %, and both together give no more.
    let either = World { pairs: vec![(0, 1, -0.08)], ..World::of(&[0.08, 0.08, 0.0, 0.0, 0.0], 800.0) };
    let [one, ..] = either
        .share(150, |answer| adopted(answer).is_some_and(|arm| arm == &Arm::of([0]) || arm == &Arm::of([1])));
    assert!(one > 0.7, "{one}");
}

/// Values of one knob are never combined, and the best of them is found.
#[test]
fn the_best_value_of_a_knob_is_found() {
    let world = World { values: vec![3, 1], ..World::of(&[0.02, 0.08, -0.03, 0.0], 500.0) };
    let [found, ..] = world.share(150, |answer| adopted(answer).is_some_and(|arm| arm.holds(1)));
    assert!(found > 0.9, "{found}");
}

#[test]
fn what_does_not_work_is_named_and_the_others_are_searched() {
    let world = World { broken: vec![0, 4], ..World::of(&USUAL, 800.0) };
    let (mut found, searches) = (0, 100);
    for seed in 0..searches {
        let (answer, machine) = world.search(seed);
        if matches!(answer, SearchConclusion::Unfit(_)) {
            continue;
        }
        let screening = machine.stages.iter().find(|stage| stage.name == StageName::Screening).unwrap();
        let broken: Vec<usize> = screening
            .arms
            .iter()
            .filter(|one| one.broken.is_some())
            .map(|one| one.arm.options()[0])
            .collect();
        assert_eq!(broken, [0, 4]);
        found +=
            i32::from(adopted(&answer).is_some_and(|arm| arm.holds(11) && !arm.holds(0) && !arm.holds(4)));
    }
    assert!(found > 85, "{found} of {searches}");
    let all = World { broken: (0..12).collect(), ..World::of(&USUAL, 800.0) };
    assert_eq!(all.search(1).0, SearchConclusion::Nothing(Nothing::NoneBetter));
}

/// If the winner of the race later fails, or its visits are void, the answer says so instead of "it did not
/// help".
#[test]
fn a_winner_that_ends_is_reported_as_such() {
    let ending = |response: Response| World {
        broken: vec![0],
        below: (0.3, response),
        ..World::of(&[0.2, 0.0], 600.0)
    };
    let broke = ending(Response::Broken("no room".to_owned()));
    let is_reported = |answer: &SearchConclusion| match answer {
        SearchConclusion::Nothing(Nothing::Broke { arm, why }) => arm.holds(0) && why == "no room",
        _ => false,
    };
    let [reported, ..] = broke.share(50, is_reported);
    assert!(reported > 0.95, "{reported}");
    let mut void = ending(Response::Void);
    void.below.0 = 0.7;
    let is_reported = |answer: &SearchConclusion| matches!(answer, SearchConclusion::Nothing(Nothing::TooFewBlocks { arm }) if arm.holds(0));
    let [reported, ..] = void.share(50, is_reported);
    assert!(reported > 0.9, "{reported}");
}

/// A gain at the expense of a guarded figure is refused.
#[test]
fn a_gain_at_the_cost_of_a_guarded_figure_is_refused() {
    let mut world = World::of(&[0.1, 0.0], 600.0);
    world.harms[0] = 0.15;
    let [refused, ..] = world.share(
        200,
        |answer| matches!(answer, SearchConclusion::Nothing(Nothing::Harms { arm, guard: 0, .. }) if arm.holds(0)),
    );
    assert!(refused > 0.95, "{refused}");
    world.harms[0] = 0.0;
    let [taken, ..] = world.share(200, |answer| adopted(answer).is_some_and(|arm| arm.holds(0)));
    assert!(taken > 0.85, "{taken}");
}

#[test]
fn noise_is_refused_before_it_is_searched_in() {
    let noisy = World { noise: 0.4, ..World::of(&USUAL, 800.0) };
    let (answer, machine) = noisy.search(7);
    assert!(
        matches!(answer, SearchConclusion::Unfit(Unfit::Noisy { visit_ln, .. }) if visit_ln > 0.2),
        "{answer:?}"
    );
    assert_eq!(machine.stages.len(), 1, "only the incumbent was visited");
    let short = World::of(&USUAL, 100.0).search(7).0;
    assert!(
        matches!(short, SearchConclusion::Unfit(Unfit::Short { needed, .. }) if needed > 100.0),
        "{short:?}"
    );
}

/// A search takes no more visits than its budget, except for the minimum number of blocks in a stage.
#[test]
fn the_budget_is_kept() {
    for visits in [260.0, 400.0, 1000.0] {
        for seed in 0..50 {
            let world = World::of(&USUAL, visits);
            let left = world.search(seed).1.left;
            assert!(left > -0.05 * visits, "{left} of {visits}");
        }
    }
}

/// The machine gets busier in the middle of the search. The later stages must still get their shares.
#[test]
fn visits_that_take_longer_leave_time_to_ablate() {
    let world = World { late_visit: 1.5, ..World::of(&USUAL, 1000.0) };
    let (mut together, mut ablated) = (0, 0);
    for seed in 0..100 {
        let (answer, machine) = world.search(seed);
        assert!(machine.left > -0.05 * world.visits, "{} of {}", machine.left, world.visits);
        let confirmed = machine.stages.iter().find(|stage| stage.name == StageName::Confirmation);
        if confirmed.is_some_and(|stage| stage.arms[1].kept && stage.arms[1].arm.options().len() > 1) {
            together += 1;
            // For some the recheck sees no gain. That takes time too.
            ablated += i32::from(!matches!(answer, SearchConclusion::Better { ablated: false, .. }));
        }
    }
    assert!(together > 50 && ablated == together, "{ablated} of {together}");
}

/// A single setting has no opponent in a race, and needs few visits.
#[test]
fn a_single_setting_is_confirmed_at_once() {
    let world = World::of(&[0.08], 60.0);
    assert!(Space::new(&[1]).visits_min() <= 40.0, "{}", Space::new(&[1]).visits_min());
    let [found, ..] = world.share(200, |answer| adopted(answer).is_some());
    assert!(found > 0.8, "{found}");
    let names: Vec<StageName> = world.search(1).1.stages.iter().map(|stage| stage.name).collect();
    assert_eq!(names, [StageName::Calibration, StageName::Confirmation]);
}

#[test]
fn a_seed_gives_the_same_answer() {
    let world = World::of(&USUAL, 400.0);
    assert_eq!(world.search(3).0, world.search(3).0);
}
