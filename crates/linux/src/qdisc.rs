//! Queueing disciplines to be set at the root of a link, in tc's terms.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A queueing discipline at the root of a link; except for [`Qdisc::Tbf`], one without classes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Qdisc {
    /// A wire that is long, lossy or narrow (`sch_netem`).
    Netem(Netem),
    /// A queue for each flow, sent at the flow's own pace (`sch_fq`).
    Fq(Fq),
    /// Queues of flows that drop or mark when packets wait too long (`sch_fq_codel`, RFC 8290).
    FqCodel(FqCodel),
    /// One queue, first in, first out.
    Pfifo {
        /// Packets that may wait; more are dropped.
        limit: u32,
    },
    /// Three queues by priority; as long as the link's `txqueuelen`.
    PfifoFast,
    /// A link of a certain line rate, with a queue before it (`sch_tbf`).
    Tbf(Box<Tbf>),
}

/// A token bucket: what a link sends at most, and what manages the packets that wait for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tbf {
    /// Bytes a second; packets are counted with their Ethernet header.
    pub rate_bytes_per_s: u64,
    /// Bytes that may leave at once. It must hold a packet with its header, otherwise packets of that size never pass.
    pub burst_bytes: u32,
    /// The discipline of the packets that wait, as a card's queue has one.
    pub inner: Qdisc,
}

/// What netem does to each packet. Zero or `None` turns an effect off.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Netem {
    /// Nanoseconds that a packet waits, up to `i64::MAX`.
    pub delay_ns: u64,
    /// Nanoseconds by which the delay is longer or shorter, evenly spread; at most `i32::MAX`, which is 2.1 s.
    pub jitter_ns: u64,
    /// The share of packets that are lost, independently of each other.
    pub loss: Probability,
    /// The share of packets that skip the delay and so overtake earlier ones. Has no effect without a delay.
    pub reorder: Probability,
    /// Bytes a second that pass; packets are counted with their Ethernet header.
    pub rate_bytes_per_s: Option<u64>,
    /// Packets that wait at the same time, for delay and rate together; more are dropped.
    pub limit: u32,
}

/// Options of fq; `None` leaves the kernel's default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fq {
    /// The most packets that wait, of all flows together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The most packets that wait, of one flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_limit: Option<u32>,
    /// Bytes that a flow may send before it is the next one's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantum: Option<u32>,
    /// Whether flows are held to the rate that their socket asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing: Option<bool>,
}

/// Options of fq_codel; `None` leaves the kernel's default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FqCodel {
    /// The most packets that wait, of all flows together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Microseconds that packets may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_us: Option<u32>,
    /// Microseconds for which they must have waited longer before one is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_us: Option<u32>,
    /// Bytes that a flow may send before it is the next one's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantum: Option<u32>,
    /// Packets that allow it are marked instead of dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
}

/// A probability in the kernel's way of saying it: a share of 2³² − 1, which is certainty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Probability(pub u32);

impl Probability {
    /// The nearest representable value to a ratio from 0 to 1; other values are clamped.
    pub fn from_ratio(ratio: f64) -> Probability {
        // As tc rounds (`rint` in tc/q_netem.c), so that the command and the change are the same.
        Probability((ratio.clamp(0.0, 1.0) * f64::from(u32::MAX)).round_ties_even() as u32)
    }

