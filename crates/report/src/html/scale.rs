//! From figures to coordinates: a logarithmic scale for ratios and latencies, HdrHistogram's scale for percentiles,
//! a linear one from zero for bars, their ticks, and labels that keep a distance from one another.

/// A scale on which equal ratios have equal lengths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LogScale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// A linear scale from zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Linear {
    high: f64,
    from: f64,
    to: f64,
}

/// A linear scale between any two values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// HdrHistogram's scale of percentiles: each further nine takes the same space.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Nines {
    high: f64,
    from: f64,
    to: f64,
}

/// Steps of ticks of ratios, the finest first.
const RATIO_STEPS: [f64; 8] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0];

/// Within a decade, the finest first.
const DECADES: [&[f64]; 4] = [&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];

impl LogScale {
    /// Maps `low` to `from` and `high` to `to`. Both are above zero and `low` is below `high`.
    pub(super) fn new((low, high): (f64, f64), (from, to): (f64, f64)) -> LogScale {
        assert!(low > 0.0 && low < high && high.is_finite(), "a logarithmic scale from {low} to {high}");
        LogScale { low, high, from, to }
    }

    /// The coordinate, at the nearer end for what lies outside.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        self.from + (self.to - self.from) * share
    }

    /// Whether the value lies outside, so that its place is a border's.
    pub(super) fn beyond(&self, value: f64) -> bool {
        !(self.low..=self.high).contains(&value)
    }

    /// Round ratios, 1 among them, that stand `gap` or more apart.
    pub(super) fn ratio_ticks(&self, gap: f64) -> Vec<f64> {
        RATIO_STEPS
            .iter()
            .filter(|step| (self.high - self.low) / **step < 200.0)
            .map(|step| self.multiples(*step))
            .find(|ticks| ticks.len() > 1 && self.fits(ticks, gap))
            .unwrap_or_else(|| self.decade_ticks(gap))
    }

    /// Round figures that stand `gap` or more apart: of each decade where there are several, else evenly spaced ones.
    pub(super) fn round_ticks(&self, gap: f64) -> Vec<f64> {
        if self.high / self.low >= 8.0 {
            return self.decade_ticks(gap);
        }
        let finest = self.low.log10().floor() as i32 - 3;
        let steps =
            (finest..finest + 8).flat_map(|power| [1.0, 2.0, 5.0].map(|part| part * 10_f64.powi(power)));
        steps
            .filter(|step| (self.high - self.low) / step < 200.0)
            .map(|step| self.multiples(step))
            .find(|ticks| self.fits(ticks, gap))
            .filter(|ticks| ticks.len() > 1)
            .unwrap_or_else(|| self.decade_ticks(gap))
    }

    /// Round figures of each decade that stand `gap` or more apart.
    pub(super) fn decade_ticks(&self, gap: f64) -> Vec<f64> {
        let within = |parts: &[f64]| -> Vec<f64> {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let all = decades.flat_map(|decade| parts.iter().map(move |part| part * 10_f64.powi(decade)));
            all.filter(|tick| !self.beyond(*tick)).collect()
        };
        let sets = DECADES.map(within);
        sets.iter().find(|ticks| self.fits(ticks, gap)).unwrap_or(&sets[DECADES.len() - 1]).clone()
    }

    fn multiples(&self, step: f64) -> Vec<f64> {
        let (first, last) =
            ((self.low / step - 1e-9).ceil() as i64, (self.high / step + 1e-9).floor() as i64);
        (first..=last).map(|multiple| multiple as f64 * step).filter(|tick| *tick > 0.0).collect()
    }

    fn fits(&self, ticks: &[f64], gap: f64) -> bool {
        ticks.windows(2).all(|pair| (self.place(pair[1]) - self.place(pair[0])).abs() >= gap)
    }
}

impl Linear {
    /// Maps 0 to `from` and `high` to `to`.
    pub(super) fn new(high: f64, (from, to): (f64, f64)) -> Linear {
        assert!(high > 0.0 && high.is_finite(), "a linear scale to {high}");
        Linear { high, from, to }
    }

    /// The coordinate, at the nearer end for what lies outside.
    pub(super) fn place(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value.clamp(0.0, self.high) / self.high)
    }

    /// Whether the value lies outside, so that its place is a border's.
    pub(super) fn beyond(&self, value: f64) -> bool {
        !(0.0..=self.high).contains(&value)
    }

    /// Round figures from 0, as many as stand `gap` or more apart.
    pub(super) fn ticks(&self, gap: f64) -> Vec<f64> {
        let least = self.high * gap / (self.to - self.from).abs();
        let decade = 10_f64.powf(least.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0, 10.0].map(|part| part * decade).into_iter().find(|step| *step >= least);
        let step = step.unwrap_or(decade * 10.0);
        (0..).map(|index| f64::from(index) * step).take_while(|tick| *tick <= self.high * 1.000_001).collect()
    }
}

impl Span {
    /// Maps `low` to `from` and `high` to `to`; `low` is below `high`.
    pub(super) fn new((low, high): (f64, f64), (from, to): (f64, f64)) -> Span {
        assert!(low < high && low.is_finite() && high.is_finite(), "a linear scale from {low} to {high}");
        Span { low, high, from, to }
    }

    /// The coordinate, at the nearer end for what lies outside.
    pub(super) fn place(&self, value: f64) -> f64 {
        self.from
            + (self.to - self.from) * (value.clamp(self.low, self.high) - self.low) / (self.high - self.low)
    }
}

