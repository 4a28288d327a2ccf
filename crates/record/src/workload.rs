//! What the load is made of: the `[workload]` of an experiment.

mod arrivals;
mod filter;
mod kind;
mod limits;
mod server;

use serde::{Deserialize, Serialize};

pub use arrivals::Arrivals;
pub(crate) use filter::ETHERNET_BYTES;
pub use filter::PacketFilter;
pub use kind::{Measure, WorkloadKind};
pub use limits::CLIENT_CONNECTIONS_MAX;
pub use server::{HttpVersion, ServerKind};

/// The content of the load. Keys that do not apply to a kind are absent. Default values of keys that were added after
/// the first version are omitted, so that a hostgap that does not know them can read such records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Workload {
    /// The kind of exchange.
    #[serde(skip_serializing_if = "WorkloadKind::is_usual")]
    pub kind: WorkloadKind,
    /// Sizes of the answers' bodies in bytes; each size is a separate load. For `grpc`, `tcp-rr`, `udp-rr` and `verbs`
    /// the size of both request and answer, for `download` of the object, for `tcp-stream` of a write, for `udp-stream`
    /// of a packet, for `packets` of a frame without the checksum at its end.
    pub body_bytes: Vec<u32>,
    /// Permanent connections of the client; for `connect` and `download` the number at a time, for streams the flows.
    pub connections: u32,
    /// How the requests of a rate are spread over time.
    #[serde(skip_serializing_if = "Arrivals::are_usual")]
    pub arrivals: Arrivals,
    /// The least number of connections, used where this machine does not allow enough open files for all candidates;
    /// absent: the number must be as requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_min: Option<u32>,
    /// How many objects each client of `download` fetches in a trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u32>,
    /// Which HTTP requests of `connect` and `download` are written in; absent: 1.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpVersion>,
    /// Connections are in TLS.
    #[serde(skip_serializing_if = "is_false")]
    pub tls: bool,
    /// A connection in TLS resumes the session of one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_reuse: Option<bool>,
    /// Microseconds of CPU time in user space that each request costs the server before it answers, as an application
    /// would; absent: none. Only our own responder does that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u32>,
    /// The answer is a file, which nginx opens and sends, instead of text from its configuration. Omitted if false, as
    /// above.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
    /// What becomes of the frames of `packets` on the host, the reference; absent: [`PacketFilter::Socket`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<PacketFilter>,
    /// The program that answers.
    pub server: ServerKind,
    /// Requests go over IPv6.
    pub ipv6: bool,
}

/// The table in its written form: which keys are absent depends on the kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    kind: WorkloadKind,
    body_bytes: Option<Vec<u32>>,
    connections: Option<u32>,
    connections_min: Option<u32>,
    #[serde(default)]
    arrivals: Arrivals,
    objects: Option<u32>,
    http: Option<HttpVersion>,
    #[serde(default)]
    tls: bool,
    session_reuse: Option<bool>,
    cpu_us: Option<u32>,
    #[serde(default)]
    files: bool,
    filter: Option<PacketFilter>,
    #[serde(default)]
    server: ServerKind,
    #[serde(default)]
    ipv6: bool,
}

impl From<Written> for Workload {
    fn from(written: Written) -> Workload {
        let usual = Workload::of(written.kind);
        Workload {
            kind: written.kind,
            body_bytes: written.body_bytes.unwrap_or(usual.body_bytes),
            connections: written.connections.unwrap_or(usual.connections),
            connections_min: written.connections_min,
            arrivals: written.arrivals,
            objects: written.objects.or(usual.objects),
            http: written.http,
            tls: written.tls,
            session_reuse: written.session_reuse,
            cpu_us: written.cpu_us,
            files: written.files,
            filter: written.filter,
            server: written.server,
            ipv6: written.ipv6,
        }
    }
}

