//! The command-line options for faults.

use std::num::NonZeroU32;
use std::time::Duration;

use ::load::serve::{Delay, Faults, Freeze, Mixture, Trickle};

use crate::units;

/// Deliberate delays and faults of the responder.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Known delays and faults")]
pub(super) struct FaultArgs {
    /// Answer that long after a request arrived: 1ms; exp:1ms, exponentially distributed with that mean; or
    /// 98%:1ms,2%:20ms, several delays by their shares.
    #[arg(long, value_name = "DELAY")]
    delay: Option<String>,
    /// Stop all threads for LENGTH every PERIOD; the first time one PERIOD after the start.
    #[arg(long, value_name = "LENGTH/PERIOD")]
    freeze: Option<String>,
    /// Answer that share of the HTTP requests with status 503.
    #[arg(long, value_name = "PERCENT")]
    errors: Option<String>,
    /// Close the connection after half of the answer, for that share of the requests; over UDP, do not answer.
    #[arg(long, value_name = "PERCENT")]
    cut: Option<String>,
    /// The same, but reset the connection.
    #[arg(long, value_name = "PERCENT")]
    reset: Option<String>,
    /// Send answers in pieces of BYTES, one every TIME.
    #[arg(long, value_name = "BYTES/TIME")]
    trickle: Option<String>,
    /// The seed of the random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// The faults that the arguments mean.
pub(super) fn faults(args: &FaultArgs) -> Result<Faults, String> {
    let optional = |text: &Option<String>| text.as_deref().map_or(Ok(0.0), share);
    Ok(Faults {
        delay: args.delay.as_deref().map(delay).transpose()?,
        freeze: args.freeze.as_deref().map(freeze).transpose()?,
        errors: optional(&args.errors)?,
        cuts: optional(&args.cut)?,
        resets: optional(&args.reset)?,
        trickle: args.trickle.as_deref().map(trickle).transpose()?,
        seed: args.seed,
    })
}

/// `1ms`, `exp:1ms` or `98%:1ms,2%:20ms`.
fn delay(text: &str) -> Result<Delay, String> {
    let because = |why: String| format!("--delay {text}: {why}");
    if let Some(mean) = text.strip_prefix("exp:") {
        return units::duration(mean).map(|mean| Delay::Exponential { mean }).map_err(because);
    }
    if !text.contains(':') {
        return units::duration(text).map(Delay::Fixed).map_err(because);
    }
    let part = |part: &str| -> Result<(f64, Duration), String> {
        let bad = || format!("`{part}` is not a share and a time: 98%:1ms is expected");
        let (part_share, time) = part.split_once(':').ok_or_else(bad)?;
        Ok((share(part_share)?, units::duration(time)?))
    };
    let parts = text.split(',').map(part).collect::<Result<_, _>>().map_err(because)?;
    Mixture::new(parts).map(Delay::Mixture).map_err(because)
}

/// Parses a length and a period: `100ms/2s`.
fn freeze(text: &str) -> Result<Freeze, String> {
    let (length, period) = pair(text).ok_or_else(|| format!("--freeze {text}: 100ms/2s is expected"))?;
    Ok(Freeze { length: units::duration(length)?, period: units::duration(period)? })
}

/// Parses bytes and an interval: `16/10ms`.
fn trickle(text: &str) -> Result<Trickle, String> {
    let (bytes, every) = pair(text).ok_or_else(|| format!("--trickle {text}: 16/10ms is expected"))?;
    let bytes = NonZeroU32::new(units::bytes(bytes)?)
        .ok_or_else(|| format!("--trickle {text}: a piece has at least one byte"))?;
    Ok(Trickle { bytes, every: units::duration(every)? })
}

fn pair(text: &str) -> Option<(&str, &str)> {
    text.split_once('/')
}

/// `1%` and `0.1%` as parts of one.
fn share(text: &str) -> Result<f64, String> {
    let bad = || format!("`{text}` is not a share: 1% or 0.1% is expected, 0% to 100% are possible");
    let digits = text.strip_suffix('%').filter(|digits| digits.starts_with(|c: char| c.is_ascii_digit()));
    let percent: f64 = digits.and_then(|digits| digits.parse().ok()).ok_or_else(bad)?;
    if (0.0..=100.0).contains(&percent) { Ok(percent / 100.0) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn delays() {
        assert_eq!(delay("1ms"), Ok(Delay::Fixed(MS)));
        assert_eq!(delay("exp:20us"), Ok(Delay::Exponential { mean: MS / 50 }));
        let mixture = Mixture::new(vec![(0.98, MS), (0.02, 20 * MS)]).unwrap();
        assert_eq!(delay("98%:1ms,2%:20ms"), Ok(Delay::Mixture(mixture)));
        for (text, says) in [
            ("98%:1ms", "--delay 98%:1ms: the shares add up to 98 %, not to 100 %"),
            ("98%:1ms,2%", "`2%` is not a share and a time"),
            ("98:1ms,2%:2ms", "`98` is not a share"),
            ("exp:fast", "`fast` is not a time"),
            ("1", "`1` is not a time"),
            ("", "is not a time"),
        ] {
            let error = delay(text).expect_err(text);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn freezes_and_trickles() {
        assert_eq!(freeze("100ms/2s"), Ok(Freeze { length: 100 * MS, period: 2000 * MS }));
        assert!(freeze("100ms").is_err() && freeze("100ms/x").is_err());
        let bytes = NonZeroU32::new(16).unwrap();
        assert_eq!(trickle("16/10ms"), Ok(Trickle { bytes, every: 10 * MS }));
        assert!(trickle("0/10ms").is_err() && trickle("16").is_err() && trickle("x/1ms").is_err());
    }

    #[test]
    fn shares() {
        assert_eq!((share("1%"), share("0.1%"), share("100%")), (Ok(0.01), Ok(0.001), Ok(1.0)));
        for text in ["", "%", "1", "-1%", "101%", "inf%", "nan%", "1%%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
