//! The file format of a race: what was asked, what the machine was, every trial of every round.
//!
//! A record file is a list of JSON lines, each with a checksum, appended and synced round by round: a crash loses one
//! round at most, and a damaged last line is as if it had never been written. This is the project's one stable file
//! format beside the experiment file; both carry a version.

mod experiment;
mod experiment_file;
mod file;
mod histogram;
mod profile;
mod race;
mod rate;
mod trial;
mod vm;

pub use experiment::{Candidate, Experiment, Placement, Published, ServerKind, Steering, Underlay, Workload};
pub use experiment_file::ExperimentError;
pub use file::{RecordError, Writer};
pub use histogram::Histogram;
pub use profile::Profile;
pub use race::{Capacity, End, Entrant, Header, Line, Load, Machine, Race, Round};
pub use rate::{Rate, RateError};
pub use trial::{Counters, CpuTime, Latencies, TrialRecord, Void};
pub use vm::Machines;

/// The version of the record file and of the experiment file. It goes up when an old reader would misread a new file.
pub const SCHEMA: u32 = 1;
