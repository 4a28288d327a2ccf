//! Tests of the lease sources against the real servers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

mod kubernetes;
mod log;
mod pod;
mod scene;
