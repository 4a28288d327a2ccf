//! When a published ratio and ours agree. docs/method.md argues for each part of the rule, in the words used here.
//!
//! All computations use the logarithm, where a ratio and its inverse have equal distance from 1.

use record::Direction;

use crate::published::Agreement;
use crate::quantities::Ratio;

/// A published ratio of 1 is met by a ratio within this of it, a twentieth: the least difference that matters in a
/// choice of data path.
const EQUIVALENCE: f64 = 1.05;

/// Our ratio with its precision.
#[derive(Clone, Copy)]
pub(super) struct OurRatio<'a> {
    pub(super) ratio: &'a Ratio,
    /// The noise floor of this load and metric: less than it is no difference.
    pub(super) floor: f64,
}

/// A verdict with what it rests on.
#[derive(Debug, PartialEq)]
pub(super) struct AgreementResult {
    pub(super) agreement: Agreement,
    /// Why, where the figures alone do not show it.
    pub(super) why: String,
    /// If this run cannot decide: the resolution that would decide, as far as is known now.
    pub(super) resolution_wanted: Option<f64>,
}

impl AgreementResult {
    fn plain(agreement: Agreement) -> AgreementResult {
        AgreementResult { agreement, why: String::new(), resolution_wanted: None }
    }

    fn because(agreement: Agreement, why: impl Into<String>) -> AgreementResult {
        AgreementResult { why: why.into(), ..AgreementResult::plain(agreement) }
    }
}

impl OurRatio<'_> {
    /// The least effect that the race can see: half of the interval's width, or the noise floor if that is more.
    pub(super) fn resolution(&self) -> f64 {
        let half_width = (self.ratio.high / self.ratio.low).ln() / 2.0;
        half_width.max(self.floor)
    }

    /// 1: above 1, −1: below, 0: it may be 1, by the interval or by the noise.
    fn way(&self) -> i8 {
        if self.ratio.value.ln().abs() <= self.floor { 0 } else { way(self.ratio) }
    }
}

fn way(ratio: &Ratio) -> i8 {
    i8::from(ratio.low > 1.0) - i8::from(ratio.high < 1.0)
}

/// A direction: our interval, and the noise, have to leave 1 out on one side.
pub(super) fn direction(theirs: Direction, ours: OurRatio<'_>) -> AgreementResult {
    let side = match theirs {
        Direction::Lower => -1,
        Direction::Higher => 1,
    };
    match ours.way() * side {
        1 => AgreementResult::plain(Agreement::Agrees),
        -1 => AgreementResult::plain(Agreement::Contradicts),
        _ => AgreementResult::because(Agreement::CannotTell, held(ours)),
    }
}