    /// The probability as a ratio, 0 to 1.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / f64::from(u32::MAX)
    }

    /// Whether it never happens.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Qdisc {
    /// The kernel's name of the kind (`TCA_KIND`).
    pub fn kind(&self) -> &'static str {
        match self {
            Qdisc::Netem(_) => "netem",
            Qdisc::Fq(_) => "fq",
            Qdisc::FqCodel(_) => "fq_codel",
            Qdisc::Pfifo { .. } => "pfifo",
            Qdisc::PfifoFast => "pfifo_fast",
            Qdisc::Tbf(_) => "tbf",
        }
    }

    /// Whether the discipline that the kernel reports meets the request; options left to the kernel may have any
    /// value.
    pub fn is_met_by(&self, found: &Qdisc) -> bool {
        fn met<T: PartialEq + Copy>(asked: Option<T>, found: Option<T>) -> bool {
            asked.is_none() || asked == found
        }
        match (self, found) {
            (Qdisc::Fq(asked), Qdisc::Fq(found)) => {
                met(asked.limit, found.limit)
                    && met(asked.flow_limit, found.flow_limit)
                    && met(asked.quantum, found.quantum)
                    && met(asked.pacing, found.pacing)
            }
            (Qdisc::FqCodel(asked), Qdisc::FqCodel(found)) => {
                met(asked.limit, found.limit)
                    && met(asked.target_us.map(codel_reported_us), found.target_us)
                    && met(asked.interval_us.map(codel_reported_us), found.interval_us)
                    && met(asked.quantum, found.quantum)
                    && met(asked.ecn, found.ecn)
            }
            // The burst is reported as a time, in units of 64 ns.
            (Qdisc::Tbf(asked), Qdisc::Tbf(found)) => {
                asked.rate_bytes_per_s == found.rate_bytes_per_s && asked.inner.is_met_by(&found.inner)
            }
            (asked, found) => asked == found,
        }
    }
}

/// The time that CoDel reports for a requested one. It counts in units of 1024 ns and rounds down twice (`CODEL_SHIFT`
/// in include/net/codel.h), so tc shows 4999 µs for 5 ms.
fn codel_reported_us(asked_us: u32) -> u32 {
    let units = (u64::from(asked_us) * 1000) >> 10;
    u32::try_from((units << 10) / 1000).expect("rounded down from a figure that fits")
}

impl fmt::Display for Qdisc {
    /// In tc's syntax: `netem limit 1000 delay 40ms loss 0.2%`. A tbf, which takes two commands in tc, is printed
    /// together with its inner discipline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Qdisc::Netem(netem) => write!(f, "{netem}"),
            Qdisc::Fq(Fq { limit, flow_limit, quantum, pacing }) => {
                option(f, "limit", limit.as_ref())?;
                option(f, "flow_limit", flow_limit.as_ref())?;
                option(f, "quantum", quantum.as_ref())?;
                pacing.map_or(Ok(()), |on| f.write_str(if on { " pacing" } else { " nopacing" }))
            }
            Qdisc::FqCodel(FqCodel { limit, target_us, interval_us, quantum, ecn }) => {
                option(f, "limit", limit.as_ref())?;
                option(f, "target", target_us.map(|us| format!("{us}us")).as_ref())?;
                option(f, "interval", interval_us.map(|us| format!("{us}us")).as_ref())?;
                option(f, "quantum", quantum.as_ref())?;
                ecn.map_or(Ok(()), |on| f.write_str(if on { " ecn" } else { " noecn" }))
            }
            Qdisc::Pfifo { limit } => write!(f, " limit {limit}"),
            Qdisc::PfifoFast => Ok(()),
            Qdisc::Tbf(tbf) => write!(f, "{tbf}, inside it {}", tbf.inner),
        }
    }
}

fn option<T: fmt::Display>(f: &mut fmt::Formatter<'_>, name: &str, value: Option<&T>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name} {value}"))
}

impl fmt::Display for Tbf {
    /// The options alone, each with a space before it. The limit is that of the queue that is inside until another is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tbf { rate_bytes_per_s, burst_bytes, .. } = self;
        write!(f, " rate {} burst {burst_bytes} limit {burst_bytes}", bits(*rate_bytes_per_s))
    }
}

impl fmt::Display for Netem {
    /// The options alone, each with a space before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " limit {}", self.limit)?;
        if self.delay_ns > 0 || self.jitter_ns > 0 {
            write!(f, " delay {}", time(self.delay_ns))?;
        }
        if self.jitter_ns > 0 {
            write!(f, " {}", time(self.jitter_ns))?;
        }
        for (name, share) in [("loss", self.loss), ("reorder", self.reorder)] {
            if !share.is_zero() {
                write!(f, " {name} {share}")?;
            }
        }
        self.rate_bytes_per_s.map_or(Ok(()), |rate| write!(f, " rate {}", bits(rate)))
    }
}

