//! The programs on the real kernel. `BPF_PROG_TEST_RUN` runs them over crafted packets, in a namespace with
//! the links, routes and neighbours of a node. Where a test run cannot do what a link does, real links carry
//! the frames.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, but not what they call")]

mod afxdp;
mod arp;
mod builds;
mod datagrams;
mod frame;
mod guard;
mod late;
mod limits;
mod links;
mod mounts;
mod node;
mod odd;
mod packets;
mod pinned;
mod pods;
mod preamble;
mod prefixes;
mod reasons;
mod remote;
mod replace;
mod run;
mod services;
mod splice;
mod tunnel;
mod vlan;
mod witness;
mod xdp;
