//! One network over many nodes: where leases come from, and the loop that keeps the node as they say.
//!
//! A [`source::LeaseSource`] yields whole [`lease::Snapshot`]s. Its network is read by [`network::NetworkConfig`].

mod flannel;
pub mod lease;
pub mod network;
pub mod source;
pub mod status;

mod error;
mod health;
mod keep;
mod run;

pub use error::AgentError;
pub use keep::{Settings, preview};
pub use run::run;
