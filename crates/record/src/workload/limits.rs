//! What a workload may be: ranges, which keys a kind has, and at which rates it can be had.

use super::{Arrivals, Measure, ServerKind, Workload, WorkloadKind};
use crate::RequestedRate;
use crate::experiment_error::{ExperimentError, out_of_range, within};

/// The most connections of a client to one port of a server, each of which takes a port of its own: Linux gives 28,232,
/// and those that have ended keep theirs for a minute.
pub const CLIENT_CONNECTIONS_MAX: u32 = 20_000;

/// The most connections of a candidate, over all clients.
const CONNECTIONS_MAX: u32 = 60_000;

/// The most connections of RDMA verbs: each has memory that is locked, and descriptors of its own.
const VERBS_CONNECTIONS_MAX: u32 = 256;

/// The most flows of a stream: each has a thread at either end.
const STREAMS_MAX: u32 = 256;

impl Workload {
    /// The most connections of a candidate.
    pub(crate) fn connections_max(&self) -> u32 {
        match self.kind {
            // Frames have no connections, and one CPU makes them.
            WorkloadKind::Packets => 1,
            WorkloadKind::Verbs => VERBS_CONNECTIONS_MAX,
            kind if kind.is_stream() => STREAMS_MAX,
            WorkloadKind::Download => CLIENT_CONNECTIONS_MAX,
            _ => CONNECTIONS_MAX,
        }
    }

    /// Checks keys and ranges, and whether the kind can be had at the rates.
    pub(crate) fn validate(&self, rates: &[RequestedRate]) -> Result<(), ExperimentError> {
        let kind = self.kind;
        self.validate_sizes()?;
        within("workload.connections", self.connections, 1..=self.connections_max())?;
        let fewest = self.connections_min.unwrap_or(1);
        within("workload.connections_min", fewest, 1..=self.connections)?;
        let only = |key: &str, value: String, whose: &str| {
            Err(out_of_range(&format!("workload.{key}"), value, format!("only {whose} has it")))
        };
        match self.objects {
            Some(objects) if kind != WorkloadKind::Download => {
                return only("objects", objects.to_string(), "kind = \"download\"");
            }
            Some(objects) => within("workload.objects", objects, 1..=100_000)?,
            None => {}
        }
        if let (Some(version), false) = (self.http, kind.makes_connections()) {
            let whose = "a connection for each request (connect, download)";
            return only("http", version.name().to_owned(), whose);
        }
        if self.ipv6 && kind == WorkloadKind::Packets {
            return Err(out_of_range("workload.ipv6", "true", "frames of packets are of IPv4"));
        }
        if self.tls && !kind.is_http() {
            return only("tls", "true".to_owned(), "HTTP (http, connect, download)");
        }
        if let (Some(reuse), false) = (self.session_reuse, self.tls) {
            return only("session_reuse", reuse.to_string(), "a workload with tls = true");
        }
        if self.arrivals == Arrivals::Poisson && kind.measure() != Measure::Latency {
            return only(
                "arrivals",
                "poisson".to_owned(),
                "a workload with requests that wait for an answer",
            );
        }
        self.validate_server()?;
        self.validate_rates(rates)
    }

    fn validate_sizes(&self) -> Result<(), ExperimentError> {
        let (least, most) = self.kind.sizes();
        for (index, body) in self.body_bytes.iter().enumerate() {
            within("workload.body_bytes", *body, least..=most)?;
            if self.body_bytes[..index].contains(body) {
                return Err(out_of_range("workload.body_bytes", body, "it is listed twice"));
            }
        }
        Ok(())
    }

    fn validate_server(&self) -> Result<(), ExperimentError> {
        if self.files {
            let refused = |why: &str| Err(out_of_range("workload.files", "true", why));
            match (self.kind, self.server) {
                (WorkloadKind::Http | WorkloadKind::Connect, ServerKind::Nginx) => {}
                (WorkloadKind::Http | WorkloadKind::Connect, ServerKind::Auto | ServerKind::Hostgap) => {
                    return refused("only nginx has files: say `server = \"nginx\"` too");
                }
                (WorkloadKind::Download, _) => return refused("objects of downloads always are files"),
                _ => return refused("only HTTP (http, connect) answers with files"),
            }
        }
        if let Some(cpu_us) = self.cpu_us {
            if self.kind.is_stream() {
                return Err(out_of_range(
                    "workload.cpu_us",
                    cpu_us,
                    "a stream has no requests that could cost it",
                ));
            }
            if self.server == ServerKind::Nginx {
                let why =
                    "nginx takes what its answers take: leave out `server`, and our own responder answers";
                return Err(out_of_range("workload.cpu_us", cpu_us, why));
            }
            within("workload.cpu_us", cpu_us, 1..=1_000_000)?;
        }
        let (server, why) = match self.server {
            ServerKind::Auto => return Ok(()),
            ServerKind::Nginx if self.kind.is_http() => return Ok(()),
            ServerKind::Hostgap if !self.kind.is_stream() => return Ok(()),
            ServerKind::Nginx if self.kind == WorkloadKind::Grpc => {
                ("nginx", "nginx passes calls on and answers none")
            }
            ServerKind::Nginx if self.kind == WorkloadKind::Packets => ("nginx", "packets have no server"),
            ServerKind::Hostgap if self.kind == WorkloadKind::Packets => {
                ("hostgap", "packets have no server")
            }
            ServerKind::Nginx => ("nginx", "nginx speaks HTTP alone"),
            ServerKind::Hostgap => ("hostgap", "a stream is received by this process"),
        };
        Err(out_of_range("workload.server", server, why))
    }

    fn validate_rates(&self, rates: &[RequestedRate]) -> Result<(), ExperimentError> {
        let refused = |why: &str| rates.first().map_or(Ok(()), |rate| Err(out_of_range("rates", rate, why)));
        match self.kind {
            WorkloadKind::Download => refused("downloads go as fast as they can"),
            WorkloadKind::TcpStream => refused("a stream of bytes goes as fast as it can"),
            WorkloadKind::Packets => refused("frames are made as fast as they are judged"),
            WorkloadKind::UdpStream => {
                let share = rates.iter().find(|rate| matches!(rate, RequestedRate::OfCapacity(_)));
                let why = "packets per second are expected: a stream has no capacity that shares refer to";
                share.map_or(Ok(()), |rate| Err(out_of_range("rates", rate, why)))
            }
            WorkloadKind::Http
            | WorkloadKind::Connect
            | WorkloadKind::Grpc
            | WorkloadKind::TcpRr
            | WorkloadKind::UdpRr
            | WorkloadKind::Verbs => Ok(()),
        }
    }
}
