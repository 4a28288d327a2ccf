//! Figures as people read them.

/// A share as a percentage: `12.5 %`, `0.02 %`.
pub(crate) fn percent(share: f64) -> String {
    let hundredths = share * 100.0;
    if hundredths >= 10.0 || hundredths == 0.0 {
        format!("{hundredths:.0} %")
    } else if hundredths >= 1.0 {
        format!("{hundredths:.1} %")
    } else {
        format!("{hundredths:.2} %")
    }
}

/// Bytes in the unit that leaves few digits: `64 KiB`, `6.0 MiB`.
pub(crate) fn bytes(bytes: f64) -> String {
    const UNITS: [(&str, f64); 3] = [("GiB", 1_073_741_824.0), ("MiB", 1_048_576.0), ("KiB", 1024.0)];
    match UNITS.iter().find(|(_, size)| bytes >= *size) {
        None => format!("{bytes:.0} B"),
        Some((unit, size)) if bytes / size < 10.0 => format!("{:.1} {unit}", bytes / size),
        Some((unit, size)) => format!("{:.0} {unit}", bytes / size),
    }
}

/// Bytes a second as bits a second: `4.0 Mbit/s`.
pub(crate) fn bits_per_s(bytes_per_s: f64) -> String {
    let bits = bytes_per_s * 8.0;
    match bits {
        _ if bits >= 1e9 => format!("{:.1} Gbit/s", bits / 1e9),
        _ if bits >= 1e6 => format!("{:.1} Mbit/s", bits / 1e6),
        _ => format!("{:.0} kbit/s", bits / 1e3),
    }
}

/// Microseconds: `0.30 ms`, `80 ms`.
pub(crate) fn millis(us: f64) -> String {
    if us >= 10_000.0 { format!("{:.0} ms", us / 1000.0) } else { format!("{:.2} ms", us / 1000.0) }
}

/// The share of a part in a whole; 0 if the whole is 0.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_few_digits() {
        assert_eq!(
            [percent(0.5), percent(0.015), percent(0.0002), percent(0.0)],
            ["50 %", "1.5 %", "0.02 %", "0 %"]
        );
        assert_eq!([bytes(512.0), bytes(65536.0), bytes(6.5e6)], ["512 B", "64 KiB", "6.2 MiB"]);
        assert_eq!([bits_per_s(5e5), bits_per_s(5e8)], ["4.0 Mbit/s", "4.0 Gbit/s"]);
        assert_eq!([millis(300.0), millis(80_000.0)], ["0.30 ms", "80 ms"]);
        assert_eq!((share(1, 0), share(1, 4)), (0.0, 0.25));
    }
}
