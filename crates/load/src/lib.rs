//! A load generator that measures latency truthfully, and a responder to test it with.
//!
//! Requests are sent on a schedule that is fixed before the first packet and does not wait for the server. Every
//! request has three instants, and so three times: *response* (received − intended) is what a user of the service
//! experiences; *service* (received − sent) is what a generator reports that stops sending while it waits; *lag* (sent
//! − intended) is the difference. *Late* is the part of the lag that the generator itself causes, as opposed to a
//! server or a path that keeps all connections busy.
//!
//! `examples/constant_rate.rs` is a whole run in twenty lines.
//!
//! Generator, downloads and responder share how a thread waits for its sockets (`poller`) and reads and writes without
//! waiting (`socket`); generator and downloads also share a connection and the account of its requests. Their loops
//! differ in what wakes them beside a socket: the generator computes its next instant from the schedule and may spin
//! for it, a download has only its limit, and the responder keeps the timers of its faults. One loop for all three
//! would ask at each turn which of them it is, and the generator's turn decides how late a request leaves.
//!
//! [`witness`] watches the machine beside a run, and counts without the times at which it stood still.
//! [`checks`] judge a run: whether it met its request, and whether its figures are valid. The run itself only counts
//! and measures. [`search`] finds the highest rate at which an objective ([`slo`]) holds.

mod address;
mod ask;
mod client;
mod client_socket;
mod connection;
mod connection_error;
pub mod download;
mod error;
mod exchange;
mod grpc;
mod handshakes;
mod intervals;
mod order;
mod outcome;
mod overdue;
mod plain;
mod poller;
mod pool;
mod run;
mod series;
mod socket;
mod spun;
mod thread;
mod tickets;
mod tls;
mod verbs;
mod verdict;
mod wait;
mod worker;

pub mod checks;
pub mod hlog;
pub mod proof;
pub mod response;
pub mod schedule;
pub mod search;
pub mod serve;
pub mod slo;
pub mod stream;
pub mod target;
pub mod windows;
pub mod witness;

pub use address::Address;
pub use client::Client;
pub use connection_error::{ConnectionError, ConnectionErrors};
pub use error::LoadError;
pub use exchange::Exchange;
pub use grpc::GRPC_BODY_BYTES_MAX;
pub use handshakes::Handshakes;
pub use hdrhistogram::Histogram;
pub use intervals::Intervals;
pub use order::WhenBusy;
pub use outcome::{FirstConnectionError, Live, Missed, Outcome, Split, Unexpected};
pub use overdue::{Dropped, Overdue, Short};
pub use plain::plain;
pub use pool::Pool;
pub use run::{Run, Sink, run, run_live, run_logged};
pub use schedule::Schedule;
pub use series::{Sample, Series};
pub use target::{Ask, Expect, HttpRequest, HttpVersion, Protocol, Sizes, Target};
pub use thread::{ScheduleCost, ThreadCost};
pub use tls::{Sessions, Tls, Trust};
pub use verbs::{MESSAGE_BYTES_MAX, VerbsTarget};
pub use verdict::{CheckedRun, RunVerdict, stolen};
pub use wait::Wait;
