//! Experiments: two nodes on one machine, real servers, trials, rounds, races.
//!
//! The lab builds what a race needs out of plans, runs it, writes every round down and leaves nothing behind. It
//! prints nothing: progress is reported as [`Event`]s, results are in the record file.

mod built_topology;
mod candidate;
mod capacity;
mod channel;
mod cni;
mod cpus;
mod error;
mod event;
mod exclusive;
mod guest;
mod home;
pub mod kube;
mod late;
mod limits;
mod machine;
mod nginx;
mod outward;
mod packets;
mod pools;
mod profile;
mod program;
mod proving;
mod proxy;
mod race;
pub mod remote;
mod search;
mod server;
mod shape;
mod side_settings;
mod sides;
mod steering;
mod topology;
mod traffic;
mod trial;
mod usage;
mod visits;
mod wire;
mod witness;
mod witness_choice;
mod workload;

pub use self::cni::{Attachment, CniNetwork, Configuration, PluginDirs};
pub use built_topology::{BuiltTopology, Staffing};
pub use candidate::{Contender, HOST_AGAIN, contenders, field, find, slug};
pub use cpus::NodeCpus;
pub use error::LabError;
pub use event::Event;
pub use guest::GuestRace;
pub use home::{Cleaned, Home, Remains};
pub use machine::machine;
pub use outward::Outward;
pub use program::{OwnProgram, Program};
pub use proving::{MachineUse, prove};
pub use proxy::{INBOUND_PORT, OUTBOUND_PORT, ProxyProgram};
pub use race::{Finished, Race, RaceOptions, host_visits};
pub use search::{Factor, Objective, Search, SearchEvent, Sought};
pub use server::ServerChoice;
pub use shape::Shape;
pub use sides::Sides;
pub use steering::{Chosen, choose};
pub use topology::{PROXIED_PORT, PUBLISHED_PORT, SERVER_PORT, Topology, families, family};
pub use trial::Method;
pub use wire::{Patience, Wires};
pub use workload::protocol;
