//! Parsing and formatting of figures with units.

use std::time::Duration;

/// A rate of requests on the command line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RateArg {
    /// Requests per second, 0.000001 to 1e9.
    PerSecond(f64),
    /// No rate: a closed loop.
    Max,
}

/// `500`, `20k`, `1.5M`, `0.5` requests per second, or `max`.
pub(crate) fn rate(text: &str) -> Result<RateArg, String> {
    if text == "max" {
        return Ok(RateArg::Max);
    }
    let range = "0.000001 to 1000M requests per second are possible, or `max`";
    let rate_per_s = figure(text, &[("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6)])
        .ok_or_else(|| format!("`{text}` is not a rate: 500, 20k, 1.5M or 0.5 is expected; {range}"))?;
    // The schedule decides whether it supports the rate.
    match ::load::schedule::Rate::new(rate_per_s) {
        Ok(_) => Ok(RateArg::PerSecond(rate_per_s)),
        Err(_) => Err(format!("a rate of {text} is not possible: {range}")),
    }
}

/// `10s`, `500ms`, `2m`, `1h`, `1m30s`; zero too. The unit is needed.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time: 500ms, 10s, 2m, 1h or 1m30s is expected");
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
        let after =
            rest[digits..].find(|c: char| !c.is_ascii_alphabetic()).map_or(rest.len(), |at| digits + at);
        let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        seconds += figure(&rest[..after], &units).ok_or_else(bad)?;
        rest = &rest[after..];
    }
    if text.is_empty() || seconds < 0.0 {
        return Err(bad());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| bad())
}

/// `100`, `4k` (4096), `1M` bytes.
pub(crate) fn bytes(text: &str) -> Result<u32, String> {
    let bad = || format!("`{text}` is not a size: bytes such as 100, 4k or 1M are expected");
    let bytes =
        figure(text, &[("", 1.0), ("k", 1024.0), ("K", 1024.0), ("M", 1_048_576.0)]).ok_or_else(bad)?;
    if bytes.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(&bytes) {
        return Err(bad());
    }
    Ok(bytes as u32)
}

/// A time with three digits: `412 ns`, `23.4 µs`, `1.23 ms`, `5.00 s`.
pub(crate) fn time(ns: u64) -> String {
    let units = [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    // The unit is chosen after rounding: 999.9 µs is 1.00 ms.
    let fits = |(_, factor): &(&str, f64)| ns as f64 / factor < 999.5;
    let (unit, factor) = units.into_iter().find(fits).unwrap_or(units[3]);
    let value = ns as f64 / factor;
    let digits = match value {
        _ if unit == "ns" || value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

/// A decimal number with one of the units. Longer units must not come after their own endings.
fn figure(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic() || c == '%').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    // `f64` would accept "inf" and "1e9" too, but letters are units here.
    let number: f64 = number.parse().ok()?;
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let per_second = |text| match rate(text) {
            Ok(RateArg::PerSecond(rate)) => rate,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(per_second("500"), 500.0);
        assert_eq!(per_second("20k"), 20e3);
        assert_eq!(per_second("1.5M"), 1.5e6);
        assert_eq!(per_second("0.5"), 0.5);
        assert_eq!(rate("max"), Ok(RateArg::Max));
        for text in ["0", "-5", "0k", "nan", "inf", "1e3", "", "k", "20 k", "20x", "5000M", "30%"] {
            let error = rate(text).expect_err(text);
            assert!(error.contains("0.000001 to 1000M"), "{error}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for text in ["", "10", "soon", "-1s", "s", "10 s", "5x", "1m30", "9999999999999999999999h"] {
            assert!(duration(text).is_err_and(|error| error.contains("is not a time")), "{text}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(
            (bytes("100"), bytes("4k"), bytes("1M"), bytes("0")),
            (Ok(100), Ok(4096), Ok(1 << 20), Ok(0))
        );
        for text in ["", "-1", "1.5", "5000M", "0x", "1G"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_three_digits() {
        let texts =
            [0, 412, 999, 1000, 23_449, 999_499, 999_900, 1_234_000, 99_960_000, 5_000_000_000].map(time);
        let expected = [
            "0 ns", "412 ns", "999 ns", "1.00 µs", "23.4 µs", "999 µs", "1.00 ms", "1.23 ms", "100 ms",
            "5.00 s",
        ];
        assert_eq!(texts, expected);
    }
}
