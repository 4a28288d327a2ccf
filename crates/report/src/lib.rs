//! Renders records: turns a race into a [`Summary`], and that into a table, JSON and a page; likewise the result of a
//! search for settings.
//!
//! This crate needs no kernel: a record file is enough, on any machine.

mod analyse;
mod by_cpu;
mod card_counts;
mod carried;
mod figures;
pub mod html;
mod json;
mod late;
mod pairs;
mod past;
mod profile;
mod published;
mod quantities;
pub mod search;
mod stalls;
mod summary;
mod sweep;
mod table;
pub mod terminal;
mod timeline;
mod until;
mod until_sentences;
mod void;

pub use analyse::{analyse, map};
pub use by_cpu::{CpuNode, CpuShares};
pub use card_counts::{CardSummary, Counted, CpuCounts};
pub use json::{json, json_of_all, json_of_pairs};
pub use late::{CauseShare, LateAnswers, LateLoad, LatePercentile, LateStep};
pub use pairs::{PairFigure, PairRace, PairsFinding, PairsMap, PathMap, UnansweredShares, WorsePathFigure};
pub use profile::{Cost, Difference, PartCost, PathPart, Profiled, ProfiledLoad};
pub use published::{Agreement, Agreements, Obstacle, PublishedFigure};
pub use quantities::{CurvePoint, Load, Quantiles, Ratio, Ratios, TransferRates};
pub use stalls::{Stalls, witness_cost};
pub use summary::{
    Broke, Candidate, Exact, Instructions, Need, Noise, Precision, Progress, RateSummary, Role, SCHEMA,
    Summary, VoidReason,
};
pub use sweep::{SweepSummary, SweptChart, SweptFigure, SweptLevel, SweptLine, SweptPoint};
pub use table::{Style, kernels, map_table, table};
pub use timeline::{Quantity, Timeline, TimelineRow};
pub use until::{ComparisonExit, LookTaken, NamedFloor, Pursued, StopReason};
pub use verdict::Verdict;
