//! Pure mathematics: percentiles and when they are valid, intervals, the bootstrap, tests of distributions and of
//! independence, repeated looks, seeded order, the search for settings that help.
//!
//! Works on plain numbers and slices. It has no histogram format, no clock and no kernel calls, and a seed gives
//! identical results on every machine.

mod bootstrap;
mod columns;
mod distribution;
mod exponential;
mod kolmogorov;
mod looks;
mod median;
mod middle;
mod order;
mod percentile;
mod random;
mod rank;
pub mod search;
mod union;

pub use bootstrap::{Interval, Resamples, Spread, units_needed};
pub use columns::{Columns, Sparse};
pub use distribution::student_t_quantile;
pub use exponential::{ExponentialFit, exponential_fit};
pub use kolmogorov::{TwoSamples, two_samples};
pub use looks::{FIRST_LOOK, Level, PRECISE_FROM, half_width_after, look_due};
pub use median::median;
pub use middle::MiddleHalf;
pub use order::{Ranks, quantile_ranks};
pub use percentile::Percentile;
pub use random::Random;
pub use rank::{SerialCorrelation, effective_samples, serial_correlation};
pub use union::union;
