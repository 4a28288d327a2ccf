//! Experiments: two nodes on one machine, real servers, trials, rounds, races.
//!
//! The lab builds what a race needs out of plans, runs it, writes every round down and leaves nothing behind. It
//! prints nothing: progress is reported as [`Event`]s, results are in the record file.
//!
//! Its modules are in layers, and none uses a higher one. From the highest:
//!
//! - races in a cluster: `kube`
//! - races that run elsewhere, and the search for settings: `led`, `search`
//! - the race: `race`; what is looked at after its rounds: `late`, `profile`
//! - what a race decides before, and how a workload is run: `possible`, `steering`, `witness_choice`, `workload`; what
//!   another machine does for one: `far_side`
//! - a topology that stands: `built_topology`, `capacity`
//! - a slice of load: `trial`, `void`, `usage`; the other machines, as this one asks them: `remote`
//! - the plan of a topology: `topology`, with `cards`, `proxy`, `verbs`, `side_settings`
//! - what is raced and what a topology is made from: `candidate`, `shape`
//! - what all of them use: `cni`, `packets`, `event`, `error` and others

mod built_topology;
mod by_role;
mod candidate;
mod capacity;
mod card_description;
mod card_look;
mod cards;
mod channel;
mod cni;
mod cpus;
mod datagrams;
mod error;
mod event;
mod exclusive;
mod family;
pub mod far_side;
mod fault;
mod home;
pub mod kube;
mod late;
pub mod led;
mod limits;
mod machine;
mod nginx;
mod packets;
mod part;
mod pools;
mod ports;
mod possible;
mod profile;
mod program;
mod protocol;
mod proving;
mod proxy;
mod race;
pub mod remote;
mod repeats;
mod search;
mod server;
mod shape;
mod side_settings;
mod steering;
mod steering_choice;
mod target;
mod topology;
mod traffic;
mod trial;
mod trial_key;
mod usage;
mod verbs;
mod visits;
mod void;
mod wire;
mod witness;
mod witness_choice;
mod workload;

pub use self::cni::{Attachment, CniNetwork, Configuration, PluginDirs};
pub use built_topology::{BuiltTopology, Staffing};
pub use by_role::ByRole;
pub use candidate::{Contender, HOST_AGAIN, contenders, field, find, slug};
pub use cards::shown_cards;
pub use cpus::NodeCpus;
pub use error::{Fault, LabError};
pub use event::Event;
pub use family::{families, family};
pub use home::{Cleaned, Home, Remains};
pub use led::{GuestRace, Outward};
pub use limits::clients_suffice;
pub use machine::machine;
pub use ports::{PROXIED_PORT, PUBLISHED_PORT, SERVER_PORT};
pub use possible::prove_on_cards;
pub use program::{OwnProgram, Program};
pub use protocol::protocol;
pub use proving::{MachineUse, prove};
pub use proxy::{INBOUND_PORT, OUTBOUND_PORT, ProxyProgram};
pub use race::{Finished, Race, RaceOptions, host_visits};
pub use search::{Factor, Objective, Search, SearchEvent, Sought};
pub use server::ServerChoice;
pub use shape::{CardWire, MachineLink, MachineNodes, RdmaWire, Shape};
pub use steering::choose;
pub use steering_choice::Chosen;
pub use topology::Topology;
pub use trial::Method;
pub use wire::{Patience, Wires};
