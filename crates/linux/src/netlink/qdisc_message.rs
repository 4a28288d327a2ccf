//! Options of queueing disciplines as `TCA_OPTIONS` holds them, both ways. The library knows fq_codel's alone.
//!
//! Layouts and numbers: include/uapi/linux/pkt_sched.h. Numbers are in the machine's byte order.

use netlink_packet_core::{DefaultNla, Emitable, Nla, NlasIterator};

use crate::qdisc::{Fq, FqCodel, Netem, Probability, Qdisc, Tbf};

/// Of netem, behind `struct tc_netem_qopt`.
mod netem {
    pub(super) const REORDER: u16 = 3;
    pub(super) const RATE: u16 = 6;
    pub(super) const RATE64: u16 = 8;
    pub(super) const LATENCY64: u16 = 10;
    pub(super) const JITTER64: u16 = 11;
    pub(super) const SLOT: u16 = 12;
    /// Bytes of `struct tc_netem_qopt`: six words, which are latency, limit, loss, gap, duplicate, jitter.
    pub(super) const HEAD: usize = 24;
}

mod fq {
    pub(super) const LIMIT: u16 = 1;
    pub(super) const FLOW_LIMIT: u16 = 2;
    pub(super) const QUANTUM: u16 = 3;
    pub(super) const PACING: u16 = 5;
}

mod codel {
    pub(super) const TARGET: u16 = 1;
    pub(super) const LIMIT: u16 = 2;
    pub(super) const INTERVAL: u16 = 3;
    pub(super) const ECN: u16 = 4;
    pub(super) const QUANTUM: u16 = 6;
    pub(super) const CE_THRESHOLD: u16 = 7;
}

mod tbf {
    pub(super) const PARAMETERS: u16 = 1;
    pub(super) const RATE64: u16 = 4;
    pub(super) const BURST: u16 = 6;
    /// `TC_LINKLAYER_ETHERNET`: without it the kernel asks for a table of sizes and times.
    pub(super) const ETHERNET: u8 = 1;
    /// Where the rate stands in a `struct tc_ratespec`, of 12 bytes.
    pub(super) const RATE: usize = 8;
    /// Where the burst stands, as a time, in a `struct tc_tbf_qopt`.
    pub(super) const BURST_TIME: usize = 28;
    /// Nanoseconds in one tick (`PSCHED_TICKS2NS` in include/net/pkt_sched.h).
    pub(super) const TICK_NS: u64 = 64;
}

/// The options of a queueing discipline besides its kind; `None` if it takes none.
pub(super) fn options(qdisc: &Qdisc) -> Option<Vec<u8>> {
    let word = |(kind, value): (u16, Option<u32>)| Some(DefaultNla::new(kind, value?.to_ne_bytes().to_vec()));
    let words =
        |list: &[(u16, Option<u32>)]| -> Vec<DefaultNla> { list.iter().copied().filter_map(word).collect() };
    Some(match qdisc {
        Qdisc::Netem(netem) => netem_options(netem),
        Qdisc::Fq(Fq { limit, flow_limit, quantum, pacing }) => bytes(&words(&[
            (fq::LIMIT, *limit),
            (fq::FLOW_LIMIT, *flow_limit),
            (fq::QUANTUM, *quantum),
            (fq::PACING, pacing.map(u32::from)),
        ])),
        Qdisc::FqCodel(FqCodel { limit, target_us, interval_us, quantum, ecn }) => bytes(&words(&[
            (codel::TARGET, *target_us),
            (codel::LIMIT, *limit),
            (codel::INTERVAL, *interval_us),
            (codel::ECN, ecn.map(u32::from)),
            (codel::QUANTUM, *quantum),
        ])),
        Qdisc::Pfifo { limit } => limit.to_ne_bytes().to_vec(),
        Qdisc::PfifoFast => return None,
        Qdisc::Tbf(tbf) => tbf_options(tbf),
    })
}

/// `struct tc_tbf_qopt` is the rate, a peak rate, then limit, burst as a time and MTU; the burst in bytes (Linux 3.13)
/// stands for its time. The limit makes a queue inside, so that there is one until it is replaced.
fn tbf_options(Tbf { rate_bytes_per_s, burst_bytes, .. }: &Tbf) -> Vec<u8> {
    let short = u32::try_from(*rate_bytes_per_s).unwrap_or(u32::MAX);
    let mut rate = [0; 12];
    rate[1] = tbf::ETHERNET;
    rate[tbf::RATE..].copy_from_slice(&short.to_ne_bytes());
    let parameters =
        [rate.to_vec(), vec![0; 12], [*burst_bytes, 0, 0].map(u32::to_ne_bytes).concat()].concat();
    let mut attributes = vec![
        DefaultNla::new(tbf::PARAMETERS, parameters),
        DefaultNla::new(tbf::BURST, burst_bytes.to_ne_bytes().to_vec()),
    ];
    if short == u32::MAX {
        attributes.push(DefaultNla::new(tbf::RATE64, rate_bytes_per_s.to_ne_bytes().to_vec()));
    }
    bytes(&attributes)
}

