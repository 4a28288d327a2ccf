//! What can be done on each data path.

use serde::{Deserialize, Serialize};

/// What clients and servers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// HTTP/1.1 requests on connections that stay open.
    #[default]
    Http,
    /// HTTP/1.1 requests, a new connection for each.
    Connect,
    /// Unary calls of gRPC on connections of HTTP/2 that stay open.
    Grpc,
    /// Large objects over HTTP/1.1, a new connection for each; a trial ends when all of them have arrived, however
    /// long that takes.
    Download,
    /// A request and an answer of as many bytes, over a TCP connection that stays open.
    TcpRr,
    /// A datagram and an answer of as many bytes.
    UdpRr,
    /// A message and an answer of as many bytes: by RDMA verbs, or over TCP as [`WorkloadKind::TcpRr`], as
    /// the candidate's [`crate::Stack`] says.
    Verbs,
    /// Bytes from the client to the server, without a limit.
    TcpStream,
    /// Datagrams from the client to the server, at a rate or without one.
    UdpStream,
    /// Frames that the kernel makes, each of which meets a [`crate::PacketFilter`]; compared by the CPU time of one.
    Packets,
}

/// What the trials of a kind are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Response times; where as many requests go as can, requests per second.
    Latency,
    /// Bytes that arrive per second.
    Bandwidth,
    /// Datagrams that arrive per second.
    Packets,
    /// Frames that one CPU judges per second of its time.
    Frames,
}

impl Measure {
    /// What a candidate's throughput is called and counted in.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Latency => "req/s",
            Measure::Bandwidth => "Mbit/s",
            Measure::Packets => "packets/s",
            Measure::Frames => "packets/CPU s",
        }
    }
}

impl WorkloadKind {
    /// Every kind, in display order.
    pub const ALL: [WorkloadKind; 10] = [
        WorkloadKind::Http,
        WorkloadKind::Connect,
        WorkloadKind::Grpc,
        WorkloadKind::Download,
        WorkloadKind::TcpRr,
        WorkloadKind::UdpRr,
        WorkloadKind::Verbs,
        WorkloadKind::TcpStream,
        WorkloadKind::UdpStream,
        WorkloadKind::Packets,
    ];

    /// The name in an experiment.
    pub fn name(self) -> &'static str {
        match self {
            WorkloadKind::Http => "http",
            WorkloadKind::Connect => "connect",
            WorkloadKind::Grpc => "grpc",
            WorkloadKind::Download => "download",
            WorkloadKind::TcpRr => "tcp-rr",
            WorkloadKind::UdpRr => "udp-rr",
            WorkloadKind::Verbs => "verbs",
            WorkloadKind::TcpStream => "tcp-stream",
            WorkloadKind::UdpStream => "udp-stream",
            WorkloadKind::Packets => "packets",
        }
    }

    /// True for the default kind, the first one.
    pub fn is_usual(&self) -> bool {
        *self == WorkloadKind::Http
    }

    /// What its trials are compared by.
    pub fn measure(self) -> Measure {
        match self {
            WorkloadKind::Http
            | WorkloadKind::Connect
            | WorkloadKind::Grpc
            | WorkloadKind::TcpRr
            | WorkloadKind::UdpRr
            | WorkloadKind::Verbs => Measure::Latency,
            WorkloadKind::Download | WorkloadKind::TcpStream => Measure::Bandwidth,
            WorkloadKind::UdpStream => Measure::Packets,
            WorkloadKind::Packets => Measure::Frames,
        }
    }

    /// True if HTTP/1 is spoken, and so TLS may be.
    pub fn is_http(self) -> bool {
        match self {
            WorkloadKind::Http | WorkloadKind::Connect | WorkloadKind::Download => true,
            WorkloadKind::Grpc
            | WorkloadKind::TcpRr
            | WorkloadKind::UdpRr
            | WorkloadKind::Verbs
            | WorkloadKind::TcpStream
            | WorkloadKind::UdpStream
            | WorkloadKind::Packets => false,
        }
    }

    /// True if requests are due at set times, so that the reference's capacity is measured before the race.
    pub fn has_capacity(self) -> bool {
        self.measure() == Measure::Latency
    }

    /// True if a server process has to stand for it.
    pub fn is_served(self) -> bool {
        !self.is_stream()
    }

    /// True for workloads without answers, whose data is counted where it arrives.
    pub fn is_stream(self) -> bool {
        matches!(self, WorkloadKind::TcpStream | WorkloadKind::UdpStream | WorkloadKind::Packets)
    }

    /// True if connections are made within a trial, and not before the first.
    pub fn makes_connections(self) -> bool {
        matches!(self, WorkloadKind::Connect | WorkloadKind::Download)
    }

    /// True if the data is carried in datagrams.
    pub fn is_udp(self) -> bool {
        matches!(self, WorkloadKind::UdpRr | WorkloadKind::UdpStream | WorkloadKind::Packets)
    }

    /// The least and the greatest `body_bytes`.
    pub(super) fn sizes(self) -> (u32, u32) {
        match self {
            // What an answer of a service with a tail can be, and far below a socket's limits.
            WorkloadKind::Http | WorkloadKind::Connect => (0, 16 << 20),
            // What a server of gRPC takes by default, 4 MiB, holds it.
            WorkloadKind::Grpc => (0, 1 << 20),
            // As many as a server's memory has to hold.
            WorkloadKind::Download => (1, 1 << 30),
            // A request begins with its own length.
            WorkloadKind::TcpRr => (4, 1 << 20),
            // The same; each end has eight of the longest in locked memory for each connection.
            WorkloadKind::Verbs => (4, 1 << 16),
            // A datagram begins with its number; 65 535 bytes less the headers of IPv4 and UDP.
            WorkloadKind::UdpRr => (8, 65_507),
            WorkloadKind::TcpStream => (1, 16 << 20),
            // Flow, number and whether it counts.
            WorkloadKind::UdpStream => (16, 65_507),
            // Ethernet's least frame and the greatest of an MTU of 1500, both without the checksum at its end.
            WorkloadKind::Packets => (60, 1_514),
        }
    }
}

impl std::str::FromStr for WorkloadKind {
    type Err = String;

    fn from_str(text: &str) -> Result<WorkloadKind, String> {
        let names = || WorkloadKind::ALL.map(WorkloadKind::name).join(", ");
        let found = WorkloadKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("`{text}` is no workload: one of {} is expected", names()))
    }
}