impl Nines {
    /// Percentiles that are named on the axis.
    const TICKS: [f64; 7] = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

    /// Maps quantile 0 to `from` and `last` to `to`; at least to p90.
    pub(super) fn new(last: f64, (from, to): (f64, f64)) -> Nines {
        Nines { high: nines(last).max(1.0), from, to }
    }

    /// The coordinate of a quantile, at the end for what lies beyond.
    pub(super) fn place(&self, quantile: f64) -> f64 {
        self.from + (self.to - self.from) * (nines(quantile).min(self.high) / self.high)
    }

    /// The named percentiles up to the last.
    pub(super) fn ticks(&self) -> Vec<f64> {
        Nines::TICKS.into_iter().filter(|tick| nines(*tick) <= self.high + 1e-9).collect()
    }
}

/// How many nines a quantile has: 0.9 has one, 0.999 three.
fn nines(quantile: f64) -> f64 {
    // Beyond twelve nines no histogram of ours has a sample; quantile 1 would be infinite.
    -(1.0 - quantile.clamp(0.0, 1.0)).max(1e-12).log10()
}

/// Places near the wanted ones, in the given order, `gap` or more apart and between `top` and `bottom` where there is
/// room for all. Runs of labels that touch are centred on what they wanted.
pub(super) fn spread(wanted: &[f64], gap: f64, (top, bottom): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // Each run is the sum of its members' wanted first places and its length.
    let mut runs: Vec<(f64, usize)> = Vec::new();
    let first = |(sum, len): (f64, usize)| {
        let room = (bottom - gap * (len as f64 - 1.0)).max(top);
        (sum / len as f64).clamp(top, room)
    };
    for index in &order {
        runs.push((wanted[*index], 1));
        while let [.., before, last] = runs[..] {
            if first(before) + gap * before.1 as f64 <= first(last) + 1e-9 {
                break;
            }
            let moved = last.0 - gap * (before.1 * last.1) as f64;
            runs.truncate(runs.len() - 2);
            runs.push((before.0 + moved, before.1 + last.1));
        }
    }
    let places = runs.iter().flat_map(|run| (0..run.1).map(|member| first(*run) + gap * member as f64));
    let mut placed = vec![0.0; wanted.len()];
    for (index, place) in order.iter().zip(places) {
        placed[*index] = place;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(found: &[f64], expected: &[f64]) {
        let near =
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near, "{found:?} instead of {expected:?}");
    }

    #[test]
    fn a_logarithmic_scale_keeps_ratios() {
        let scale = LogScale::new((0.5, 2.0), (0.0, 100.0));
        close(
            &[scale.place(0.5), scale.place(1.0), scale.place(2.0), scale.place(9.0)],
            &[0.0, 50.0, 100.0, 100.0],
        );
        assert!(scale.beyond(9.0) && !scale.beyond(2.0));
    }

    #[test]
    fn ratio_ticks_are_round_and_hold_one() {
        close(
            &LogScale::new((0.94, 1.06), (0.0, 400.0)).ratio_ticks(44.0),
            &[0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06],
        );
        close(
            &LogScale::new((0.9, 1.5), (0.0, 400.0)).ratio_ticks(44.0),
            &[0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
        );
        close(&LogScale::new((0.3, 8.0), (0.0, 400.0)).ratio_ticks(44.0), &[0.5, 1.0, 2.0, 5.0]);
        let wide = LogScale::new((0.01, 1000.0), (0.0, 200.0)).ratio_ticks(44.0);
        assert!(wide.contains(&1.0) && wide.len() < 7, "{wide:?}");
    }

    #[test]
    fn decades_are_split_as_room_allows() {
        close(&LogScale::new((10.0, 100.0), (0.0, 90.0)).decade_ticks(20.0), &[10.0, 20.0, 50.0, 100.0]);
        close(&LogScale::new((10.0, 1000.0), (0.0, 50.0)).decade_ticks(20.0), &[10.0, 100.0, 1000.0]);
    }

    #[test]
    fn each_nine_takes_the_same_space() {
        let scale = Nines::new(0.999, (0.0, 300.0));
        close(&[scale.place(0.0), scale.place(0.9), scale.place(0.99)], &[0.0, 100.0, 200.0]);
        close(&[scale.place(1.0), Nines::new(0.2, (0.0, 10.0)).place(0.9)], &[300.0, 10.0]);
        close(&scale.ticks(), &[0.0, 0.5, 0.9, 0.99, 0.999]);
    }

    #[test]
    fn bars_begin_at_zero() {
        close(&Linear::new(12.0, (0.0, 240.0)).ticks(60.0), &[0.0, 5.0, 10.0]);
        close(&Linear::new(1.2, (0.0, 240.0)).ticks(40.0), &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2]);
    }

    #[test]
    fn labels_keep_their_distance_and_their_order() {
        close(&spread(&[10.0, 50.0], 12.0, (0.0, 100.0)), &[10.0, 50.0]);
        close(
            &spread(&[52.0, 50.0, 50.0], 12.0, (0.0, 100.0)),
            &[62.666_666_67, 38.666_666_67, 50.666_666_67],
        );
        close(&spread(&[99.0, 98.0, 5.0], 10.0, (0.0, 100.0)), &[100.0, 90.0, 5.0]);
        close(&spread(&[], 10.0, (0.0, 100.0)), &[]);
        // No room for all: they still keep their distance, from the top.
        close(&spread(&[3.0, 1.0, 2.0], 10.0, (0.0, 15.0)), &[20.0, 0.0, 10.0]);
    }
}