impl Workload {
    /// The defaults of a kind.
    pub fn of(kind: WorkloadKind) -> Workload {
        let (body_bytes, connections) = match kind {
            WorkloadKind::Http
            | WorkloadKind::Connect
            | WorkloadKind::Grpc
            | WorkloadKind::TcpRr
            | WorkloadKind::UdpRr => (100, 32),
            // What the examples of RDMA's own library send, one at a time.
            WorkloadKind::Verbs => (64, 1),
            WorkloadKind::Download => (1 << 20, 8),
            // What iperf3 writes at once.
            WorkloadKind::TcpStream => (128 << 10, 1),
            WorkloadKind::UdpStream | WorkloadKind::Packets => (64, 1),
        };
        Workload {
            kind,
            body_bytes: vec![body_bytes],
            connections,
            connections_min: None,
            arrivals: Arrivals::Constant,
            objects: (kind == WorkloadKind::Download).then_some(5),
            http: None,
            tls: false,
            session_reuse: None,
            cpu_us: None,
            files: false,
            filter: None,
            server: ServerKind::Auto,
            ipv6: false,
        }
    }

    /// Whether connections resume sessions; asked only where there is TLS.
    pub fn reuses_sessions(&self) -> bool {
        self.session_reuse.unwrap_or(true)
    }

    /// Which HTTP is spoken, where any is.
    pub fn http_version(&self) -> HttpVersion {
        self.http.unwrap_or_default()
    }
}

