//! Topologies in the real kernel, with a real server and real load.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cards;
mod cni;
mod home;
mod late;
mod one_side;
mod packets;
mod path;
mod paths;
mod profile;
mod race;
mod scenarios;
mod servers;
mod settings;
mod standing;
mod wan;
mod workloads;

/// The program that serves for ours.
fn own(program: &str) -> lab::OwnProgram {
    lab::OwnProgram { program: program.into(), version: "0.1.0" }
}
