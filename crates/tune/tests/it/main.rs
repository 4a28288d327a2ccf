//! The table of knobs from outside: its promises, its documentation, and every knob on the real kernel.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod back;
mod card;
mod defaults;
mod document;
mod kernel;
mod reading;
mod rows;
