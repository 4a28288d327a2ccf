//! `hostgap serve`: the responder, alone.

mod faults;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::load::serve::{
    BODY_BYTES_MAX, Certificate, Idle, Injected, Listen, MessagesConfig, Raw, ResponderConfig, ServeError,
    Served, Server, StackConfig,
};
use anyhow::Context;
use linux::rdma::VerbsWait;
use linux::{CpuSet, IfName, RdmaName};

use crate::exit::BadInput;
use crate::{output, stop, units};

/// Answer all requests alike, as fast as one thread per CPU can, or with known delays and faults.
///
/// HTTP/1.1: `/` has a body of --body bytes, `/N` one of N bytes; heads are as large as nginx's, about 250 bytes.
/// Connections stay open, requests may be pipelined and have bodies. SIGINT and SIGTERM end the server.
///
/// tcp: the server sends --response-bytes bytes after every --request-bytes bytes of a connection. udp: it answers each
/// datagram with one of --response-bytes bytes, which begins with the first 8 bytes of the request (or as many as both
/// have).
///
/// grpc: it answers each call of /hostgap.Echo/Unary with the call's own message, of up to 1 MiB, over HTTP/2 without
/// TLS.
///
/// Delays and faults: a request arrives when it is read; answers leave a connection in the order of its requests. With
/// the same seed, one CPU and the same requests in the same order, the same delays and faults hit the same requests.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hostgap serve
  hostgap serve --listen 0.0.0.0:8080 --listen [::]:8080 --body 4k --cpus 2-3
  hostgap serve --listen https:127.0.0.1:8443 --tls-self-signed --tls-cert-out ca.pem
  hostgap serve --listen udp:127.0.0.1:9000 --response-bytes 1k
  hostgap serve --cpu-us 500
  hostgap serve --listen 0.0.0.0:8080 --afxdp eth0 --wait spin
  hostgap serve --listen 192.0.2.2:80 --vhost-user /run/pod.sock
  hostgap serve --listen verbs:0.0.0.0:9000 --echo --rdma mlx5_0
  hostgap serve --delay 98%:1ms,2%:20ms --freeze 100ms/2s --errors 1%")]
pub(crate) struct Args {
    /// Where to listen; may be given several times. ADDRESS:PORT or unix:PATH for HTTP, https:ADDRESS:PORT,
    /// tcp:ADDRESS:PORT, udp:ADDRESS:PORT, grpc:ADDRESS:PORT or verbs:ADDRESS:PORT. With a certificate ADDRESS:PORT
    /// is HTTPS too (http:ADDRESS:PORT is not). An IPv6 address accepts IPv6 only; the file of a Unix socket is
    /// removed at the end.
    #[arg(long, value_name = "WHERE", default_value = "127.0.0.1:8080")]
    listen: Vec<String>,
    /// Size of the body of `/` in bytes (100, 4k, at most 1M).
    #[arg(long, value_name = "SIZE", default_value = "100")]
    body: String,
    /// Size of a request on tcp: and verbs: addresses.
    #[arg(long, value_name = "SIZE", default_value = "64")]
    request_bytes: String,
    /// Size of a response on tcp:, udp: and verbs: addresses.
    #[arg(long, value_name = "SIZE", default_value = "64")]
    response_bytes: String,
    /// On tcp: addresses a request begins with its own length (4 bytes, least significant first), and its answer has
    /// the same length; on udp: addresses the answer to a datagram has the same length.
    #[arg(long, conflicts_with_all = ["request_bytes", "response_bytes"])]
    echo: bool,
    #[command(flatten)]
    tls: TlsArgs,
    /// CPU time in user space that each request costs before its answer, in microseconds, 1 to 1000000, as in an
    /// application. It is measured by the thread's CPU clock, so it takes longer while other work has the CPU. A
    /// --delay starts after it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    cpu_us: Option<u64>,
    #[command(flatten)]
    faults: faults::FaultArgs,
    /// CPUs, as a list (0-3,8); one thread is pinned to each [default: all that this process may use].
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuSet>,
    /// What a thread does while nothing comes: sleep, or spin for 10 ms and then sleep.
    #[arg(long, value_enum, default_value_t)]
    wait: Wait,
    #[command(flatten)]
    stack: StackArgs,
}

/// What a thread does while nothing comes.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Wait {
    #[default]
    Sleep,
    Spin,
}

/// A stack of our own.
#[derive(Debug, clap::Args)]
struct StackArgs {
    /// Answer on a TCP/IP stack of our own (smoltcp), which takes the frames for --listen from queue 0 of this link by
    /// AF_XDP, before the kernel's stack sees them; all others are left to the kernel. HTTP or udp: on one port, one
    /// address of each family, one thread. The unspecified address is the link's own. Needs root.
    #[arg(long, value_name = "LINK")]
    afxdp: Option<IfName>,
    /// The CPU on which the kernel hands those frames over [default: the one that received them].
    #[arg(long, value_name = "CPU", requires = "afxdp")]
    receive_cpu: Option<u16>,
    /// Answer on that stack behind a port of a switch in user space, by vhost-user: this socket is made, and the
    /// switch connects to it (a port of type dpdkvhostuserclient). It has the addresses of --listen, answers for them
    /// by itself, and is Ethernet address 0a:58 with the last four bytes of the first of them.
    #[arg(long, value_name = "SOCKET", conflicts_with = "afxdp")]
    vhost_user: Option<PathBuf>,
    /// The most bytes of a packet on that port, without its Ethernet header.
    #[arg(long, value_name = "BYTES", default_value_t = 1500, requires = "vhost_user")]
    mtu: u32,
    /// The RDMA device for verbs: addresses. With --wait spin, threads poll for messages and are not woken.
    #[arg(long, value_name = "DEVICE")]
    rdma: Option<RdmaName>,
}

