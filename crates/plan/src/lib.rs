//! Steps, journal, apply, undo: the only place that changes a machine.

mod step;

pub use step::{Place, Placed, Plan, Queue, Step};
