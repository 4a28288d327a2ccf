//! Why connections break, and how often.

use std::{fmt, io};

use rustix::io::Errno;

use crate::plain;
use crate::response::Malformed;

/// Why a connection broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The kernel's word: refused, reset, timed out. The number is `errno`.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    System(i32),
    /// The peer closed without having answered.
    #[error("the server closed the connection without an answer")]
    Closed,
    /// The bytes received are not an HTTP response.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// Bytes arrived without a request.
    #[error("the server sent bytes that no request had asked for")]
    Unasked,
    /// A request had no answer for longer than requests are waited for.
    #[error("a request was not answered in time")]
    Timeout,
    /// The bytes received are not HTTP/2, or it does not permit a call.
    #[error("HTTP/2: {0}")]
    Http2(String),
    /// The server gave a call up without an outcome.
    #[error("the server reset a call: {0}")]
    CallReset(String),
    /// The two sides could not agree on TLS, or the bytes received were not TLS.
    #[error("TLS: {0}")]
    Tls(String),
}

impl ConnectionError {
    /// TLS failed. The text may quote the peer's certificate.
    pub(crate) fn tls(error: impl fmt::Display) -> ConnectionError {
        ConnectionError::Tls(plain(&error.to_string()))
    }

    /// Whether a Unix socket's queue of new connections is full. Over TCP the kernel retries by itself, so it is not a
    /// fault there; here the generator must retry, and the request waits.
    pub(crate) fn is_full(&self) -> bool {
        *self == ConnectionError::System(Errno::AGAIN.raw_os_error())
    }

    /// Whether no program listens there.
    pub(crate) fn is_refused(&self) -> bool {
        *self == ConnectionError::System(Errno::CONNREFUSED.raw_os_error())
    }
}

impl From<Errno> for ConnectionError {
    fn from(errno: Errno) -> ConnectionError {
        ConnectionError::System(errno.raw_os_error())
    }
}

/// How many connections broke, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionErrors {
    /// No program listens there.
    pub refused: u64,
    /// The peer reset the connection.
    pub reset: u64,
    /// The peer closed without having answered, or in the middle of an answer.
    pub closed: u64,
    /// The bytes received were not a response.
    pub malformed: u64,
    /// Bytes arrived without a request.
    pub unasked: u64,
    /// No answer or no connection in time.
    pub timeout: u64,
    /// TLS failed: no agreement, or broken records.
    pub tls: u64,
    /// Any other word of the kernel.
    pub other: u64,
}

impl ConnectionErrors {
    /// The sum over all reasons.
    pub fn count(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    /// Each reason's name and count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("refused", self.refused),
            ("reset", self.reset),
            ("closed", self.closed),
            ("malformed", self.malformed),
            ("unasked", self.unasked),
            ("timeout", self.timeout),
            ("tls", self.tls),
            ("other", self.other),
        ]
        .into_iter()
    }

    pub(crate) fn add(&mut self, fault: &ConnectionError) {
        let reset = [Errno::CONNRESET, Errno::PIPE, Errno::CONNABORTED].map(Errno::raw_os_error);
        *match fault {
            ConnectionError::System(_) if fault.is_refused() => &mut self.refused,
            ConnectionError::System(errno) if reset.contains(errno) => &mut self.reset,
            ConnectionError::System(errno) if *errno == Errno::TIMEDOUT.raw_os_error() => &mut self.timeout,
            ConnectionError::System(_) => &mut self.other,
            ConnectionError::Closed | ConnectionError::Malformed(Malformed::Truncated) => &mut self.closed,
            ConnectionError::CallReset(_) => &mut self.reset,
            ConnectionError::Malformed(_) | ConnectionError::Http2(_) => &mut self.malformed,
            ConnectionError::Unasked => &mut self.unasked,
            ConnectionError::Timeout => &mut self.timeout,
            ConnectionError::Tls(_) => &mut self.tls,
        } += 1;
    }

    pub(crate) fn merge(&mut self, other: &ConnectionErrors) {
        self.refused += other.refused;
        self.reset += other.reset;
        self.closed += other.closed;
        self.malformed += other.malformed;
        self.unasked += other.unasked;
        self.timeout += other.timeout;
        self.tls += other.tls;
        self.other += other.other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_cannot_write_on_the_terminal() {
        let text = ConnectionError::tls("only valid for DnsName(\"\u{1b}]0;x\u{7}\")").to_string();
        assert_eq!(text, "TLS: only valid for DnsName(\"\\u{1b}]0;x\\u{7}\")");
    }

    #[test]
    fn every_fault_is_counted_under_its_reason() {
        let mut faults = ConnectionErrors::default();
        for fault in [
            ConnectionError::System(Errno::CONNREFUSED.raw_os_error()),
            ConnectionError::System(Errno::PIPE.raw_os_error()),
            ConnectionError::System(Errno::HOSTUNREACH.raw_os_error()),
            ConnectionError::Closed,
            ConnectionError::Malformed(Malformed::Chunk),
            ConnectionError::Unasked,
            ConnectionError::Timeout,
            ConnectionError::Tls("no".to_owned()),
        ] {
            faults.add(&fault);
        }
        assert!(faults.iter().all(|(_, count)| count == 1), "{faults:?}");
        // Half an answer is right as far as it goes.
        let mut cut = ConnectionErrors::default();
        cut.add(&ConnectionError::Malformed(Malformed::Truncated));
        assert_eq!(cut, ConnectionErrors { closed: 1, ..ConnectionErrors::default() });
        let mut twice = faults;
        twice.merge(&faults);
        assert_eq!(twice.count(), 16);
    }
}
