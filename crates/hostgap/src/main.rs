//! `hostgap`: measure the gap between a container's network and the bare host's, find its cause, close it.
//!
//! One file a subcommand; this one only reads the command line and turns errors into messages and exit codes.

fn main() {}
