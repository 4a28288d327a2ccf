//! `hostgap agent probe`: whether an agent is well, for Kubernetes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::{exit, output};

/// An agent answers at once, unless it is busy with its node.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ask an agent for its health, at the socket of `hostgap agent run --listen unix:PATH`.
///
/// The exit code is 0 if it is well, and 1 if it is not or does not answer; its reason is printed. Kubernetes probes
/// the agent by it. Over the node's address it would ask the agent that has the port, which is another one while one
/// agent waits for the other.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to ask: /healthz (whether its loop runs) or /readyz (whether the node is in the network, or would be if the
    /// agent did not wait for another one).
    #[arg(value_name = "PATH", value_parser = ["/healthz", "/readyz"])]
    path: String,
    /// The path of the Unix socket on which the agent answers.
    #[arg(long, value_name = "FILE")]
    socket: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let attempted = || format!("ask the agent at {}", args.socket.display());
    let answer = ask(args).with_context(attempted)?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        bail!("{}: its answer is not HTTP: {answer:?}", attempted());
    };
    output::result(body.trim_end())?;
    let is_well = head.split(' ').nth(1) == Some("200");
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILURE) })
}

fn ask(args: &Args) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(&args.socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n", args.path)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
