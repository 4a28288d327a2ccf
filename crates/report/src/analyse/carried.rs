//! What downloads and streams carried, and what packets cost, of a candidate at a load.

use record::Handshakes;

use crate::quantities::{FrameCost, TransferRates};
use verdict::Cell;

/// Bytes of content that arrived in the trials that count.
pub(super) fn bytes(cell: &Cell<'_>) -> u64 {
    cell.sum(|trial| trial.carried.map_or(0, |carried| carried.bytes))
}

/// `None` for workloads that are not judged by volume.
pub(super) fn carried(cell: &Cell<'_>) -> Option<TransferRates> {
    let first = cell.trials.iter().find_map(|trial| trial.carried)?;
    let seconds = cell.sum(|trial| trial.duration_ns) as f64 / 1e9;
    let per_s = |count: u64| (seconds > 0.0).then(|| count as f64 / seconds);
    let objects = cell.sum(|trial| trial.answered);
    let objects_ns = cell.sum(|trial| trial.carried.and_then(|carried| carried.objects_ns).unwrap_or(0));
    let mean = first.objects_ns.filter(|_| objects > 0).map(|_| objects_ns as f64 / objects as f64 / 1e6);
    let mut summary = TransferRates {
        mbit_per_s: per_s(bytes(cell)).map(|bytes_per_s| bytes_per_s * 8.0 / 1e6),
        object_ms_mean: mean,
        ..TransferRates::default()
    };
    let packets = || cell.trials.iter().filter_map(|trial| trial.carried?.packets);
    if packets().next().is_some() {
        let (sent, received) = packets().fold((0, 0), |sum, of| (sum.0 + of.sent, sum.1 + of.received));
        summary.sent_packets_per_s = per_s(sent);
        summary.received_packets_per_s = per_s(packets().map(|of| of.in_time).sum());
        summary.loss = (sent > 0).then(|| sent.saturating_sub(received) as f64 / sent as f64);
        summary.reordered = Some(packets().map(|of| of.reordered).sum());
        summary.gap_max_ns = packets().map(|of| of.gap_max_ns).max();
    }
    Some(summary)
}

/// The CPU time of frames; `None` for other workloads, and without a trial that counts.
pub(super) fn frames(cell: &Cell<'_>) -> Option<FrameCost> {
    let of =
        |part: fn(&record::Frames) -> u64| cell.sum(|trial| trial.frames.as_ref().map_or(0, part)) as f64;
    let (made, alone) = (of(|frames| frames.made), of(|frames| frames.alone));
    (made > 0.0 && alone > 0.0).then(|| FrameCost {
        ns_per_packet: of(record::Frames::net_ns) / made,
        generator_ns_per_packet: of(|frames| frames.alone_cpu_ns) / alone,
        packets: made as u64,
    })
}

/// How connections in TLS began; `None` where none was made in a trial.
pub(super) fn handshakes(cell: &Cell<'_>) -> Option<Handshakes> {
    let mut all = cell.trials.iter().filter_map(|trial| trial.handshakes);
    let first = all.next()?;
    Some(all.fold(first, |sum, more| Handshakes {
        full: sum.full + more.full,
        resumed: sum.resumed + more.resumed,
    }))
}