/// The times go as 64 bits of nanoseconds (Linux 4.15): the words of the head count in units of 64 ns and end at 275 s.
fn netem_options(netem: &Netem) -> Vec<u8> {
    let Netem { delay_ns, jitter_ns, loss, reorder, rate_bytes_per_s, limit } = netem;
    // Packets are reordered only with a gap; 1 is the default of tc.
    let gap = u32::from(!reorder.is_zero());
    let head = [0, *limit, loss.0, gap, 0, 0];
    let mut options = head.map(u32::to_ne_bytes).concat();
    let mut attributes = vec![
        DefaultNla::new(netem::LATENCY64, delay_ns.to_ne_bytes().to_vec()),
        DefaultNla::new(netem::JITTER64, jitter_ns.to_ne_bytes().to_vec()),
    ];
    if !reorder.is_zero() {
        // `struct tc_netem_reorder`: the share, and how much it depends on the packet before.
        attributes.push(DefaultNla::new(netem::REORDER, [reorder.0, 0].map(u32::to_ne_bytes).concat()));
    }
    if let Some(rate) = rate_bytes_per_s {
        let short = u32::try_from(*rate).unwrap_or(u32::MAX);
        // `struct tc_netem_rate`: the rate, then bytes added to each packet, and the size and overhead of cells.
        attributes.push(DefaultNla::new(netem::RATE, [short, 0, 0, 0].map(u32::to_ne_bytes).concat()));
        if short == u32::MAX {
            attributes.push(DefaultNla::new(netem::RATE64, rate.to_ne_bytes().to_vec()));
        }
    }
    options.extend(bytes(&attributes));
    options
}

/// The line rate of a tbf in bytes a second, and its burst in bytes, as the kernel reports them: the burst to the unit
/// of time in which it counts.
pub(super) fn read_tbf(options: &[u8]) -> Option<(u64, u32)> {
    let found = attributes(options)?;
    let (_, parameters) = found.iter().find(|(kind, _)| *kind == tbf::PARAMETERS)?;
    let word_at = |at: usize| Some(u32::from_ne_bytes(*parameters.get(at..)?.first_chunk()?));
    let rate = match long(&found, tbf::RATE64) {
        Some(rate) => rate,
        None => word_at(tbf::RATE)?.into(),
    };
    let burst_ns = u128::from(word_at(tbf::BURST_TIME)?) * u128::from(tbf::TICK_NS);
    let burst_bytes = burst_ns * u128::from(rate) / 1_000_000_000;
    Some((rate, u32::try_from(burst_bytes).unwrap_or(u32::MAX)))
}

/// A classless queueing discipline as the kernel reports it; `None` for a kind or an option that the project never
/// sets.
pub(super) fn read(kind: &str, options: &[u8]) -> Option<Qdisc> {
    match kind {
        "netem" => read_netem(options).map(Qdisc::Netem),
        "fq" => {
            let found = attributes(options)?;
            let pacing = word(&found, fq::PACING).map(|on| on != 0);
            let [limit, flow_limit, quantum] =
                [fq::LIMIT, fq::FLOW_LIMIT, fq::QUANTUM].map(|kind| word(&found, kind));
            Some(Qdisc::Fq(Fq { limit, flow_limit, quantum, pacing }))
        }
        "fq_codel" => {
            let found = attributes(options)?;
            let ecn = word(&found, codel::ECN).map(|on| on != 0);
            let [limit, target_us, interval_us, quantum] =
                [codel::LIMIT, codel::TARGET, codel::INTERVAL, codel::QUANTUM].map(|kind| word(&found, kind));
            Some(Qdisc::FqCodel(FqCodel { limit, target_us, interval_us, quantum, ecn }))
        }
        "pfifo" => Some(Qdisc::Pfifo { limit: u32::from_ne_bytes(options.try_into().ok()?) }),
        "pfifo_fast" => Some(Qdisc::PfifoFast),
        _ => None,
    }
}

