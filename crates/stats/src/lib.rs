//! Pure mathematics: percentiles and when they are valid, intervals, the bootstrap, seeded order.
//!
//! Works on plain numbers and slices. It knows no histogram format, no clock and no kernel, and the same seed gives
//! the same result on every machine.

mod bootstrap;
mod columns;
mod distribution;
mod median;
mod percentile;
mod random;

pub use bootstrap::{Interval, Resamples, Spread, units_needed};
pub use columns::{Columns, Sparse};
pub use distribution::student_t_quantile;
pub use median::median;
pub use percentile::Percentile;
pub use random::Random;
