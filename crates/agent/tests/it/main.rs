//! Agents on real kernels, where nodes are namespaces on one wire, and lease sources against the real stores.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

mod access;
mod away;
mod changes;
mod check;
mod cloud;
mod control;
mod families;
mod image;
mod joining;
mod keep;
mod kubernetes;
mod log;
mod migrate;
mod nodes;
mod offload;
mod pod;
mod said;
mod scene;
mod seen;
mod services;
mod shared;
mod wireguard;
