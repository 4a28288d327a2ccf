//! What tests share: worlds of namespaces, dumps of what is in them, and skips that are counted.
//!
//! Tests here work on the real kernel, as root, in namespaces of their own.

mod dump;
mod judge;
mod skip;
mod world;

pub use dump::{Dump, dump};
pub use judge::{run, shell};
pub use skip::skip;
pub use world::{World, require_root};
