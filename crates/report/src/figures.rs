//! Figures as people read them: three digits, a unit, and no more than is known.

use std::fmt;

use record::Measure;
use verdict::Verdict;

use crate::quantities::{Load, Ratio};

/// A duration with its unit: "48.3 µs", "1.24 ms".
pub(crate) fn duration_ns(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        _ if ns < 999.5 => format!("{ns} ns"),
        _ if ns < 999.5e3 => format!("{} µs", three_digits(ns / 1e3)),
        _ if ns < 999.5e6 => format!("{} ms", three_digits(ns / 1e6)),
        _ => format!("{} s", three_digits(ns / 1e9)),
    }
}

/// A longer time: "40 s", "12 min", "3.5 h", "9 days".
pub(crate) fn span_s(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{} s", trimmed(s, 1)),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{} h", trimmed(s / 3_600.0, 1)),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// A rate: "950", "20.0k", "1.25M".
pub(crate) fn rate(per_s: f64) -> String {
    match per_s {
        r if r < 999.5 => three_digits(r),
        r if r < 999.5e3 => format!("{}k", three_digits(r / 1e3)),
        r => format!("{}M", three_digits(r / 1e6)),
    }
}

/// An interval that spans more than this factor carries no information.
const SPAN_MAX: f64 = 100.0;
/// From this ratio on a change is in times instead of per cent.
const TIMES_MIN: f64 = 10.0;

/// Whether an interval carries no information.
pub(crate) fn is_unresolved(low: f64, high: f64) -> bool {
    high / low > SPAN_MAX
}

/// A ratio with its interval: "1.03 ±0.02", or "1.45 −0.10 +0.14" where the sides differ; "unresolved" where two builds
/// are all there is, and differ.
pub(crate) fn ratio(ratio: &Ratio) -> String {
    let Ratio { value, low, high } = *ratio;
    if is_unresolved(low, high) {
        return "unresolved".to_owned();
    }
    let widest = (value - low).max(high - value);
    let digits = match widest {
        w if w < 0.005 => 3,
        w if w < 2.0 => 2,
        w if w < 20.0 => 1,
        _ => 0,
    };
    let (below, above) = (format!("{:.digits$}", value - low), format!("{:.digits$}", high - value));
    if below == above {
        format!("{value:.digits$} ±{above}")
    } else {
        format!("{value:.digits$} −{below} +{above}")
    }
}

/// A ratio as a change: "+45 %", "−3.2 %"; times instead of per cent from a factor of ten on.
pub(crate) fn change(ratio: f64) -> String {
    if ratio >= TIMES_MIN {
        return times(ratio);
    }
    let sign = if ratio < 1.0 { '−' } else { '+' };
    format!("{sign}{}", percent((ratio - 1.0).abs()))
}

/// A ratio as a change with its interval: "+3.1 % (+1.0 … +5.2)", "×7.00 (×4.00 … ×12.0)".
pub(crate) fn change_within(ratio: &Ratio) -> String {
    let Ratio { value, low, high } = *ratio;
    // In two units the ends could not be compared.
    if high >= TIMES_MIN {
        return format!("{} ({} … {})", times(value), times(low), times(high));
    }
    let end = |end: f64| change(end).trim_end_matches(" %").to_owned();
    format!("{} ({} … {})", change(value), end(low), end(high))
}

fn times(ratio: f64) -> String {
    format!("×{}", three_digits(ratio))
}

/// A share: "12 %", "3.2 %", "0.14 %"; "99.6 %", since only all is 100 %.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        p if p < 1.0 => format!("{} %", trimmed(p, 2)),
        p if p < 10.0 => format!("{} %", trimmed(p, 1)),
        p if (99.0..100.0).contains(&p) => format!("{} %", below_hundred(p, 1)),
        p => format!("{p:.0} %"),
    }
}

/// A share of capacity that was asked for: as [`percent`], but "12.5 %" where it is that.
pub(crate) fn asked(share: f64) -> String {
    let hundredths = share * 1e4;
    if (hundredths - hundredths.round()).abs() < 1e-6 {
        return format!("{} %", trimmed(share * 100.0, 2));
    }
    percent(share)
}

/// The noise, or what is known of a ratio, as the share that a ratio must lie above 1 by. One below 1 must be so many
/// times as small, which is more per cent off than it looks: "±3.2 %", but "×1.38 either way", since ×0.70 is noise
/// then.
pub(crate) fn noise(floor: f64) -> String {
    if floor < EITHER_WAY_MIN {
        format!("±{}", percent(floor))
    } else {
        format!("{} either way", times(1.0 + floor))
    }
}

/// From here on per cent up and down are not the same.
pub(crate) const EITHER_WAY_MIN: f64 = 0.1;

/// Who loses requests, where that decides: "requests without an answer 2 % (host 0 %)".
pub(crate) fn unanswered(own: f64, others: f64, reference: &str) -> String {
    format!("requests without an answer {} ({reference} {})", percent(own), percent(others))
}

/// What a load is called: "100 B at 30 % (20.0k/s)".
pub(crate) fn load(load: &Load) -> String {
    let body = load.body_bytes;
    match (load.requested_rps, load.of_capacity) {
        (Some(per_s), Some(share)) => format!("{body} B at {} ({}/s)", asked(share), rate(per_s)),
        (Some(per_s), None) => format!("{body} B at {}/s", rate(per_s)),
        (None, _) => format!("{body} B, {}", unpaced(load.measure)),
    }
}

