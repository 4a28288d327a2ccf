//! The file format of a race: what was asked, what the machine was, every trial of every round.
//!
//! A record file is a list of JSON lines, each with a checksum, appended and synced round by round: a crash loses one
//! round at most, and a damaged last line is as if it had never been written. This is the project's one stable file
//! format beside the experiment file; both carry a version.

mod card_counts;
mod carried;
mod costs;
mod decimal;
mod experiment;
mod experiment_error;
mod file;
mod framing;
mod histogram;
mod interim_look;
mod late;
mod payload;
mod profile;
mod published;
mod race;
mod rate;
mod record_error;
mod search;
mod spelling;
mod stall;
mod statistic;
mod trial;
mod tuning;
mod void;
mod wire;
mod workload;

pub use card_counts::CardCounts;
pub use carried::{Frames, Handshakes, Junk, Packets, Transfer};
pub use costs::{Counters, CpuTime};
pub use experiment::{
    AuthorsRun, AxisUnit, Candidate, Card, CardError, Clock, Experiment, Flood, Machines, OWN_STACK_MTU_MAX,
    Over, Placement, Plant, Proxies, ProxyKind, Stack, StackKind, StackWait, Steering, Sweep, SweepPosition,
    SweepValue, Underlay, Until, UntilError, Way, WireKey,
};
pub use experiment_error::ExperimentError;
pub use file::{Record, Writer};
pub use histogram::Histogram;
pub use interim_look::{InterimLook, Leaving, Left};
pub use late::{Cause, Late, Retransmitted};
pub use profile::Profile;
pub use published::{Direction, Metric, Published, PublishedFact, RATIO, facts as published_facts};
pub use race::{
    Broken, Capacity, End, Entrant, Header, Line, Load, Machine, NodeInZone, NodePair, RaceRecord, Round,
    Witness, WitnessCost,
};
pub use rate::{RateParseError, RequestedRate};
pub use record_error::RecordError;
pub use search::{
    SearchAnswer, SearchArm, SearchBlock, SearchOption, SearchRatio, SearchRecord, SearchStage,
    SearchVerdict, SearchVisit,
};
pub use spelling::{did_you_mean, nearest};
pub use stall::{Stall, Witnessed};
pub use statistic::{Statistic, StatisticError};
pub use trial::{ClientsApart, Latencies, TrialRecord};
pub use tuning::{RequestedValue, Setting, Side, Tuning};
pub use void::Void;
pub use wire::{BitRate, Delay, FigureError, Share, Ways, Wire};
pub use workload::{
    Arrivals, CLIENT_CONNECTIONS_MAX, HttpVersion, Measure, PacketFilter, ServerKind, Workload, WorkloadKind,
};

/// The version of the record file and of the experiment file. It goes up when an old reader would misread a new file.
pub const SCHEMA: u32 = 1;
