//! The Container Network Interface: what a container runtime and a network plugin say to each other.
//!
//! The types are those of the specification, 0.3.0 to 1.1.0. Sections are cited as they are numbered since 1.0.0
//! (<https://www.cni.dev/docs/spec/>): the network configuration (1), the environment of a call (2), the input of a
//! plugin (3), its result and its error object (5).
//!
//! This is the protocol alone. It starts no plugin, searches no directory and knows no namespace; that is for a
//! runtime.

mod attached;
mod call;
mod conflist;
mod failure;
mod invocation;
mod name;
mod request;
mod result;
mod version;

pub use attached::{Attached, AttachedAddress, AttachedRoute, Interface};
pub use call::{Call, Command};
pub use conflist::{Conflist, ConflistError, NoText, Plugin, PluginError};
pub use failure::{ErrorCode, Failure};
pub use invocation::{Attachment, Invocation};
pub use request::Request;
pub use result::{AddResult, ResultError};
pub use version::{UnknownVersion, Version};
