//! Planted faults, on texts in the kernel's forms and on the kernel itself.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod document;
mod faults;
mod live;
mod machines;
mod profiles;
mod rows;
mod scene;
mod trees;
