//! Real plugins on the real kernel: those of Debian, and some that are broken on purpose.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broken;
mod debian;
mod scene;
mod trace;
