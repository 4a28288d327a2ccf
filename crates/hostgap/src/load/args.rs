//! The command line of `hostgap load`.

use std::path::PathBuf;

use linux::{CpuSet, RdmaName};

/// Send requests to a server at a constant rate, and measure how long its answers take.
///
/// The schedule does not wait for the server. Response time counts from the instant at which a request was meant to be
/// sent, so it shows when the server stalls. Service time counts from the instant at which it was sent, which is what
/// most tools print. Lag is the difference; late is the part of it caused by the generator and not by the wait for a
/// free connection. Latencies in microseconds need a CPU for the generator alone (--cpus).
///
/// Every run is checked: whether it was what was requested (rate, answers, connections), and whether the generator, its
/// machine and the samples leave a doubt (lateness, gaps, CPUs, a run that changed half-way, samples that depend on
/// each other). Doubts are reported; with --strict they make the run fail.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hostgap load http://127.0.0.1:8080/ --rate 20k
  hostgap load http://[::1]:8080/4096 --rate 1.5k --connections 500 --duration 1m --cpus 2,3
  hostgap load http://10.0.0.1/ --rate max --pipeline 16 --json
  hostgap load http://10.0.0.1/ -n 100000 --rate max --connections 32 --no-keepalive --http 1.0
  hostgap load http://10.0.0.1/ http://10.0.0.1/cart --weights 9,1 --rate 5k,10k,20k --arrivals poisson
  hostgap load https://10.0.0.1/ --find-max --slo 'p99<2ms'
  hostgap load udp://10.0.0.1:9000 --request-bytes 200 --response-bytes 1400 --rate 50k --request-timeout 100ms
  hostgap load grpc://10.0.0.1:8080 --rate 10k --request-bytes 1k
  hostgap load --self-test

Exit code 3: the run is not valid, because the rate was missed by more than 0.01 %, because less
than 99.9 % of the requests were answered as expected, because connections broke, or under --strict
because a check left a doubt.")]
pub(crate) struct Args {
    /// The URL: `http://HOST[:PORT][/PATH]`, `https://…`, `tcp://HOST:PORT`, `udp://HOST:PORT`, `grpc://HOST:PORT`
    /// (unary calls of /hostgap.Echo/Unary, without TLS) or `verbs://HOST:PORT` (with --rdma). Several URLs of one
    /// server are requested in turn, by their --weights.
    #[arg(value_name = "URL", required_unless_present = "self_test")]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    #[command(flatten)]
    pub(crate) generator: GeneratorArgs,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
}

/// Rate, connections and duration.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Requests per second (500, 20k, 1.5M, 0.5), or max: each connection sends its next request as soon as it has its
    /// answer. Several rates, joined by commas, run one after the other.
    #[arg(
        long,
        value_name = "RATE",
        default_value = "1k",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub(crate) rate: Vec<String>,
    /// How the intended instants of requests are distributed.
    #[arg(long, value_enum, default_value_t = Arrivals::Constant)]
    pub(crate) arrivals: Arrivals,
    /// The seed of random instants: the same seed gives the same instants.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Permanent connections of all threads together; over UDP the number of sockets, with --no-keepalive the most
    /// connections at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Open a connection for each request, as `ab` does without -k. The time of a request begins at its intended
    /// instant and includes the handshakes of TCP and TLS; it counts as sent when its connection is started. The server
    /// is asked to close (Connection: close), so that this side's ports are free at once. Until it does the place stays
    /// taken; after a second this side closes.
    #[arg(long)]
    pub(crate) no_keepalive: bool,
    /// What happens to a request that is due when no connection is free.
    #[arg(long, value_enum, default_value_t = WhenBusyArg::Wait)]
    pub(crate) when_busy: WhenBusyArg,
    /// Requests that may be open on one connection, with --rate max or --when-busy pipeline [default: 1, or 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) pipeline: Option<u32>,
    /// The most connections with --when-busy grow [default: 16 times --connections].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections_max: Option<u32>,
    /// End after N requests instead of after --duration; with several rates, N at each. With --rate max the run ends
    /// with the last answer, or when none has come for as long as --timeout.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        conflicts_with_all = ["duration", "find_max"],
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub(crate) requests: Option<u64>,
    /// How long to measure (10s, 500ms, 1m30s).
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) duration: String,
    /// Warm-up load before the measurement, which is not counted; 0s: none [default: 1s, with -n none].
    #[arg(long, value_name = "TIME")]
    pub(crate) warmup: Option<String>,
    /// How long to wait for connections, and for answers after the end.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub(crate) timeout: String,
    /// How long to wait for one answer. After that the request is missed, and its connection is replaced by a new one
    /// [default: until the end; over UDP, --timeout].
    #[arg(long, value_name = "TIME")]
    pub(crate) request_timeout: Option<String>,
    /// Find the highest rate at which --slo is met, instead of running at --rate.
    #[arg(long, conflicts_with = "rate", requires = "slo")]
    pub(crate) find_max: bool,
    /// Percentiles of response time and their limits, joined by commas: p99<2ms, p50<200us,p99.9<10ms.
    #[arg(long, value_name = "LIMITS", requires = "find_max")]
    pub(crate) slo: Option<String>,
}

