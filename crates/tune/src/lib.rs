//! Knobs: what can be set, to what, where and why; pure functions from a setting to a [`plan::Plan`].
//!
//! [`TABLE`] is the one list of knobs. A knob is a row of it: what it is called, where it lives, what it takes, since
//! when there is one, when a change takes effect, what it is good for, and the sources. Reading a value, the help text,
//! the page of documentation and the steps all come from the row. Nothing here opens a socket or changes anything.
//!
//! Each family of knobs is a file below `table`; a new knob is a row there and nothing else.

mod default;
mod kind;
mod knob;
mod notrack;
mod order;
mod profile;
mod qdisc;
mod setting;
mod site;
mod table;

pub use default::{ByDefault, Values};
pub use kind::{Cpus, Kind, Value};
pub use knob::{Disrupts, Family, Knob, Lives, QueueFile, Races, Reaches, Risk, RssPart, Scope, Since};
pub use profile::{LeftOut, PROFILES, Profile, ProfileError, Wanted, nearest_profile};
pub use setting::{Setting, Settings, TuneError};
pub use site::{Nic, Site};
pub use table::{TABLE, all, find};
