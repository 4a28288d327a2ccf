//! The command line of `hostgap load`.

use std::path::PathBuf;

use linux::CpuSet;

/// Ask a server at a constant rate, and tell how long its answers take.
///
/// The schedule does not wait for the server. Response time counts from the instant at which a request was meant to be
/// sent, so a server that stalls shows it; service time counts from the instant at which it was sent, which is what
/// most tools print; lag is the difference, and late the part of it that is the generator's own and not the wait for a
/// free connection. Latency to the microsecond needs a CPU for the generator (--cpus).
///
/// Every run is checked: whether it was what was asked for (rate, answers, connections), and whether the generator, its
/// machine and the samples leave a doubt (lateness, gaps, CPUs, a run that changed half-way, samples that depend on each
/// other). Doubts are told, and make the run fail under --strict.
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

Exit code 3: the run is not valid, because the rate was missed by more than 0.01 %, because less than 99.9 % of the
requests were answered as expected, because connections broke, or under --strict because a check left a doubt.")]
pub(crate) struct Args {
    /// What to ask: `http://HOST[:PORT][/PATH]`, `https://…`, `tcp://HOST:PORT`, `udp://HOST:PORT`,
    /// `grpc://HOST:PORT` (unary calls of /hostgap.Echo/Unary, in the clear). Several URLs of one
    /// server are asked in turn, as often as their --weights say.
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

/// How much, when and for how long.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Requests per second (500, 20k, 1.5M, 0.5), or max: each connection asks again as soon as it has its answer.
    /// Several rates, with commas, are run one after the other.
    #[arg(
        long,
        value_name = "RATE",
        default_value = "1k",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub(crate) rate: Vec<String>,
    /// The instants at which requests are meant to be sent.
    #[arg(long, value_enum, default_value_t = Arrivals::Constant)]
    pub(crate) arrivals: Arrivals,
    /// Which random instants: the same seed gives the same ones.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Permanent connections, of all threads together; over UDP as many sockets, with --no-keepalive as many as there
    /// are at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// A connection for each request, as `ab` has without -k. The time of a request begins at its intended instant, and
    /// holds the handshakes of TCP and TLS; it is sent when its connection is begun. The server is asked to close
    /// (Connection: close), so that the ports of this side are free at once; until it has, the place is taken.
    #[arg(long)]
    pub(crate) no_keepalive: bool,
    /// What happens to a request that is due when no connection is free.
    #[arg(long, value_enum, default_value_t = WhenBusyArg::Wait)]
    pub(crate) when_busy: WhenBusyArg,
    /// Requests that may be open on one connection, with --rate max or --when-busy pipeline [default: 1, or 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) pipeline: Option<u32>,
    /// Connections that there may be with --when-busy grow [default: 16 times --connections].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections_max: Option<u32>,
    /// As many requests as that and then the end, instead of --duration; of several rates, as many at each. At --rate max
    /// the run is over with the last answer, or when none has come for as long as --timeout.
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
    /// Load before that, which is not counted; 0s: none [default: 1s, with -n none].
    #[arg(long, value_name = "TIME")]
    pub(crate) warmup: Option<String>,
    /// How long to wait for connections, and for answers after the end.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub(crate) timeout: String,
    /// How long to wait for one answer. Then its request is missed, and its connection is made anew. Without it, until
    /// the end; over UDP, as long as --timeout.
    #[arg(long, value_name = "TIME")]
    pub(crate) request_timeout: Option<String>,
    /// Find the highest rate at which --slo is met, instead of running at --rate.
    #[arg(long, conflicts_with = "rate", requires = "slo")]
    pub(crate) find_max: bool,
    /// Percentiles of response time and their limits, with commas: p99<2ms, p50<200us,p99.9<10ms.
    #[arg(long, value_name = "LIMITS", requires = "find_max")]
    pub(crate) slo: Option<String>,
}

