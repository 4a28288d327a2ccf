//! One network over many nodes: where leases come from, and the loop that keeps the node as they say.
//!
//! A [`source::LeaseSource`] yields whole [`lease::Snapshot`]s.

pub mod lease;
pub mod source;