#[derive(Debug, clap::Args)]
struct TlsArgs {
    /// The certificate chain for HTTPS, PEM, the server's own first.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the server's certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Make a certificate for localhost, 127.0.0.1 and ::1. Its key is never written to a file.
    #[arg(long, conflicts_with = "tls_cert")]
    tls_self_signed: bool,
    /// Write that certificate, PEM, so that clients can be configured to trust it.
    #[arg(long, value_name = "FILE", requires = "tls_self_signed")]
    tls_cert_out: Option<PathBuf>,
}

impl StackArgs {
    fn config(&self) -> Option<StackConfig> {
        if let Some(socket) = self.vhost_user.clone() {
            return Some(StackConfig::VhostUser { socket, mtu: self.mtu });
        }
        let link = self.afxdp.clone()?;
        Some(StackConfig::AfXdp { link, receive_cpu: self.receive_cpu })
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = config(args)?;
    let stop = stop::on_signals()?;
    linux::process::raise_open_files()?;
    let server = Server::bind(&config).map_err(|error| match error {
        ServeError::Config(text) => BadInput(text).into(),
        error => anyhow::Error::from(error),
    })?;
    // Only once the server is known to start.
    if let (Some(file), Some(certificate)) = (&args.tls.tls_cert_out, &config.certificate) {
        fs::write(file, certificate.chain_pem())
            .with_context(|| format!("write the certificate to {}", file.display()))?;
    }
    for listen in server.listening() {
        output::aside(format_args!("listening on {}", shown(listen)));
    }
    let served = server.run(&stop)?;
    output::aside(format_args!("{}", sum(&served)));
    Ok(ExitCode::SUCCESS)
}

fn config(args: &Args) -> anyhow::Result<ResponderConfig> {
    let size = |text: &str| units::bytes(text).map_err(BadInput);
    let body_bytes = size(&args.body)?;
    if body_bytes > BODY_BYTES_MAX {
        return Err(BadInput(format!("--body {}: at most 1M is possible", args.body)).into());
    }
    let raw = Raw { request_bytes: size(&args.request_bytes)?, response_bytes: size(&args.response_bytes)? };
    let allowed = linux::cpu::allowed()?;
    let cpus = match &args.cpus {
        Some(cpus) => crate::race::among(cpus.clone(), &allowed)?,
        None => allowed,
    };
    let certificate = certificate(&args.tls)?;
    let listen = args.listen.iter().map(|text| listen(text, certificate.is_some()));
    let listen = listen.collect::<Result<Vec<_>, _>>().map_err(BadInput)?;
    let faults = faults::faults(&args.faults).map_err(BadInput)?;
    let cpu_time = Duration::from_micros(args.cpu_us.unwrap_or(0));
    let idle = match args.wait {
        Wait::Sleep => Idle::Sleep,
        Wait::Spin => Idle::Spin,
    };
    let stack = args.stack.config();
    let messages = args.stack.rdma.clone().map(|device| MessagesConfig {
        device,
        wait: match args.wait {
            Wait::Sleep => VerbsWait::Events,
            Wait::Spin => VerbsWait::Polling,
        },
    });
    Ok(ResponderConfig {
        listen,
        body_bytes,
        raw,
        echo: args.echo,
        certificate,
        cpu_time,
        faults,
        cpus,
        idle,
        stack,
        messages,
    })
}

fn certificate(args: &TlsArgs) -> anyhow::Result<Option<Certificate>> {
    match (&args.tls_cert, &args.tls_key) {
        (Some(chain), Some(key)) => {
            let certificate = Certificate::from_files(chain, key).map_err(anyhow::Error::from);
            Ok(Some(certificate.map_err(|error| BadInput(format!("could not {error}")))?))
        }
        _ if args.tls_self_signed => Ok(Some(Certificate::self_signed()?)),
        _ => Ok(None),
    }
}

/// With a certificate, a plain address means HTTPS.
fn listen(text: &str, certificate: bool) -> Result<Listen, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if certificate => Ok(Listen::Https(address)),
        _ => text.parse().map_err(|error: ::load::serve::NoListen| format!("--listen: {error}")),
    }
}

/// An address in the form in which a generator takes it.
fn shown(listen: &Listen) -> String {
    match listen {
        Listen::Http(address) => format!("http://{address}/"),
        Listen::Https(address) => format!("https://{address}/"),
        Listen::HttpUnix(_) | Listen::Tcp(_) | Listen::Udp(_) | Listen::Grpc(_) | Listen::Verbs(_) => {
            listen.to_string()
        }
    }
}

/// What was served, and the other counts that are not zero.
fn sum(served: &Served) -> String {
    let Injected { delays, freezes, errors, cuts, resets } = served.injected;
    let mut text = format!(
        "{} connections, {} requests answered, {} refused",
        served.connections, served.answered, served.refused
    );
    let rare = [
        (served.broken_tls, "TLS sessions failed"),
        (served.dropped, "datagrams dropped"),
        (delays, "answers delayed"),
        (freezes, "freezes"),
        (errors, "errors injected"),
        (cuts, "connections cut"),
        (resets, "connections reset"),
    ];
    for (count, what) in rare.into_iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!(", {count} {what}"));
    }
    text
}
