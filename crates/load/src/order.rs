//! What one thread of a run is to do.

use std::time::Duration;

use crate::schedule::Pace;
use crate::wait::Waiting;

/// What happens to a request that is due when no connection is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenBusy {
    /// It waits for one, in order, and keeps its intended time.
    #[default]
    Wait,
    /// It is sent behind others on a connection that has room for it ([`crate::Pool::depth`]), and waits only when none
    /// has. HTTP answers in order, so it may wait behind a slow one there.
    Pipeline,
    /// It gets a new connection ([`crate::Pool::connections_max`]); at the maximum number of connections it waits. If
    /// the new one is refused or breaks as it is made, the request is given up as never sent, and the error counts.
    Grow,
    /// It is not sent, but counted. The load is then a gentler one than requested.
    Drop,
}

/// What a thread does, and when.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) pace: Pace,
    pub(crate) when_busy: WhenBusy,
    pub(crate) duration: Duration,
    /// Requests of this thread, if the run ends with those and not after a time.
    pub(crate) requests: Option<u64>,
    pub(crate) drain: Duration,
    /// How long a request is waited for; `None`: until the end.
    pub(crate) timeout: Option<Duration>,
    /// How long a datagram without an answer keeps its socket; `None`: as long as it is waited for.
    pub(crate) presumed_lost: Option<Duration>,
    pub(crate) waiting: Waiting,
}
