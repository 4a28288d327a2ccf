//! From the trials of a record to comparisons and verdicts.
//!
//! One place, because two ask: `lab` while a race runs, for whether a candidate is decided and may leave; `report`
//! afterwards, for what came out. From the same record both get the same. It renders nothing and measures nothing.

mod cells;
mod comparisons;
mod contrast;
mod judged;
mod looks;
mod pairs;
mod ranking;
mod samples;
mod shortfall;

pub use cells::{Cell, Cells, Participation, ResamplingUnit, ResamplingUnits, Whole};
pub use comparisons::Comparisons;
pub use judged::{Compared, Judgement, Test, Verdict, noise_floor};
pub use looks::{last_look, look, pursued, undecided};
pub use pairs::{PairsCompared, Role, Where, Worse, WorseBy, WorsePath};
pub use ranking::{ComparedAt, Past, Ranked, ranking};
pub use samples::TYPICAL_SLICES_MIN;
pub use shortfall::Shortfall;