impl fmt::Display for Probability {
    /// The shortest percentage that is read as the same share again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |digits: usize| format!("{:.digits$}", self.ratio() * 100.0);
        let same = |text: &String| {
            text.parse().is_ok_and(|percent: f64| Probability::from_ratio(percent / 100.0) == *self)
        };
        // Ten decimals of a percentage distinguish 2³² shares.
        let shortest = (0..10).map(text).find(same).unwrap_or_else(|| text(10));
        write!(f, "{shortest}%")
    }
}

/// The greatest unit that divides it.
fn time(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let whole = units.into_iter().find(|(unit, _)| ns.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{ns}ns"), |(unit, name)| format!("{}{name}", ns / unit))
}

fn bits(bytes_per_s: u64) -> String {
    let bits = u128::from(bytes_per_s) * 8;
    let units = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit")];
    let whole = units.into_iter().find(|(unit, _)| bits.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{bits}bit"), |(unit, name)| format!("{}{name}", bits / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(qdisc: &Qdisc, text: &str) {
        assert_eq!(qdisc.to_string(), text);
    }

    #[test]
    fn disciplines_are_printed_in_the_syntax_of_tc() {
        let wan = Netem {
            delay_ns: 40_000_000,
            jitter_ns: 1_500_000,
            loss: Probability::from_ratio(0.002),
            reorder: Probability::from_ratio(0.01),
            rate_bytes_per_s: Some(12_500_000),
            limit: 1000,
        };
        check(&Qdisc::Netem(wan), "netem limit 1000 delay 40ms 1500us loss 0.2% reorder 1% rate 100mbit");
        let slow = Netem { delay_ns: 1, rate_bytes_per_s: Some(1), limit: 7, ..Netem::default() };
        check(&Qdisc::Netem(slow), "netem limit 7 delay 1ns rate 8bit");
        check(&Qdisc::Fq(Fq::default()), "fq");
        let fq = Fq { limit: Some(1), flow_limit: Some(2), quantum: Some(3), pacing: Some(false) };
        check(&Qdisc::Fq(fq), "fq limit 1 flow_limit 2 quantum 3 nopacing");
        let codel = FqCodel { target_us: Some(5000), ecn: Some(true), ..FqCodel::default() };
        check(&Qdisc::FqCodel(codel), "fq_codel target 5000us ecn");
        check(&Qdisc::Pfifo { limit: 5 }, "pfifo limit 5");
        check(&Qdisc::PfifoFast, "pfifo_fast");
    }

    #[test]
    fn a_share_is_printed_so_that_it_is_read_again() {
        for share in [0, 1, 2, 8_589_935, u32::MAX / 3, u32::MAX - 1, u32::MAX] {
            let text = Probability(share).to_string();
            let percent: f64 = text.trim_end_matches('%').parse().unwrap();
            assert_eq!(Probability::from_ratio(percent / 100.0), Probability(share), "{text}");
        }
        assert_eq!(Probability::from_ratio(0.002).to_string(), "0.2%");
        assert_eq!(Probability::from_ratio(7.0), Probability(u32::MAX));
    }

    #[test]
    fn what_was_left_to_the_kernel_may_be_anything() {
        let asked = Qdisc::Fq(Fq { limit: Some(100), ..Fq::default() });
        let found = |limit| Qdisc::Fq(Fq { limit: Some(limit), quantum: Some(3028), ..Fq::default() });
        assert!(asked.is_met_by(&found(100)));
        assert!(!asked.is_met_by(&found(101)));
        assert!(!asked.is_met_by(&Qdisc::Pfifo { limit: 100 }));
        let asked = |target_us| Qdisc::FqCodel(FqCodel { target_us: Some(target_us), ..FqCodel::default() });
        // What Linux reports for its default, and for the time nearest to it.
        assert!(asked(5000).is_met_by(&asked(4999)));
        assert!(!asked(5002).is_met_by(&asked(4999)));
    }
}