/// Why ours may be 1.
fn held(ours: OurRatio<'_>) -> &'static str {
    if way(ours.ratio) == 0 { "our interval contains 1" } else { "ours is no farther from 1 than the noise" }
}

/// A ratio with what its rounding leaves open.
pub(super) fn size(theirs: &Ratio, ours: OurRatio<'_>) -> AgreementResult {
    match way(theirs) {
        0 => no_effect(theirs, ours),
        side => effect(theirs, side, ours),
    }
}

/// They found a difference.
fn effect(theirs: &Ratio, side: i8, ours: OurRatio<'_>) -> AgreementResult {
    let published = theirs.value.ln().abs();
    let resolution = ours.resolution();
    let meet = theirs.low <= ours.ratio.high && ours.ratio.low <= theirs.high;
    let near = meet || (theirs.value / ours.ratio.value).ln().abs() <= ours.floor;
    let plain = |agreement| AgreementResult::plain(agreement);
    let open = |why: String| AgreementResult {
        agreement: Agreement::CannotTell,
        why,
        // Then an interval around either the published ratio or 1 leaves the other out.
        resolution_wanted: Some(published / 2.0),
    };
    match (near, ours.way() * side) {
        (_, -1) => plain(Agreement::Contradicts),
        (false, 1) => plain(Agreement::SameDirection),
        (false, _) => AgreementResult::because(
            Agreement::Contradicts,
            format!("the published size is ruled out, and {}", held(ours)),
        ),
        (true, _) if resolution >= published => open(format!(
            "this race can only see factors of {} and more, and the published one is {}",
            factor(resolution),
            factor(published)
        )),
        (true, 1) => plain(Agreement::Agrees),
        (true, _) => open(format!("{}, and the published ratio is not ruled out", held(ours))),
    }
}

/// As a factor, with only significant digits.
fn factor(ln: f64) -> String {
    let factor = ln.exp();
    if factor < 10.0 { format!("{factor:.2}") } else { format!("{factor:.0}") }
}

/// They found none, or none that their rounding shows. To find none likewise is not to fail to find one: our whole
/// interval has to lie near 1 (two one-sided tests).
fn no_effect(theirs: &Ratio, ours: OurRatio<'_>) -> AgreementResult {
    // Where their rounding leaves more open than the margin, the publication claims no more than that.
    let (low, high) = (theirs.low.min(1.0 / EQUIVALENCE), theirs.high.max(EQUIVALENCE));
    let margin = high.ln().min(-low.ln());
    let within = low <= ours.ratio.low && ours.ratio.high <= high;
    let beyond = ours.ratio.low > high || ours.ratio.high < low;
    let bounds = format!("{low:.2} to {high:.2}, which counts as no difference,");
    if within && ours.floor <= margin {
        AgreementResult::because(Agreement::Agrees, format!("{bounds} contains our whole interval"))
    } else if beyond && ours.way() != 0 {
        AgreementResult::because(Agreement::Contradicts, format!("{bounds} contains no part of our interval"))
    } else {
        let wide = if within { "the noise is greater" } else { "our interval extends beyond it" };
        AgreementResult {
            agreement: Agreement::CannotTell,
            why: format!("{bounds} is narrower than this race can resolve: {wide}"),
            resolution_wanted: Some(margin / 2.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(theirs: [f64; 3], ours: [f64; 3], floor: f64) -> AgreementResult {
        let [theirs, ours] = [theirs, ours].map(|[value, low, high]| Ratio { value, low, high });
        size(&theirs, OurRatio { ratio: &ours, floor })
    }

    #[track_caller]
    fn check(theirs: [f64; 3], ours: [f64; 3], floor: f64, expected: Agreement) {
        let judged = judged(theirs, ours, floor);
        assert_eq!(judged.agreement, expected, "{judged:?}");
    }

    #[test]
    fn ratios_agree_where_the_race_would_have_seen_it_otherwise() {
        check([1.4, 1.4, 1.4], [1.3, 1.2, 1.45], 0.0, Agreement::Agrees);
        check([1.4, 1.18, 1.67], [1.1, 1.05, 1.2], 0.0, Agreement::Agrees);
        check([1.4, 1.4, 1.4], [1.3, 1.28, 1.32], 0.08, Agreement::Agrees);
        check([1.4, 1.4, 1.4], [1.3, 1.28, 1.32], 0.02, Agreement::SameDirection);
        check([0.7, 0.7, 0.7], [0.75, 0.65, 0.87], 0.05, Agreement::Agrees);
    }

    /// An interval from a quarter to nearly all, above a noise of 88 %, holds 0.77 as it holds most others.
    #[test]
    fn an_interval_wider_than_the_published_effect_decides_nothing() {
        let wide = judged([0.77, 0.765, 0.775], [0.45, 0.22, 0.94], 0.63);
        assert_eq!(wide.agreement, Agreement::CannotTell);
        assert_eq!(
            wide.why,
            "this race can only see factors of 2.07 and more, and the published one is 1.30"
        );
        assert!((wide.resolution_wanted.unwrap() - 0.77_f64.ln().abs() / 2.0).abs() < 1e-9);
        // Quiet, and still wider than what it would have to see; the direction alone is no agreement of size.
        check([1.2, 1.2, 1.2], [1.6, 1.05, 2.4], 0.0, Agreement::CannotTell);
        // Narrow, and the noise is the wider of the two.
        check([1.2, 1.2, 1.2], [1.25, 1.2, 1.3], 0.19, Agreement::CannotTell);
        check([1.2, 1.2, 1.2], [1.25, 1.2, 1.3], 0.17, Agreement::Agrees);
    }

    #[test]
    fn what_may_be_anything_agrees_with_nothing() {
        check([1.8, 1.6, 2.0], [2.2, 0.2, 35.0], 0.0, Agreement::CannotTell);
        check([1.2, 1.2, 1.2], [1.1, 1.05, 1.15], 0.4, Agreement::CannotTell);
        // Narrow enough for the effect, and on the edge of none.
        let edge = judged([1.2, 1.2, 1.2], [1.1, 0.99, 1.22], 0.0);
        assert_eq!(
            (edge.agreement, &*edge.why),
            (Agreement::CannotTell, "our interval contains 1, and the published ratio is not ruled out")
        );
    }

    #[test]
    fn ratios_on_one_side_have_one_direction() {
        check([2.0, 1.8, 2.2], [1.2, 1.1, 1.3], 0.01, Agreement::SameDirection);
        check([0.5, 0.5, 0.5], [0.8, 0.7, 0.9], 0.01, Agreement::SameDirection);
        check([0.5, 0.5, 0.5], [1.2, 1.1, 1.3], 0.01, Agreement::Contradicts);
        // Wider than the published effect, and beyond it all the same.
        check([1.2, 1.2, 1.2], [4.0, 1.5, 10.7], 0.01, Agreement::SameDirection);
    }

    #[test]
    fn no_difference_where_they_found_one_contradicts() {
        check([1.5, 1.4, 1.6], [1.01, 0.97, 1.05], 0.01, Agreement::Contradicts);
        check([1.5, 1.4, 1.6], [1.04, 1.03, 1.05], 0.05, Agreement::Contradicts);
        check([0.954, 0.953, 0.955], [1.0, 0.999, 1.001], 0.002, Agreement::Contradicts);
    }

    #[test]
    fn none_is_found_by_an_interval_near_1_alone() {
        check([1.0, 1.0, 1.0], [1.001, 0.97, 1.03], 0.02, Agreement::Agrees);
        check([1.0, 1.0, 1.0], [1.03, 1.02, 1.045], 0.01, Agreement::Agrees);
        check([1.0, 1.0, 1.0], [1.0, 0.9, 1.11], 0.01, Agreement::CannotTell);
        check([1.0, 1.0, 1.0], [1.04, 1.02, 1.08], 0.01, Agreement::CannotTell);
        check([1.0, 1.0, 1.0], [1.001, 0.97, 1.03], 0.3, Agreement::CannotTell);
        check([1.0, 0.97, 1.03], [1.2, 1.1, 1.3], 0.01, Agreement::Contradicts);
        check([1.0, 0.97, 1.03], [1.2, 1.1, 1.3], 0.3, Agreement::CannotTell);
        // 0.9 ÷ 0.9, both to a tenth, claims no more than this.
        check([1.0, 0.895, 1.118], [1.08, 1.07, 1.1], 0.01, Agreement::Agrees);
    }

    const DRAWS: u32 = 5_000;

    /// How often each verdict results for a published ratio and a different true one, at intervals of 95 %: agrees,
    /// same direction, contradicts, cannot tell.
    fn shares(published: f64, truth: f64, half_width: f64) -> [f64; 4] {
        let mut random = stats::Random::from_seed(20_261_123);
        let mut counts = [0_u32; 4];
        let theirs = Ratio { value: published, low: published, high: published };
        for _ in 0..DRAWS {
            // Normal with mean 0 and standard deviation 1 (Box and Muller).
            let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
            let normal = radius * (std::f64::consts::TAU * random.unit()).cos();
            let ln = truth.ln() + normal * half_width / 1.96;
            let [value, low, high] = [ln, ln - half_width, ln + half_width].map(f64::exp);
            let place =
                match size(&theirs, OurRatio { ratio: &Ratio { value, low, high }, floor: 0.0 }).agreement {
                    Agreement::Agrees => 0,
                    Agreement::SameDirection => 1,
                    Agreement::Contradicts => 2,
                    _ => 3,
                };
            counts[place] += 1;
        }
        counts.map(|count| f64::from(count) / f64::from(DRAWS))
    }

    /// What the verdicts are worth, for a published ratio of 1.3 (0.26 in the logarithm).
    #[test]
    fn verdicts_are_wrong_no_more_often_than_the_level_says() {
        for half_width in [0.02, 0.05, 0.1, 0.13, 0.2, 0.25, 0.5, 1.0] {
            let [by_nothing, same, ..] = shares(1.3, 1.0, half_width);
            assert!(by_nothing + same < 0.033, "±{half_width}: nothing there, and found {by_nothing} {same}");
            let [right, other, wrong, open] = shares(1.3, 1.3, half_width);
            assert!(other + wrong < 0.055, "±{half_width}: as published, and denied {other} {wrong}");
            match half_width {
                // An interval around either leaves the other out.
                narrow if narrow <= 0.13 => assert!(right > 0.94, "±{narrow}: {right}"),
                wide if wide > 0.27 => assert!(right == 0.0 && open > 0.94, "±{wide}: {right} {open}"),
                _ => {}
            }
            // A fifth less than published is no agreement where that can be seen.
            let [less, ..] = shares(1.3, 1.08, half_width);
            assert!(half_width > 0.05 || less < 0.01, "±{half_width}: {less}");
        }
        for half_width in [0.01, 0.02, 0.05, 0.2] {
            let [equal, ..] = shares(1.0, 1.06, half_width);
            assert!(equal < 0.033, "±{half_width}: beyond the margin, and passed for none {equal}");
            let [.., wrong, _] = shares(1.0, 1.0, half_width);
            assert!(wrong < 0.05, "±{half_width}: none there, and denied {wrong}");
        }
        assert!(shares(1.0, 1.0, 0.02)[0] > 0.99, "near 1, and narrow");
    }

    #[test]
    fn a_direction_takes_an_interval_on_one_side() {
        let check = |theirs, [value, low, high]: [f64; 3], floor, expected| {
            let ours = Ratio { value, low, high };
            assert_eq!(direction(theirs, OurRatio { ratio: &ours, floor }).agreement, expected);
        };
        check(Direction::Lower, [0.8, 0.7, 0.9], 0.05, Agreement::Agrees);
        check(Direction::Higher, [0.8, 0.7, 0.9], 0.05, Agreement::Contradicts);
        check(Direction::Lower, [1.2, 1.1, 1.3], 0.05, Agreement::Contradicts);
        check(Direction::Higher, [1.2, 1.1, 1.3], 0.05, Agreement::Agrees);
        check(Direction::Lower, [0.8, 0.6, 1.01], 0.05, Agreement::CannotTell);
        check(Direction::Lower, [0.8, 0.7, 0.9], 0.3, Agreement::CannotTell);
    }
}
