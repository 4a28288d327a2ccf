//! Figures over several rounds: median, spread and ratio.

/// A contender's figure in each round.
pub(crate) struct Series {
    name: &'static str,
    figures: Vec<f64>,
}

impl Series {
    pub(crate) fn new(name: &'static str) -> Series {
        Series { name, figures: Vec::new() }
    }

    pub(crate) fn push(&mut self, figure: f64) {
        self.figures.push(figure);
    }

    /// Prints a line with the median, the spread, and the ratio to ours within each round.
    pub(crate) fn print(&self, unit: &str, ours: &Series) {
        let ratios: Vec<f64> =
            self.figures.iter().zip(&ours.figures).map(|(this, ours)| this / ours).collect();
        let (least, median, most) = spread(&self.figures);
        let (ratio_least, ratio, ratio_most) = spread(&ratios);
        println!(
            "    {:<26}{median:>12.2} {unit:<3} ({least:.2} to {most:.2})   ÷ ours {ratio:.3} ({ratio_least:.3} to {ratio_most:.3})",
            self.name
        );
    }

    /// The same without a ratio, for figures that may be zero.
    pub(crate) fn print_alone(&self, unit: &str) {
        let (least, median, most) = spread(&self.figures);
        println!("    {:<26}{median:>12.4} {unit:<3} ({least:.4} to {most:.4})", self.name);
    }
}

/// Least, median and greatest.
fn spread(figures: &[f64]) -> (f64, f64, f64) {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1])
}