impl Default for Workload {
    fn default() -> Workload {
        Workload::of(WorkloadKind::Http)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use crate::experiment_error::ExperimentError;

    fn read(lines: &str) -> Result<Experiment, ExperimentError> {
        Experiment::from_toml(&format!("schema = 1\nname = \"x\"\n{lines}"))
    }

    #[track_caller]
    fn check(lines: &str, message: &str) {
        assert_eq!(read(lines).expect_err(lines).to_string(), message);
    }

    #[test]
    fn a_kind_has_defaults_of_its_own_and_is_written_as_it_was_read() {
        for kind in WorkloadKind::ALL {
            let experiment = read(&format!("workload.kind = \"{}\"", kind.name())).unwrap();
            assert_eq!(experiment.workload, Workload::of(kind));
            let again = toml::to_string(&experiment).unwrap();
            assert_eq!(Experiment::from_toml(&again).unwrap(), experiment, "{again}");
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("ftp".parse::<WorkloadKind>().unwrap_err().contains("http, connect, grpc, download"));
    }

    /// Records of plain HTTP have not changed since the first version, so that older readers understand them.
    #[test]
    fn the_usual_workload_is_written_as_it_always_was() {
        let old = r#"{"body_bytes":[100],"connections":32,"server":"auto","ipv6":false}"#;
        let workload: Workload = serde_json::from_str(old).unwrap();
        assert_eq!(workload, Workload::default());
        assert_eq!(serde_json::to_string(&workload).unwrap(), old);
    }

    #[test]
    fn random_arrivals_are_written_and_equal_intervals_are_not() {
        let random = read("workload.arrivals = \"poisson\"").unwrap();
        assert_eq!(random.workload.arrivals, Arrivals::Poisson);
        assert_eq!(Experiment::from_toml(&random.to_toml()).unwrap(), random);
        let usual = read("workload.arrivals = \"constant\"").unwrap();
        assert!(!usual.to_toml().contains("arrivals"), "{}", usual.to_toml());
        check(
            "workload = { kind = \"udp-stream\", arrivals = \"poisson\" }",
            "`workload.arrivals` is poisson: only a workload with requests that wait for an answer has it",
        );
        assert_eq!(
            "random".parse::<Arrivals>().unwrap_err(),
            "`random` are no arrivals: constant or poisson is expected"
        );
    }

    #[test]
    fn keys_belong_to_kinds() {
        check("workload.objects = 5", "`workload.objects` is 5: only kind = \"download\" has it");
        check(
            "workload = { kind = \"udp-rr\", tls = true }",
            "`workload.tls` is true: only HTTP (http, connect, download) has it",
        );
        check(
            "workload = { kind = \"http\", http = \"1.0\" }",
            "`workload.http` is 1.0: only a connection for each request (connect, download) has it",
        );
        let old = read("workload = { kind = \"connect\", http = \"1.0\" }").unwrap();
        assert_eq!(old.workload.http_version(), HttpVersion::Http10);
        assert!(toml::to_string(&old).unwrap().contains("http = \"1.0\""));
        assert!(read("workload = { kind = \"connect\", http = \"2\" }").is_err());
        check(
            "workload.session_reuse = false",
            "`workload.session_reuse` is false: only a workload with tls = true has it",
        );
        check(
            "workload = { kind = \"tcp-rr\", server = \"nginx\" }",
            "`workload.server` is nginx: nginx speaks HTTP alone",
        );
        check(
            "workload = { kind = \"grpc\", server = \"nginx\" }",
            "`workload.server` is nginx: nginx passes calls on and answers none",
        );
        check(
            "workload = { kind = \"tcp-stream\", server = \"hostgap\" }",
            "`workload.server` is hostgap: a stream is received by this process",
        );
        check(
            "workload.kind = \"tcp-stream\"\nvm = { kernels = [\"debian:6.12\"], exact = true }",
            "`workload.kind` is tcp-stream: instructions are counted for a request, and this workload has none that wait \
             for an answer",
        );
        assert!(read("workload = { kind = \"connect\", tls = true, session_reuse = false }").is_ok());
    }

    #[test]
    fn a_request_costs_cpu_time_where_somebody_spends_it() {
        check("workload.cpu_us = 0", "`workload.cpu_us` is 0: 1 to 1000000 is expected");
        check(
            "workload = { kind = \"tcp-stream\", cpu_us = 5 }",
            "`workload.cpu_us` is 5: a stream has no requests that could cost it",
        );
        check(
            "workload = { server = \"nginx\", cpu_us = 5 }",
            "`workload.cpu_us` is 5: nginx takes what its answers take: leave out `server`, and our own responder answers",
        );
        check(
            "workload.files = true",
            "`workload.files` is true: only nginx has files: say `server = \"nginx\"` too",
        );
        check(
            "workload = { kind = \"download\", files = true }",
            "`workload.files` is true: objects of downloads always are files",
        );
        check(
            "workload = { kind = \"udp-rr\", files = true }",
            "`workload.files` is true: only HTTP (http, connect) answers with files",
        );
        let files = read("workload = { server = \"nginx\", files = true }").unwrap();
        assert!(files.workload.files && toml::to_string(&files).unwrap().contains("files = true"));
        let costly = read("workload = { kind = \"connect\", cpu_us = 250 }").unwrap();
        assert_eq!(costly.workload.cpu_us, Some(250));
        assert!(toml::to_string(&costly).unwrap().contains("cpu_us = 250"));
    }

    #[test]
    fn sizes_and_rates_belong_to_kinds() {
        let body =
            |kind: &str, bytes: u32| format!("workload = {{ kind = \"{kind}\", body_bytes = [{bytes}] }}");
        let range =
            |bytes: u32, range: &str| format!("`workload.body_bytes` is {bytes}: {range} is expected");
        check(&body("udp-rr", 65_508), &range(65_508, "8 to 65507"));
        check(&body("udp-stream", 15), &range(15, "16 to 65507"));
        check(&body("tcp-rr", 3), &range(3, "4 to 1048576"));
        check(&body("grpc", (1 << 20) + 1), &range(1_048_577, "0 to 1048576"));
        check(&body("http", (16 << 20) + 1), &range(16_777_217, "0 to 16777216"));
        check(&body("download", 0), &range(0, "1 to 1073741824"));
        assert!(read(&body("download", 1 << 30)).is_ok());
        check(
            "rates = [5]\nworkload.kind = \"tcp-stream\"",
            "`rates` is 5: a stream of bytes goes as fast as it can",
        );
        check("rates = [5]\nworkload.kind = \"download\"", "`rates` is 5: downloads go as fast as they can");
        check(
            "rates = [5, \"30%\"]\nworkload.kind = \"udp-stream\"",
            "`rates` is 30%: packets per second are expected: a stream has no capacity that shares refer to",
        );
        assert!(read("rates = [5000]\nworkload.kind = \"udp-stream\"").is_ok());
        check(
            "workload = { kind = \"udp-stream\", connections = 257 }",
            "`workload.connections` is 257: 1 to 256 is expected",
        );
    }
}
