//! What a node keeps for containers: networks, their addresses ([`ipam`]), and the attachments of containers to them.
//! All of it outlives the process that made it, and is found again by the next.
//!
//! [`plugin`] is its face for container runtimes: the verbs of the Container Network Interface; [`process`] is how a
//! runtime calls it. The links, routes and rules are made by the drivers that race, [`datapath`]. [`install`] puts the
//! plugin where runtimes find it, and [`choice`] says which data path of a race that is.

pub mod choice;
pub mod install;
pub mod plugin;
pub mod process;

mod addresses;
mod attachment;
mod conf;
mod conflist;
mod container_args;
mod delegate;
mod describe;
mod device;
mod drift;
mod dropin;
mod encoded_ifname;
mod failures;
mod home;
mod host_local;
mod making;
mod network;
mod network_unit;
mod node_spec;
mod numbers;
mod parameters;
mod programs;
mod readiness;
mod resolv;
mod routers;
mod routes;
mod shape;
mod standing;
mod underlay;
mod unit;

pub use conflist::{Configured, Network, PLUGIN, SenderCheck};
pub use home::Home;
pub use network::{LeftNetwork, UnusedNetworks};
pub use programs::SharedPrograms;
pub use standing::StandingAttachment;
pub use underlay::{KnownPlace, Underlay};