/// What is asked and what is expected.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Request and answer")]
pub(crate) struct RequestArgs {
    /// The version of HTTP that requests are written in [default: 1.1]. 1.0 takes --no-keepalive: its connection ends with
    /// the answer, and where the server tells no length, the answer with the connection.
    #[arg(long, value_enum, value_name = "VERSION")]
    pub(crate) http: Option<HttpArg>,
    /// How often each URL is asked beside the others (9,1), in their order.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) weights: Vec<u32>,
    /// The method [default: GET, or POST with --body].
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// A field of the request's head; may be given several times.
    #[arg(long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// The request's body, or @FILE to read it from.
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// The status of a good answer over HTTP [default: 200].
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(200..=999))]
    pub(crate) expect_status: Option<u16>,
    /// The size of a good answer's body over HTTP in bytes (100, 4k). Without it, any.
    #[arg(long, value_name = "SIZE")]
    pub(crate) expect_body: Option<String>,
    /// Connect to this Unix socket instead of the URL's host.
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// Trust the certificates of this PEM file, instead of this machine's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Trust any certificate.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Every handshake of TLS is a whole one: no session is resumed. For --no-keepalive.
    #[arg(long, requires = "no_keepalive")]
    pub(crate) no_session_reuse: bool,
    /// The size of a request with tcp:// and udp://, of a call's body with grpc:// [default: 64].
    #[arg(long, value_name = "SIZE")]
    pub(crate) request_bytes: Option<String>,
    /// The size of an answer with tcp:// and udp:// [default: 64].
    #[arg(long, value_name = "SIZE")]
    pub(crate) response_bytes: Option<String>,
}

/// Where and how the generator runs.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Generator")]
pub(crate) struct GeneratorArgs {
    /// Threads, each with its share of the connections. Without it, one, or one for each of --cpus.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// CPUs as a list (0-3,8); threads are pinned to them in turn. Without it, threads run anywhere.
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpus: Option<CpuSet>,
    /// How a thread waits for the next instant.
    #[arg(long, value_enum, default_value_t = WaitArg::Hybrid)]
    pub(crate) wait: WaitArg,
    /// Let the kernel stamp packets, to tell the time on the wire and in the server from the client's own. Costs two
    /// system calls a request.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Run the threads under SCHED_FIFO with this priority, so that other programs do not make them late.
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) fifo: Option<u8>,
}

/// What becomes of the figures.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Result")]
pub(crate) struct ResultArgs {
    /// Print the result as JSON, times in nanoseconds.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write all times to a file as an interval log of HdrHistogram, in nanoseconds, tagged response, service and lag.
    #[arg(long, value_name = "FILE")]
    pub(crate) hlog: Option<PathBuf>,
    /// Fail with code 3 also for what only leaves a doubt.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Prove this generator on this machine: run it against a responder of known behaviour. Takes less than a minute.
    #[arg(long, conflicts_with = "urls")]
    pub(crate) self_test: bool,
}

/// [`::load::Version`] as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HttpArg {
    /// The connection stays, or is asked to be closed.
    #[value(name = "1.1")]
    Http11,
    /// The connection ends with the answer.
    #[value(name = "1.0")]
    Http10,
}

/// Instants as they are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arrivals {
    /// Evenly spaced.
    Constant,
    /// At random, as of many users who do not know each other.
    Poisson,
}

/// [`::load::WhenBusy`] as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WhenBusyArg {
    /// It waits in order and keeps its intended time.
    Wait,
    /// It is sent behind others on a connection.
    Pipeline,
    /// A connection is opened for it.
    Grow,
    /// It is not sent, and counted.
    Drop,
}

/// [`::load::Wait`] as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WaitArg {
    /// Sleep until shortly before it, as early as sleeps are late here, then spin.
    Hybrid,
    /// Sleep: the least CPU, some microseconds late.
    Sleep,
    /// Never sleep: only on a CPU that nobody else needs.
    Spin,
}
