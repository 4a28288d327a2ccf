//! Lease sources against the real stores, each in a network namespace of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

mod access;
mod away;
mod joining;
mod scene;
mod seen;