fn read_netem(options: &[u8]) -> Option<Netem> {
    let (head, rest) = options.split_at_checked(netem::HEAD)?;
    let mut head = head.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes")));
    let [_latency, limit, loss, _gap, duplicate, _jitter] = std::array::from_fn(|_| head.next().unwrap_or(0));
    let found = attributes(rest)?;
    let [delay_ns, jitter_ns] = [netem::LATENCY64, netem::JITTER64].map(|kind| long(&found, kind));
    let short = word(&found, netem::RATE).map(u64::from);
    let rate = long(&found, netem::RATE64).or(short).filter(|rate| *rate > 0);
    (duplicate == 0).then_some(Netem {
        delay_ns: delay_ns?,
        jitter_ns: jitter_ns?,
        loss: Probability(loss),
        reorder: Probability(word(&found, netem::REORDER).unwrap_or(0)),
        rate_bytes_per_s: rate,
        limit,
    })
}

/// Whether a netem draws times from a distribution, which the kernel accepts but does not report.
pub(super) fn is_spread(options: &[u8]) -> bool {
    let Some(found) = options.get(netem::HEAD..).and_then(attributes) else { return true };
    long(&found, netem::JITTER64) != Some(0) || found.iter().any(|(kind, _)| *kind == netem::SLOT)
}

/// The options that restore a queueing discipline of the kind to the state that the kernel reported.
///
/// CoDel's times are reported rounded down, and would be rounded down a second time. Adding one microsecond restores
/// the original. With k the time in its units of 1024 ns, it reports ⌊1.024 k⌋ µs, and ⌊(⌊1.024 k⌋ + 1) / 1.024⌋ is k.
pub(super) fn repeated(kind: &str, options: &[u8]) -> Vec<u8> {
    let Some(mut found) = attributes(options).filter(|_| kind == "fq_codel") else { return options.to_vec() };
    for (kind, value) in &mut found {
        if [codel::TARGET, codel::INTERVAL, codel::CE_THRESHOLD].contains(kind)
            && let Ok(time) = <[u8; 4]>::try_from(value.as_slice())
        {
            *value = u32::from_ne_bytes(time).saturating_add(1).to_ne_bytes().to_vec();
        }
    }
    let found: Vec<DefaultNla> =
        found.into_iter().map(|(kind, value)| DefaultNla::new(kind, value)).collect();
    bytes(&found)
}

/// The bytes of options that the library has taken apart.
pub(super) fn bytes<T: Nla>(options: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; options.buffer_len()];
    options.emit(&mut bytes);
    bytes
}

fn attributes(bytes: &[u8]) -> Option<Vec<(u16, Vec<u8>)>> {
    let found = NlasIterator::new(bytes).map(|nla| nla.map(|nla| (nla.kind(), nla.value().to_vec())));
    found.collect::<Result<_, _>>().ok()
}

/// The first four bytes of an attribute.
fn word(found: &[(u16, Vec<u8>)], kind: u16) -> Option<u32> {
    let (_, value) = found.iter().find(|(found, _)| *found == kind)?;
    Some(u32::from_ne_bytes(*value.first_chunk()?))
}

