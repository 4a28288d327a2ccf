//! The generator and the responder on real sockets.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, but not what they call")]

mod accounting;
mod busy;
mod causes;
mod exchanges;
mod faults;
mod fresh;
mod grpc;
mod http10;
mod large;
mod netns;
mod protocols;
mod requests;
mod responder;
mod servers;
mod stack;
mod stalls;
mod stream;
mod stubborn;
mod transports;
mod vhost_user;