/// Requests and expected answers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Request and answer")]
pub(crate) struct RequestArgs {
    /// The version of HTTP [default: 1.1]. 1.0 needs --no-keepalive: the connection ends with the answer, and if the
    /// server gives no length, the answer ends with the connection.
    #[arg(long, value_enum, value_name = "VERSION")]
    pub(crate) http: Option<HttpArg>,
    /// How often each URL is requested relative to the others (9,1), in their order.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) weights: Vec<u32>,
    /// The method [default: GET, or POST with --body].
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// A header field of the request; may be given several times.
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// The request's body, or @FILE to read it from.
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// The status of a good answer over HTTP [default: 200].
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(200..=999))]
    pub(crate) expect_status: Option<u16>,
    /// The size of a good answer's body over HTTP in bytes (100, 4k) [default: any].
    #[arg(long, value_name = "SIZE")]
    pub(crate) expect_body: Option<String>,
    /// Connect to this Unix socket instead of the URL's host.
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// The RDMA device by which messages go with verbs://. The server is `hostgap serve --rdma`.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) rdma: Option<RdmaName>,
    /// Look for answers in the device's queue again and again, instead of being woken by its events. It
    /// takes a whole CPU.
    #[arg(long, requires = "rdma")]
    pub(crate) rdma_poll: bool,
    /// Trust the certificates of this PEM file, instead of this machine's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Trust any certificate, and check no name in it.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Make every TLS handshake a full one: resume no session. For --no-keepalive.
    #[arg(long, requires = "no_keepalive")]
    pub(crate) no_session_reuse: bool,
    /// The size of a request with tcp://, udp:// and verbs://, or of a call's body with grpc:// [default: 64].
    #[arg(long, value_name = "SIZE")]
    pub(crate) request_bytes: Option<String>,
    /// The size of an answer with tcp://, udp:// and verbs:// [default: 64].
    #[arg(long, value_name = "SIZE")]
    pub(crate) response_bytes: Option<String>,
}

/// Threads and CPUs of the generator.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Generator")]
pub(crate) struct GeneratorArgs {
    /// Threads, each with its share of the connections [default: 1, or one for each of --cpus].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// CPUs as a list (0-3,8); threads are pinned to them in turn [default: threads are not pinned].
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpus: Option<CpuSet>,
    /// How a thread waits for the next instant.
    #[arg(long, value_enum, default_value_t = WaitArg::Hybrid)]
    pub(crate) wait: WaitArg,
    /// Let the kernel time-stamp packets, to separate the time on the wire and in the server from the client's own.
    /// Costs two system calls a request.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Do not watch the CPUs for times at which the machine did not run them. They are watched at a constant or Poisson
    /// rate where this user may: all CPUs if the server's address is one of this machine, else those of --cpus. A
    /// container has addresses of its own.
    #[arg(long)]
    pub(crate) no_witness: bool,
    /// Run the threads under SCHED_FIFO with this priority, so that other programs do not make them late.
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) fifo: Option<u8>,
}

/// How the result is printed, written and judged.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Result")]
pub(crate) struct ResultArgs {
    /// Print the result as JSON, times in nanoseconds.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write all times to a file as an HdrHistogram interval log, in nanoseconds, tagged response, service and lag.
    #[arg(long, value_name = "FILE")]
    pub(crate) hlog: Option<PathBuf>,
    /// Fail with code 3 also if only a doubt is left.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Test this generator on this machine against a responder of known behaviour. Takes less than a minute.
    #[arg(long, conflicts_with = "urls")]
    pub(crate) self_test: bool,
}

/// The value for [`::load::HttpVersion`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HttpArg {
    /// The connection stays open unless the request asks to close it.
    #[value(name = "1.1")]
    Http11,
    /// The connection ends with the answer.
    #[value(name = "1.0")]
    Http10,
}

/// The value for the arrivals of a [`::load::Schedule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arrivals {
    /// Evenly spaced, one each 1/RATE seconds.
    Constant,
    /// At random, like the requests of many independent users.
    Poisson,
}

/// The value for [`::load::WhenBusy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WhenBusyArg {
    /// The request waits its turn and keeps its intended time.
    Wait,
    /// It is sent behind other requests on a connection.
    Pipeline,
    /// A new connection is opened for it.
    Grow,
    /// It is not sent, but counted.
    Drop,
}

/// The value for [`::load::Wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WaitArg {
    /// Sleep until shortly before it, then spin. How early to wake up is learned from earlier sleeps.
    Hybrid,
    /// Sleep: uses the least CPU, and is some microseconds late.
    Sleep,
    /// Never sleep: only for a CPU that nothing else needs.
    Spin,
}
