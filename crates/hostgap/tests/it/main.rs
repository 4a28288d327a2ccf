//! The real binary against real nginx (or our own responder where that is what is tested), in real namespaces.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod cni;
mod commands;
mod doctor;
mod ending;
mod kernel;
mod lab;
mod load;
mod pages;
mod privilege;
mod race;
mod search;
mod serve;
mod soak;
mod stopped;
mod tune;
mod turn;
mod workloads;