/// The first eight bytes of an attribute.
fn long(found: &[(u16, Vec<u8>)], kind: u16) -> Option<u64> {
    let (_, value) = found.iter().find(|(found, _)| *found == kind)?;
    Some(u64::from_ne_bytes(*value.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// The header of an attribute: its length including the header, then its kind.
    fn nla(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        [length.to_ne_bytes(), kind.to_ne_bytes()].concat().into_iter().chain(value.iter().copied()).collect()
    }

    #[track_caller]
    fn check(qdisc: &Qdisc, expected: &[u8]) {
        let bytes = options(qdisc).unwrap();
        assert_eq!(bytes, expected);
        assert!(qdisc.is_met_by(&read(qdisc.kind(), &bytes).unwrap()));
    }

    #[test]
    fn netem_has_the_kernels_layout() {
        let wan = Netem {
            delay_ns: 40_000_000,
            jitter_ns: 5,
            loss: Probability(0x0102_0304),
            reorder: Probability(9),
            rate_bytes_per_s: Some(12_500_000),
            limit: 1000,
        };
        let expected = [
            words(&[0, 1000, 0x0102_0304, 1, 0, 0]),
            nla(10, &40_000_000_u64.to_ne_bytes()),
            nla(11, &5_u64.to_ne_bytes()),
            nla(3, &words(&[9, 0])),
            nla(6, &words(&[12_500_000, 0, 0, 0])),
        ];
        check(&Qdisc::Netem(wan.clone()), &expected.concat());
        let fast = Netem { rate_bytes_per_s: Some(1 << 33), reorder: Probability(0), ..wan };
        let bytes = options(&Qdisc::Netem(fast.clone())).unwrap();
        let rates = [nla(6, &words(&[u32::MAX, 0, 0, 0])), nla(8, &(1_u64 << 33).to_ne_bytes())].concat();
        assert!(bytes.ends_with(&rates), "{bytes:?}");
        assert_eq!(read("netem", &bytes), Some(Qdisc::Netem(fast)));
        let plain = Netem { limit: 1, ..Netem::default() };
        let times = [nla(10, &[0; 8]), nla(11, &[0; 8])].concat();
        check(&Qdisc::Netem(plain), &[words(&[0, 1, 0, 0, 0, 0]), times].concat());
    }

    #[test]
    fn queues_of_flows_have_the_kernels_numbers() {
        let fq = Fq { limit: Some(100), flow_limit: Some(7), quantum: None, pacing: Some(false) };
        let expected = [nla(1, &words(&[100])), nla(2, &words(&[7])), nla(5, &words(&[0]))];
        check(&Qdisc::Fq(fq), &expected.concat());
        let codel = FqCodel { limit: Some(10), ecn: Some(true), quantum: Some(300), ..FqCodel::default() };
        let expected = [nla(2, &words(&[10])), nla(4, &words(&[1])), nla(6, &words(&[300]))];
        check(&Qdisc::FqCodel(codel), &expected.concat());
        check(&Qdisc::Pfifo { limit: 3 }, &words(&[3]));
        assert_eq!(options(&Qdisc::PfifoFast), None);
    }

    #[test]
    fn a_line_rate_has_the_kernels_layout() {
        let line = |rate_bytes_per_s| Tbf { rate_bytes_per_s, burst_bytes: 3028, inner: Qdisc::PfifoFast };
        let head = |rate| words(&[u32::from_ne_bytes([0, 1, 0, 0]), 0, rate, 0, 0, 0, 3028, 0, 0]);
        let bytes = options(&Qdisc::Tbf(Box::new(line(5_000_000)))).unwrap();
        assert_eq!(bytes, [nla(1, &head(5_000_000)), nla(6, &words(&[3028]))].concat());
        assert_eq!(read_tbf(&bytes), Some((5_000_000, 0)));
        let bytes = options(&Qdisc::Tbf(Box::new(line(1 << 33)))).unwrap();
        assert_eq!(read_tbf(&bytes), Some((1 << 33, 0)));
        assert_eq!(read_tbf(&[9, 0, 1, 0, 5]), None);
    }

    #[test]
    fn codels_times_are_repeated_so_that_they_stay() {
        // The kernel's arithmetic (codel_time_to_us and its inverse).
        let reported = |us: u32| (((u64::from(us) * 1000) >> 10) << 10) / 1000;
        for asked in (1..3000).chain([4999, 5000, 100_000, 999_999]) {
            let first = u32::try_from(reported(asked)).unwrap();
            let again = repeated("fq_codel", &[nla(1, &words(&[first])), nla(2, &words(&[9]))].concat());
            let found = attributes(&again).unwrap();
            assert_eq!(reported(word(&found, 1).unwrap()), u64::from(first), "{asked} µs");
            assert_eq!(word(&found, 2), Some(9));
        }
        assert_eq!(repeated("pfifo", &[1, 2, 3, 4]), [1, 2, 3, 4]);
    }

    #[test]
    fn times_from_a_distribution_are_found() {
        let netem = |jitter_ns| options(&Qdisc::Netem(Netem { jitter_ns, ..Netem::default() })).unwrap();
        assert!(!is_spread(&netem(0)) && is_spread(&netem(1)));
        assert!(is_spread(&[netem(0), nla(12, &[0; 48])].concat()));
        assert!(is_spread(&[0; 9]) && is_spread(&[netem(0), vec![9, 0, 1, 0, 5]].concat()));
    }

    #[test]
    fn foreign_bytes_are_nothing_and_no_panic() {
        for kind in ["netem", "fq", "fq_codel", "pfifo", "cake"] {
            for bytes in [&[][..], &[1, 2, 3], &[9, 0, 1, 0, 5], &[0xff; 40], &[3, 0, 1, 0, 0]] {
                if let Some(found) = read(kind, bytes) {
                    assert!(bytes.is_empty() && kind.starts_with("fq"), "{kind} {bytes:?}: {found:?}");
                }
                let _unread = repeated(kind, bytes);
            }
        }
        // The project never sets duplication.
        let twice = [words(&[0, 1, 0, 0, 77, 0]), nla(10, &[0; 8]), nla(11, &[0; 8])].concat();
        assert_eq!(read("netem", &twice), None);
    }
}
