//! Races that run elsewhere: another process of this very program leads them, in a virtual machine ([`GuestRace`]) or
//! on the client's machine ([`LedRace`]).
//!
//! The process that leads says its events and the lines of its record ([`Outward`]); this side shows the former and
//! writes down the latter (`outward::Listener`). So progress shows here as that of any race, and what was finished is
//! kept, whatever becomes of the other process. One on a client's machine ([`lead()`]) asks the other machines by way
//! of this one (`relay`).

mod guest;
mod lead;
mod led_race;
mod outward;
mod relay;

pub use self::guest::GuestRace;
pub(crate) use self::lead::answers;
pub use self::lead::{STOPPED, lead};
pub use self::led_race::LedRace;
pub use self::outward::Outward;
pub use crate::channel::Output;
