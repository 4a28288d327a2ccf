//! Agents on real kernels, where nodes are namespaces on one wire, and lease sources against the real stores.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

mod access;
mod away;
mod changes;
mod check;
mod cloud;
mod control;
mod families;
mod flapping;
mod forged;
mod full;
mod image;
mod installed;
mod joining;
mod keep;
mod kubernetes;
mod lists;
mod log;
mod log_lines;
mod migrate;
mod nodes;
mod offload;
mod place;
mod pod;
mod scene;
mod seen;
mod services;
mod shared;
mod slices;
mod wireguard;
