//! Why answers are late, on a terminal: for each candidate the percentiles beyond p99, and whose they are.

use super::Style;
use super::grid::{self, Ink};
use crate::figures;
use crate::late::{self, LateLoad, LatePercentile};
use crate::quantities::Load;

/// A smaller share is not worth a word.
const SHARE_MIN: f64 = 0.01;

/// A load as lines of text.
pub(super) fn block(load: &LateLoad, style: Style) -> String {
    let of = Load {
        body_bytes: load.body_bytes,
        requested_rps: load.requested_rps,
        of_capacity: load.of_capacity,
        measure: record::Measure::Latency,
    };
    let heading = format!("Why answers are late, {}", figures::load(&of));
    let mut text = format!("\n{}\n", grid::ink(&heading, Ink::Bold, style.colour));
    for candidate in &load.candidates {
        text.push_str(&format!("  {}\n", candidate.name));
        for percentile in &candidate.percentiles {
            text.push_str(&line(percentile, style.width));
        }
        for note in late::notes(candidate) {
            text.push_str(&super::profile::wrapped("    ", &words(&note), style.width));
        }
    }
    text
}

/// A percentile and its causes, the greatest first.
fn line(percentile: &LatePercentile, width: usize) -> String {
    let place = figures::trimmed(percentile.quantile * 100.0, 4);
    let name = format!("    p{place:<6} {:>7}  ", figures::duration_ns(percentile.ns));
    let mut shares = percentile.shares.clone();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    let shown = shares.iter().filter(|share| share.share >= SHARE_MIN);
    let texts: Vec<String> =
        shown.map(|share| format!("{} {}", late::name(share.cause), figures::percent(share.share))).collect();
    super::profile::wrapped(&name, &super::profile::separated(texts), width)
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}
