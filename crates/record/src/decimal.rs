//! Figures with units, exactly: `1.5ms` is 1 500 000 ns and not the binary number next to it.

/// A figure in units that are powers of ten of the smallest unit, of which it must be a multiple; `None` if the text
/// is not such a figure, or the figure is too large.
pub(crate) fn parse(text: &str, units: &[(&str, u32)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (figure, unit) = text.split_at(digits);
    let (_, exponent) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let (whole, fraction) = figure.split_once('.').unwrap_or((figure, "0"));
    let fraction = fraction.trim_end_matches('0');
    let places = u32::try_from(fraction.len()).ok().filter(|places| places <= exponent)?;
    // `u64` would take a sign too, but there is none among digits and dots.
    let whole = whole.parse::<u64>().ok()?.checked_mul(10_u64.checked_pow(*exponent)?)?;
    let fraction = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    whole.checked_add(fraction.checked_mul(10_u64.checked_pow(exponent - places)?)?)
}

/// The figure in the first of the units that divides it, else in the last, which is the smallest.
pub(crate) fn text(figure: u64, units: &[(&str, u32)]) -> String {
    let (name, exponent) = units
        .iter()
        .find(|(_, exponent)| figure.is_multiple_of(10_u64.pow(*exponent)))
        .or(units.last())
        .expect("every kind of figure has units");
    format!("{}{name}", figure / 10_u64.pow(*exponent))
}

/// A figure as a decimal number of one unit, without needless zeros.
pub(crate) fn in_unit(figure: u64, exponent: u32) -> String {
    let unit = 10_u64.pow(exponent);
    let (whole, fraction) = (figure / unit, figure % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let fraction = format!("{fraction:0>width$}", width = exponent as usize);
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: &[(&str, u32)] = &[("k", 3), ("", 0)];

    #[track_caller]
    fn check(written: &str, expected: Option<u64>) {
        assert_eq!(parse(written, UNITS), expected, "{written:?}");
    }

    #[test]
    fn figures_are_exact_or_none() {
        check("7", Some(7));
        check(" 7k ", Some(7000));
        check("1.25K", Some(1250));
        check("1.2500k", Some(1250));
        check("1.", Some(1));
        check("0.0005k", None);
        check("1.5", None);
        for none in ["", "k", ".", ".5k", "1.2.3k", "-1", "+1", "1e3", "1 k", "7m", "99999999999999999999"] {
            check(none, None);
        }
        check("18446744073709551615", Some(u64::MAX));
        check("18446744073709551615k", None);
    }

    #[test]
    fn figures_are_printed_in_the_greatest_unit() {
        assert_eq!([7000, 7001, 0].map(|figure| text(figure, UNITS)), ["7k", "7001", "0k"]);
        assert_eq!([1250, 7000, 5].map(|figure| in_unit(figure, 3)), ["1.25", "7", "0.005"]);
    }
}
