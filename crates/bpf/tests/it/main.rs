//! The programs on the real kernel: crafted packets by `BPF_PROG_TEST_RUN`, with the links, routes and neighbours of a
//! node in a namespace of its own; and frames through real links where a test run cannot make what a link makes.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, but not what they call")]

mod arp;
mod frame;
mod late;
mod limits;
mod links;
mod mounts;
mod node;
mod odd;
mod pods;
mod preamble;
mod prefixes;
mod reasons;
mod remote;
mod replace;
mod run;
mod splice;
mod tunnel;
mod vlan;
mod witness;
