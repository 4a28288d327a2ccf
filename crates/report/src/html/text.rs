//! Figures for readers: three significant digits, narrow spaces between thousands, and the unit in the column's head.

use record::Placement;

use crate::figures::{self, EITHER_WAY_MIN, unpaced};
use crate::{Load, Quantiles, Ratio};

/// Between groups of three digits: U+202F, narrow and never broken.
const GROUP: char = '\u{202f}';

/// What stands where a figure cannot be given.
pub(super) const NONE: &str = "–";

/// Nanoseconds as microseconds with three significant digits: `23.1`, `1 230`.
pub(super) fn micros(ns: u64) -> String {
    significant(ns as f64 / 1e3)
}

pub(super) fn micros_or_none(ns: Option<u64>) -> String {
    ns.map_or_else(|| NONE.to_owned(), micros)
}

/// A figure with three significant digits, thousands grouped; [`NONE`] for an invalid number.
pub(super) fn significant(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    // Rounding may reach the next power of ten: 9.996 is 10.0 and not 10.00.
    let unit = 10_f64.powf(magnitude - 2.0);
    let rounded = (value / unit).round() * unit;
    let decimals = (2.0 - (rounded.abs().log10() + 1e-9).floor()).clamp(0.0, 6.0);
    grouped_text(&format!("{rounded:.0$}", decimals as usize))
}

/// Figures with a sign: `+1.20`, `−0.31`.
pub(super) fn signed(value: f64, decimals: usize) -> String {
    let sign = if value < 0.0 { '−' } else { '+' };
    format!("{sign}{:.decimals$}", value.abs())
}

/// The same without zeros at the end, for ticks: `0.2`, `1`, `250`.
pub(super) fn significant_short(value: f64) -> String {
    let mut text = significant(value);
    if text.contains('.') {
        let keep = text.trim_end_matches('0').trim_end_matches('.').len();
        text.truncate(keep);
    }
    text
}

/// A whole number, thousands grouped.
pub(super) fn grouped(value: u64) -> String {
    grouped_text(&value.to_string())
}

/// The fewest and the most of something: `32`, `8 to 64`.
pub(super) fn between((fewest, most): (u32, u32)) -> String {
    match fewest == most {
        true => grouped(most.into()),
        false => format!("{} to {}", grouped(fewest.into()), grouped(most.into())),
    }
}

/// Events per second as a whole number, thousands grouped; of few of them with what is less than one.
pub(super) fn per_second(value: f64) -> String {
    match value {
        _ if !value.is_finite() => NONE.to_owned(),
        _ if value < 10.0 => significant_short(value),
        _ => grouped_text(&format!("{value:.0}")),
    }
}

/// A share of capacity as it was asked for.
fn asked(share: f64) -> String {
    figures::asked(share).replace(' ', &GROUP.to_string())
}

/// A ratio with its interval: `1.03 (0.99–1.07)`. Digits follow the width of the interval, so that the interval of a
/// long race is not rounded to a point, nor an end of one that excludes 1 to 1.
pub(super) fn ratio(ratio: &Ratio) -> String {
    let width = ratio.high - ratio.low;
    let decimals = match (ratio.value, width) {
        (value, _) if value >= 100.0 => 0,
        (value, _) if value >= 10.0 => 1,
        (_, width) if width < 0.02 => 3,
        _ => 2,
    };
    let Ratio { value, low, high } = ratio;
    let nearest = if *low > 1.0 { *low } else { *high };
    let is_shown_as_one = |decimals: &usize| format!("{nearest:.decimals$}") == format!("{:.decimals$}", 1.0);
    let decimals = match *low > 1.0 || *high < 1.0 {
        true => (decimals..DECIMALS_MAX).find(|more| !is_shown_as_one(more)).unwrap_or(DECIMALS_MAX),
        false => decimals,
    };
    format!("{value:.decimals$} ({low:.decimals$}–{high:.decimals$})")
}

/// A verdict takes more than a thousandth.
const DECIMALS_MAX: usize = 4;

/// A share as a percentage with one digit after the point below 10 %: `2.1 %`, `36 %`.
pub(super) fn percent(share: f64) -> String {
    let value = share * 100.0;
    if !value.is_finite() {
        return NONE.to_owned();
    }
    if value.abs() < 9.95 { format!("{value:.1}{GROUP}%") } else { format!("{value:.0}{GROUP}%") }
}

