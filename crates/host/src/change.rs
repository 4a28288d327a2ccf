//! A setting to be made, with the steps that make it.

use plan::{Placed, Preview};
use tune::WantedSetting;

/// A setting to be made.
pub struct Change {
    /// The request from which the change comes.
    pub wanted: WantedSetting,
    /// Each step with its old and new value, except those that would change nothing.
    pub steps: Vec<(Placed, Preview)>,
    /// For a limit that a process holds, which has no steps: the old and the new value.
    pub held: Option<(String, String)>,
}
