//! Whose CPUs work on received packets, as it was chosen.

use serde::{Deserialize, Serialize};

/// What was chosen, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// The receiving node's CPUs work on received packets.
    pub steered: bool,
    /// In words, with the figures.
    pub why: String,
}

impl Chosen {
    /// The choice for the record.
    pub fn describe(&self) -> String {
        let way = if self.steered {
            "RPS: the receiving node's CPUs"
        } else {
            "none: the sending CPU receives too"
        };
        format!("{way} ({})", self.why)
    }
}
