//! Queueing disciplines as they are written: a kind and some of its options, as tc takes them.

use std::ops::RangeInclusive;
use std::str::SplitAsciiWhitespace;

use linux::Qdisc;
use linux::qdisc::{Fq, FqCodel};

/// What can be written, in words.
pub(crate) const EXPECTED: &str = "\"fq\" (limit N, flow_limit N, quantum BYTES, pacing, nopacing), \"fq_codel\" (limit N, \
     target TIME, interval TIME, quantum BYTES, ecn, noecn), \"pfifo\" (limit N) or \"pfifo_fast\", with any of its options";

/// As long as a queue of a network card usually is.
const PFIFO_PACKETS: u32 = 1000;
const PACKETS: RangeInclusive<u32> = 1..=1_000_000;
/// The quantum that fq_codel accepts unchanged (`fq_codel_change` in net/sched/sch_fq_codel.c).
const QUANTUM: RangeInclusive<u32> = 256..=1 << 20;
/// The range of times in microseconds.
const TIME: RangeInclusive<u32> = 1..=10_000_000;

/// Parses a queueing discipline. Missing options have the kernel's defaults, except the length of a pfifo. `None` if
/// the text is invalid.
pub(crate) fn read(text: &str) -> Option<Qdisc> {
    let mut words = text.split_ascii_whitespace();
    match words.next()? {
        "fq" => fq(words).map(Qdisc::Fq),
        "fq_codel" => fq_codel(words).map(Qdisc::FqCodel),
        "pfifo" => {
            let mut limit = None;
            while let Some(word) = words.next() {
                match word {
                    "limit" => once(&mut limit, number(&mut words, PACKETS)?)?,
                    _ => return None,
                }
            }
            Some(Qdisc::Pfifo { limit: limit.unwrap_or(PFIFO_PACKETS) })
        }
        "pfifo_fast" => words.next().is_none().then_some(Qdisc::PfifoFast),
        _ => None,
    }
}

fn fq(mut words: SplitAsciiWhitespace<'_>) -> Option<Fq> {
    let mut fq = Fq::default();
    while let Some(word) = words.next() {
        match word {
            "limit" => once(&mut fq.limit, number(&mut words, PACKETS)?)?,
            "flow_limit" => once(&mut fq.flow_limit, number(&mut words, PACKETS)?)?,
            "quantum" => once(&mut fq.quantum, number(&mut words, QUANTUM)?)?,
            "pacing" => once(&mut fq.pacing, true)?,
            "nopacing" => once(&mut fq.pacing, false)?,
            _ => return None,
        }
    }
    Some(fq)
}

fn fq_codel(mut words: SplitAsciiWhitespace<'_>) -> Option<FqCodel> {
    let mut codel = FqCodel::default();
    while let Some(word) = words.next() {
        match word {
            "limit" => once(&mut codel.limit, number(&mut words, PACKETS)?)?,
            "target" => once(&mut codel.target_us, time(&mut words)?)?,
            "interval" => once(&mut codel.interval_us, time(&mut words)?)?,
            "quantum" => once(&mut codel.quantum, number(&mut words, QUANTUM)?)?,
            "ecn" => once(&mut codel.ecn, true)?,
            "noecn" => once(&mut codel.ecn, false)?,
            _ => return None,
        }
    }
    Some(codel)
}

/// An option is written once.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

fn number(words: &mut SplitAsciiWhitespace<'_>, range: RangeInclusive<u32>) -> Option<u32> {
    words.next()?.parse().ok().filter(|number| range.contains(number))
}

/// In microseconds; with a unit, as tc has them.
fn time(words: &mut SplitAsciiWhitespace<'_>) -> Option<u32> {
    let word = words.next()?;
    let digits = word.trim_end_matches(|sign: char| sign.is_ascii_alphabetic());
    let unit_us = match &word[digits.len()..] {
        "us" => 1,
        "ms" => 1000,
        "s" => 1_000_000,
        _ => return None,
    };
    digits.parse::<u32>().ok()?.checked_mul(unit_us).filter(|us| TIME.contains(us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(read(text).map(|qdisc| qdisc.to_string()).as_deref(), expected, "{text}");
    }

    #[test]
    fn kinds_and_their_options_are_read() {
        check("fq", Some("fq"));
        check("fq  flow_limit 200 nopacing", Some("fq flow_limit 200 nopacing"));
        check("fq limit 20000 quantum 9000 pacing", Some("fq limit 20000 quantum 9000 pacing"));
        check("fq_codel interval 80ms target 4ms ecn", Some("fq_codel target 4000us interval 80000us ecn"));
        check("pfifo", Some("pfifo limit 1000"));
        check("pfifo limit 50", Some("pfifo limit 50"));
        check("pfifo_fast", Some("pfifo_fast"));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "sfq",
            "fq target 5ms",
            "fq limit",
            "fq limit 0",
            "fq limit 5 limit 6",
            "fq pacing nopacing",
            "fq quantum 10",
            "fq_codel target 5",
            "fq_codel target 5m",
            "fq_codel target 0ms",
            "fq_codel interval 5000s",
            "pfifo limit 10 ecn",
            "pfifo_fast limit 5",
        ] {
            check(text, None);
        }
    }
}
