//! `hostgap serve`: the responder, alone.

use std::net::SocketAddr;
use std::process::ExitCode;

use ::load::serve::{BODY_BYTES_MAX, Config, Server};
use linux::CpuSet;

use crate::exit::BadInput;
use crate::{speak, stop, units};

/// Answer HTTP requests, always with the same, as fast as one thread a CPU can.
///
/// `/` has a body of the size given, `/N` one of N bytes; heads are as large as nginx's, about 250 bytes. Connections
/// stay open, requests may be pipelined. SIGINT and SIGTERM end it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hostgap serve
  hostgap serve --listen 0.0.0.0:8080 --listen [::]:8080 --body 4k --cpus 2-3")]
pub(crate) struct Args {
    /// Where to listen; may be given several times. An IPv6 address takes IPv6 alone.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: Vec<SocketAddr>,
    /// Size of the body of `/` in bytes (100, 4k, at most 1M).
    #[arg(long, value_name = "SIZE", default_value = "100")]
    body: String,
    /// CPUs, as a list (0-3,8); one thread is pinned to each. Without it, all that this process may use.
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuSet>,
}

/// `hostgap serve`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let body_bytes = units::bytes(&args.body).map_err(BadInput)?;
    if body_bytes > BODY_BYTES_MAX {
        return Err(BadInput(format!("--body {}: at most 1M is possible", args.body)).into());
    }
    let cpus = match args.cpus {
        Some(cpus) if cpus.is_empty() => return Err(BadInput("--cpus names no CPU".to_owned()).into()),
        Some(cpus) => cpus,
        None => linux::cpu::allowed()?,
    };
    let stop = stop::on_signals()?;
    let server = Server::bind(&Config { listen: args.listen, body_bytes, cpus })?;
    for address in server.addresses() {
        speak::aside(format_args!("listening on http://{address}/"));
    }
    let served = server.run(&stop)?;
    speak::aside(format_args!(
        "{} connections, {} requests answered, {} refused",
        served.connections, served.answered, served.refused
    ));
    Ok(ExitCode::SUCCESS)
}
