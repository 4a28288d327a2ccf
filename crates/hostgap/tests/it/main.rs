//! The real binary in real namespaces, against real nginx, or against our own responder where that is under
//! test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ab;
mod agent;
mod bad_input;
mod blame;
mod bpf;
mod by_name;
mod cluster;
mod cni;
mod commands;
mod conformance;
mod containerd;
mod daemons;
mod doctor;
mod dpdk;
mod ending;
mod full;
mod gone;
mod hostile;
mod install;
mod judges;
mod kernel;
mod lab;
mod load;
mod machines;
#[path = "../../../report/tests/it/made.rs"]
mod made;
mod pages;
#[path = "../../../lab/tests/it/paths.rs"]
mod paths;
mod pods;
mod privilege;
mod proxies;
mod race;
mod release;
mod sandbox;
mod search;
mod serve;
mod soak;
mod stack;
mod stopped;
mod terminal;
mod tune;
mod verbs;
mod witness;
mod workloads;
