//! Knobs: the available settings, their values, places and reasons; pure functions from a setting to a [`plan::Plan`].
//!
//! [`TABLE`] is the one list of knobs. Each row has a knob's name, its place, its values, the first kernel that has
//! it, when a change takes effect, its use, and the sources. The parser of values, the help text, the page of
//! documentation and the steps all use the row. This crate opens no socket and changes no setting.
//!
//! Each family of knobs is a file below `table`; a new knob only needs a row there.

mod default;
mod kind;
mod knob;
mod notrack;
mod offline;
mod order;
mod profile;
mod qdisc;
mod queues;
mod setting;
mod settings;
mod since;
mod site;
mod table;

pub use default::{ByDefault, Values};
pub use kind::{Cpus, RssPart, Value, ValueKind};
pub use knob::{Disrupts, Knob, KnobGroup, Lives, QueueFile, Races, Reaches, Risk, Scope};
pub use profile::{LeftOut, PROFILES, Profile, ProfileError, WantedSetting, nearest_profile};
pub use queues::channels;
pub use setting::{Setting, TuneError};
pub use settings::Settings;
pub use since::Since;
pub use site::{Nic, Site};
pub use table::{TABLE, all, find};
