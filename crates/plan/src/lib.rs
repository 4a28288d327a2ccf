//! Steps, journal, apply, undo: the only place that changes a machine.
//!
//! A [`Plan`] is a list of [`Step`]s, each in its [`Place`]. [`apply`] does them, and writes each one
//! with the old state into a [`Journal`] before it touches the machine. [`undo`] needs nothing but that journal, so it
//! works in another process, after a crash between any two lines, and twice. [`Plan::commands`] shows a plan as what
//! a person would type.
//!
//! There is no teardown to write, and nothing here knows what a plan is for.

mod apply;
mod book;
mod boot;
mod claims;
mod crc32;
mod entry;
mod error;
mod fault;
pub mod forwarding;
mod journal;
mod kernel;
mod lack;
mod lifetime;
mod listing;
pub mod lock;
mod look;
mod made;
mod mend;
mod overwrite;
mod owner;
mod place;
mod preview;
mod reconcile;
mod repeated;
mod rss;
mod sealed;
mod set;
mod show;
mod step;
mod steps;
pub mod switching;
mod transaction;
mod translations;
mod undo;
mod wireguard_lists;

pub use apply::{Applied, apply, by_hand};
pub use book::{Book, BookError, FoundUnit, Keeper, Kept, TakenBackJournal, Unit, UnitState};
pub use claims::remove_stale_claims;
pub use entry::{After, Before, Displaced, Entry, Hardware, Header, Intent, Undone};
pub use error::{ApplyError, JournalError, StepError};
pub use fault::Fault;
pub use journal::{Journal, Salvaged, Seal, salvage};
pub use kernel::Kernel;
pub use lack::{Lack, LackedPart};
pub use linux::sysfs::Queue;
pub use look::{Drift, StepState, look};
pub use made::{Made, changed};
pub use mend::{drift, mend};
pub use owner::Owner;
pub use place::Place;
pub use preview::{Preview, is_about_code, last_of_each, preview};
pub use reconcile::{Reconciled, Survey, reconcile};
pub use rss::RssHash;
pub use set::*;
pub use show::quoted;
pub use step::{Placed, Plan, Step};
pub use steps::replace_programs;
pub use steps::{has_services, leads_services, renew_guard, renew_programs, renew_services, replace_guard};
pub use transaction::{
    Account, EndedTransaction, LockedStore, OpenTransaction, Phase, Store, TakenBack, TransactionError,
    WatchEnd, Watcher, Why,
};
pub use undo::{in_use, outstanding, undo, undo_in_boot, way_back};