/// The noise as a share, or as a factor where a share up and down is not the same: `±2.1 %`, `×1.38`.
pub(super) fn noise(floor: f64) -> String {
    if floor < EITHER_WAY_MIN {
        format!("±{}", percent(floor))
    } else {
        format!("×{}", significant(1.0 + floor))
    }
}

/// Time in words: `45 s`, `2 min 5 s`, `3 h 20 min`.
pub(super) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return NONE.to_owned();
    }
    if seconds < 10.0 {
        return format!("{}{GROUP}s", significant(seconds));
    }
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole}{GROUP}s"),
        60..3600 => two_units(whole / 60, "min", whole % 60, "s"),
        3600..172_800 => two_units(whole / 3600, "h", whole % 3600 / 60, "min"),
        _ => two_units(whole / 86_400, "days", whole % 86_400 / 3600, "h"),
    }
}

/// Where the pods stood.
pub(super) fn placement(placement: Placement) -> &'static str {
    match placement {
        Placement::TwoNodes => "client and server on two nodes",
        Placement::SameNode => "client and server on one node",
    }
}

/// Bytes: `100 B`, `4 096 B`.
pub(super) fn bytes(bytes: u32) -> String {
    format!("{}{GROUP}B", grouped(u64::from(bytes)))
}

/// Bytes of memory in powers of 1024: `7.8 GiB`.
pub(super) fn memory(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..0x4000_0000 => (0x10_0000 as f64, "MiB"),
        _ => (0x4000_0000 as f64, "GiB"),
    };
    format!("{}{GROUP}{name}", significant(bytes as f64 / unit))
}