/// As a table has it: "100 B at 30 % (20.0k/s)".
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&load(self))
    }
}

/// The name of a load without a rate: a request waits for the previous answer, a stream does not wait.
pub(crate) fn unpaced(measure: Measure) -> &'static str {
    match measure {
        Measure::Latency => "closed loop",
        Measure::Bandwidth | Measure::Packets => "no rate limit",
        Measure::Frames => "as fast as they are judged",
    }
}

/// A count with its noun: "1 round", "3 rounds".
pub(crate) fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A number with at most `decimals` decimals, without trailing zeros.
pub(crate) fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A percentage below 100 with so many decimals, and as many more as it takes not to be 100, which is certainty.
fn below_hundred(percent: f64, decimals: usize) -> String {
    let is_below = |decimals: &usize| trimmed(percent, *decimals) != "100";
    trimmed(percent, (decimals..PERCENT_DECIMALS_MAX).find(is_below).unwrap_or(PERCENT_DECIMALS_MAX))
}

/// More are not told apart from rounding errors.
const PERCENT_DECIMALS_MAX: usize = 9;

/// The level of an interval: "98.8 %", "99.998 %".
pub(crate) fn level(level: f64, decimals: usize) -> String {
    format!("{} %", below_hundred(100.0 * level, decimals))
}

/// The least and the greatest of several levels of intervals: "99.3 %", or "98 to 99.3 %". `None` if there is none.
pub(crate) fn level_range(levels: impl Iterator<Item = f64>) -> Option<String> {
    let levels: Vec<f64> = levels.collect();
    let ends = [levels.iter().copied().reduce(f64::min)?, levels.iter().copied().reduce(f64::max)?];
    let [least, most] = ends.map(|end| level(end, 2));
    let range = || format!("{} to {most}", least.trim_end_matches(" %"));
    Some(if least == most { most.clone() } else { range() })
}

/// 1.24, 12.4 or 124.
pub(crate) fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

pub(crate) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reference => "reference",
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Indistinguishable => "indistinguishable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: &str, expected: &str) {
        assert_eq!(found, expected);
    }

    #[test]
    fn durations_and_rates_have_three_digits() {
        check(&duration_ns(0), "0 ns");
        check(&duration_ns(999), "999 ns");
        check(&duration_ns(48_349), "48.3 µs");
        check(&duration_ns(999_499), "999 µs");
        check(&duration_ns(999_500), "1.00 ms");
        check(&duration_ns(203_000_000), "203 ms");
        check(&duration_ns(3_600_000_000_000), "3600 s");
        check(&rate(950.0), "950");
        check(&rate(9_999.0), "10.0k");
        check(&rate(20_000.0), "20.0k");
        check(&rate(1_250_000.0), "1.25M");
        check(&span_s(4.25), "4.2 s");
        check(&span_s(100.0), "100 s");
        check(&span_s(720.0), "12 min");
        check(&span_s(12_600.0), "3.5 h");
        check(&span_s(800_000.0), "9 days");
    }

    #[test]
    fn a_ratio_shows_both_sides_of_its_interval() {
        let of = |value, low, high| ratio(&Ratio { value, low, high });
        check(&of(1.03, 1.01, 1.05), "1.03 ±0.02");
        check(&of(1.45, 1.35, 1.59), "1.45 −0.10 +0.14");
        check(&of(1.0012, 0.9991, 1.0033), "1.001 ±0.002");
        check(&of(12.0, 5.0, 29.0), "12.0 −7.0 +17.0");
        check(&of(1.0, 0.0001, 10_908.0), "unresolved");
    }

    #[test]
    fn noise_is_the_same_factor_on_both_sides() {
        check(&noise(0.032), "±3.2 %");
        check(&noise(0.38), "×1.38 either way");
        check(&noise(103.68), "×105 either way");
    }

    #[test]
    fn no_level_is_certainty() {
        check(&level(0.9881, 1), "98.8 %");
        check(&level(0.9998, 1), "99.98 %");
        for look in 1..=15 {
            let tested = 1.0 - 0.05 * stats::Level::Early { look }.share() / 7.0;
            for text in [level(tested, 1), level(tested, 2), level_range([0.95, tested].into_iter()).unwrap()]
            {
                assert!(!text.contains("100"), "look {look}: {text}");
            }
        }
        check(&level_range([0.98, 0.99995].into_iter()).unwrap(), "98 to 99.995 %");
    }

    #[test]
    fn changes_and_shares() {
        check(&change(1.45), "+45 %");
        check(&change(0.968), "−3.2 %");
        check(&change(1.0), "+0 %");
        check(&change(25.0), "×25.0");
        check(&change_within(&Ratio { value: 1.031, low: 1.01, high: 1.052 }), "+3.1 % (+1 … +5.2)");
        check(&change_within(&Ratio { value: 7.0, low: 4.0, high: 12.0 }), "×7.00 (×4.00 … ×12.0)");
        check(&percent(0.0014), "0.14 %");
        check(&percent(0.3), "30 %");
        check(&asked(0.3), "30 %");
        check(&asked(0.125), "12.5 %");
        check(&asked(20.0 / 66.0), "30 %");
        check(&percent(0.9958), "99.6 %");
        check(&percent(0.99999), "99.999 %");
        check(&percent(0.99), "99 %");
        check(&percent(1.0), "100 %");
    }
}
