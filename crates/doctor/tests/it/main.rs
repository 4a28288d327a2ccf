//! Planted faults, both in texts of the kernel's format and in the kernel itself.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod document;
mod faults;
mod live;
mod machines;
mod profiles;
mod rows;
mod scene;
mod trees;