/// Seconds since 1970 as a date and time of UTC: `2026-11-21 20:05 UTC`.
pub(super) fn date(unix_s: u64) -> String {
    let (year, month, day) = civil(unix_s / 86_400);
    let (hour, minute) = (unix_s % 86_400 / 3600, unix_s % 3600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// A load in words: `50 % of capacity · 117 000 req/s · 100 B`.
pub(super) fn load(load: &Load) -> String {
    let rate = match (load.requested_rps, load.of_capacity) {
        (None, _) => unpaced(load.measure).to_owned(),
        (Some(rps), None) => format!("{} {}", per_second(rps), load.measure.unit()),
        (Some(rps), Some(share)) => {
            format!("{} of capacity · {} req/s", asked(share), per_second(rps))
        }
    };
    format!("{rate} · {}", bytes(load.body_bytes))
}

/// The load in short form for a column's head: `50 %`.
pub(super) fn load_short(load: &Load) -> String {
    match (load.requested_rps, load.of_capacity) {
        (None, _) => format!("{}, {}", unpaced(load.measure), bytes(load.body_bytes)),
        (Some(_), Some(share)) => format!("{}, {}", asked(share), bytes(load.body_bytes)),
        (Some(rps), None) => format!("{}/s, {}", per_second(rps), bytes(load.body_bytes)),
    }
}

/// A quantile as a percentile: `p50`, `p99.9`; with as many digits as there are nines, and one more.
pub(super) fn percentile(quantile: f64) -> String {
    let nines = (1.0 - quantile).max(f64::EPSILON).log10().abs().ceil() as usize;
    let mut text = format!("{:.1$}", quantile * 100.0, nines.saturating_sub(1).max(4));
    let keep = text.trim_end_matches('0').trim_end_matches('.').len();
    text.truncate(keep);
    format!("p{text}")
}

/// The columns of a table of percentiles: name and figure.
pub(super) fn quantile_columns(quantiles: &Quantiles) -> [(&'static str, Option<u64>); 7] {
    [
        ("p50", quantiles.p50),
        ("p90", quantiles.p90),
        ("p99", quantiles.p99),
        ("p99.9", quantiles.p99_9),
        ("p99.99", quantiles.p99_99),
        ("p99.999", quantiles.p99_999),
        ("max", quantiles.max),
    ]
}

/// Groups the digits before the point of a plain decimal number.
fn grouped_text(number: &str) -> String {
    let (whole, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(GROUP);
        }
        grouped.push(digit);
    }
    grouped + fraction
}

fn two_units(major: u64, major_name: &str, minor: u64, minor_name: &str) -> String {
    match minor {
        0 => format!("{major}{GROUP}{major_name}"),
        _ => format!("{major}{GROUP}{major_name} {minor}{GROUP}{minor_name}"),
    }
}

/// Year, month and day of a day since 1970-01-01, in the proleptic Gregorian calendar. Years are counted from March, so
/// that the leap day is a year's last: then 153 days are 5 months.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use record::Measure;

    use super::*;

    #[track_caller]
    fn check(found: &str, expected: &str) {
        assert_eq!(found.replace(GROUP, "_"), expected);
    }

    #[test]
    fn figures_have_three_significant_digits() {
        check(&micros(23_149), "23.1");
        check(&micros(9_996), "10.0");
        check(&micros(99_960), "100");
        check(&micros(512), "0.512");
        check(&micros(7), "0.00700");
        check(&micros(999_600), "1_000");
        check(&micros(1_234_567), "1_230");
        check(&micros(204_800_000), "205_000");
        check(&micros(1_000), "1.00");
        check(&micros(0), "0");
        check(&significant(f64::NAN), NONE);
        check(&significant(-12.345), "-12.3");
        check(&grouped(1_234_567), "1_234_567");
        check(&grouped(999), "999");
        check(&per_second(234_104.4), "234_104");
        check(&per_second(9.996), "10");
        check(&per_second(0.25), "0.25");
        check(&per_second(0.0), "0");
    }

    #[test]
    fn ratios_show_what_their_interval_allows() {
        check(&ratio(&Ratio { value: 1.0312, low: 0.9871, high: 1.0713 }), "1.03 (0.99–1.07)");
        check(&ratio(&Ratio { value: 1.0312, low: 1.0301, high: 1.0323 }), "1.031 (1.030–1.032)");
        check(&ratio(&Ratio { value: 12.31, low: 9.0, high: 15.0 }), "12.3 (9.0–15.0)");
        check(&ratio(&Ratio { value: 1.017, low: 1.0042, high: 1.03 }), "1.017 (1.004–1.030)");
        check(&ratio(&Ratio { value: 0.98, low: 0.96, high: 0.9998 }), "0.9800 (0.9600–0.9998)");
    }

    #[test]
    fn times_and_sizes_are_words() {
        check(&duration(0.25), "0.250_s");
        check(&duration(45.2), "45_s");
        check(&duration(59.7), "1_min");
        check(&duration(125.0), "2_min 5_s");
        check(&duration(12_000.0), "3_h 20_min");
        check(&duration(432_000.0), "5_days");
        check(&bytes(4096), "4_096_B");
        check(&memory(8 << 30), "8.00_GiB");
        check(&percent(0.021), "2.1_%");
        check(&percent(0.3612), "36_%");
        check(&noise(0.021), "±2.1_%");
        check(&noise(0.38), "×1.38");
        check(&percentile(0.5), "p50");
        check(&percentile(0.99999), "p99.999");
        check(&percentile(0.0), "p0");
        check(&percentile(1.0), "p100");
        // Neighbours on a curve, as far as one goes.
        let names: Vec<String> =
            (0..100).map(|step| percentile(1.0 - 10_f64.powf(-f64::from(step) / 8.0))).collect();
        let told_apart: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(told_apart.len(), names.len(), "{names:?}");
        assert!(!told_apart.contains(&"p100".to_owned()));
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        check(&date(0), "1970-01-01 00:00 UTC");
        check(&date(951_782_400), "2000-02-29 00:00 UTC");
        check(&date(1_709_251_199), "2024-02-29 23:59 UTC");
        check(&date(1_709_251_200), "2024-03-01 00:00 UTC");
        check(&date(1_795_291_500), "2026-11-21 20:05 UTC");
    }

    #[test]
    fn loads_have_names() {
        let mut of = Load {
            body_bytes: 100,
            requested_rps: Some(70_231.2),
            of_capacity: Some(0.3),
            measure: Measure::Latency,
        };
        check(&load(&of), "30_% of capacity · 70_231 req/s · 100_B");
        for (share, says) in [(0.02, "2_%"), (0.025, "2.5_%"), (0.125, "12.5_%"), (0.004, "0.4_%")] {
            of.of_capacity = Some(share);
            check(&load_short(&of), &format!("{says}, 100_B"));
        }
        of.of_capacity = None;
        check(&load(&of), "70_231 req/s · 100_B");
        of.requested_rps = None;
        check(&load(&of), "closed loop · 100_B");
        of.measure = Measure::Packets;
        check(&load(&of), "no rate limit · 100_B");
        check(&load_short(&of), "no rate limit, 100_B");
        of.requested_rps = Some(2_000.0);
        check(&load(&of), "2_000 packets/s · 100_B");
    }
}
