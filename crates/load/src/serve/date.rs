//! Dates as HTTP writes them.

/// Bytes of a date, always.
pub(super) const DATE_BYTES: usize = 29;

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7) from seconds since 1970, up to the year 9999.
pub(super) fn http_date(unix_s: u64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    let weekday = WEEKDAYS[(days % 7) as usize];
    let month = MONTHS[month];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Year, month from 0 and day from 1 of a day since 1970.
fn civil(days: u64) -> (u64, usize, u64) {
    let mut year = 1970;
    let mut rest = days;
    while rest >= 365 + leap(year) {
        rest -= 365 + leap(year);
        year += 1;
    }
    let lengths = [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while rest >= lengths[month] {
        rest -= lengths[month];
        month += 1;
    }
    (year, month, rest + 1)
}

/// Days that a year has more than others.
fn leap(year: u64) -> u64 {
    u64::from(year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(unix_s: u64, text: &str) {
        assert_eq!(http_date(unix_s), text);
        assert_eq!(text.len(), DATE_BYTES);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        check(0, "Thu, 01 Jan 1970 00:00:00 GMT");
        check(784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT");
        check(951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT");
        check(1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT");
        check(4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT");
    }
}
