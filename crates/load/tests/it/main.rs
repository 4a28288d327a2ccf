//! The generator and the responder on real sockets.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, but not what they call")]

mod accounting;
mod busy;
mod faults;
mod fresh;
mod netns;
mod protocols;
mod responder;
mod servers;
mod stream;
mod stubborn;
mod transports;
