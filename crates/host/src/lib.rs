//! The host as its knobs see it: what a request would change here, why not, and what was set before.
//!
//! A [`TuningRequest`] (a profile, findings, single settings) becomes [`RequestedSettings`]. [`Host::look`] reads the
//! place where they are to be made, and a [`Proposal`] compares the two: what changes, what cannot be made and why, and
//! which programs set the same. [`Proposal::plan`] is what `plan` applies. Its [`Description`] stands beside the steps,
//! and [`JournalStatus`] compares those with the host again.
//!
//! Nothing here prints. [`KeptFiles`] writes below `/etc`; else nothing changes the host. Whether a queueing discipline
//! exists is tried in a namespace without a name.

mod arrival;
mod change;
mod description;
mod error;
mod findings;
mod host;
mod journal_status;
mod keep;
mod managers;
mod obstacle;
mod proposal;
mod request;
mod requested_settings;
mod stored_plan;
mod tracking;
mod wanted_text;

pub use change::Change;
pub use description::{Description, NotKept};
pub use error::HostError;
pub use findings::Findings;
pub use host::{Device, Host};
pub use journal_status::{JournalStatus, StepStatus};
pub use keep::{KeptFiles, KeptTuning};
pub use managers::Conflict;
pub use proposal::Proposal;
pub use request::TuningRequest;
pub use requested_settings::{RequestedSetting, RequestedSettings, Skipped};
pub use stored_plan::StoredPlan;
pub use wanted_text::WantedText;
