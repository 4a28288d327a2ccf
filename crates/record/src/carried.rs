//! What was carried in a trial: bytes, datagrams, frames, and handshakes of its connections.

use serde::{Deserialize, Serialize};

/// What a download or a stream carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Bytes of content that arrived within the measured part: of bodies, of a stream, of datagrams.
    pub bytes: u64,
    /// For downloads: the sum of the times of all objects, from the start of the connection to the last byte, in
    /// nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects_ns: Option<u64>,
    /// What became of the datagrams; of streams of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
}

/// What became of the datagrams of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packets {
    /// Datagrams due within the measured part that the kernel took before its end.
    pub sent: u64,
    /// Sent datagrams that arrived before the trial stopped waiting.
    pub received: u64,
    /// Datagrams that arrived within the measured part, whenever they were sent.
    pub in_time: u64,
    /// Those of the received that arrived after a later one of their flow.
    pub reordered: u64,
    /// The longest time between two arrivals within the measured part, in nanoseconds.
    pub gap_max_ns: u64,
}

/// What became of frames that the kernel made, and what CPU time they took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frames {
    /// Frames that were sent over the wire.
    pub made: u64,
    /// Those that met the candidate's filter, or were read from its socket.
    pub judged: u64,
    /// Those that a filter sent on, and that arrived at the end of their way.
    pub sunk: u64,
    /// CPU time of the generator's thread for these, in nanoseconds: to make them, and all that happened
    /// to them in softirqs.
    pub cpu_ns: u64,
    /// Frames that were made and not sent, in turn with the others.
    pub alone: u64,
    /// CPU time of the generator's thread for those, in nanoseconds.
    pub alone_cpu_ns: u64,
}

impl Frames {
    /// CPU time after the frames had been made: that of all less that of as many frames alone, in nanoseconds.
    pub fn net_ns(&self) -> u64 {
        let making = self.alone_cpu_ns as f64 * self.made as f64 / self.alone.max(1) as f64;
        (self.cpu_ns as f64 - making).max(0.0) as u64
    }
}

/// The frames of a flood during a trial, its warm-up included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Junk {
    /// Frames that were sent over the wire.
    pub sent: u64,
    /// Those that the candidate's filter dropped, or that were read from its socket.
    pub filtered: u64,
    /// CPU time in nanoseconds that a CPU of the server's node spent on them: to make them, and all that happened
    /// to them in softirqs.
    pub cpu_ns: u64,
    /// How much later than its due time the latest of them was sent, in nanoseconds.
    pub late_max_ns: u64,
}

/// How connections in TLS began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handshakes {
    /// With certificates and keys.
    pub full: u64,
    /// By a session of before.
    pub resumed: u64,
}
