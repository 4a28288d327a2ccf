//! Another machine as the server's node: a process of this very program runs there, reached by ssh, and does there what
//! is done here in a race on one machine ([`crate::far_side`]). This is the end of the conversation that asks.
//!
//! The two speak by lines of JSON over the pipe of the ssh connection (`protocol`): this side asks, that side does
//! and answers. Both plan the same topology from the same order ([`crate::MachineNodes`]), so that no plan is sent.
//! What that side builds it takes back by itself when it hears nothing more, and a process of its own does so if it is
//! killed.
//!
//! The client can be on another machine, too: the race is then led by a process there ([`crate::led`]), which asks the
//! other machines by way of this one.
//!
//! Further machines can have clients ([`Machines`]). Each builds its half as the leading one does, toward the one
//! server, and is told its part of each slice of load (`part`); what comes back is added to what the leading one has.

pub(crate) mod asked;
pub(crate) mod client;
pub(crate) mod elsewhere;
mod host;
pub(crate) mod links;
mod machines;
pub(crate) mod order;
mod possible;
pub(crate) mod protocol;
mod ssh;

pub use self::host::Remote;
pub use self::machines::Machines;
pub(crate) use self::order::Order;
pub use self::possible::possible;
pub(crate) use self::possible::{possible_elsewhere, refusal};
pub(crate) use self::protocol::Failed;
pub use self::ssh::{SshAddress, SshCommand};
