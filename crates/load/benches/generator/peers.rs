//! Load generators of others, as processes.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;

/// A generator that can saturate a server of HTTP/1.1.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    Wrk,
    H2load,
}

impl Peer {
    pub(crate) const ALL: [Peer; 2] = [Peer::Wrk, Peer::H2load];

    /// The program's name, which is also that of its Debian package or of a part of it (h2load: nghttp2-client).
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Wrk => "wrk",
            Peer::H2load => "h2load",
        }
    }

    pub(crate) fn is_installed(self) -> bool {
        let mut command = Command::new(self.name());
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    }

    /// Requests per second by the program's own count.
    pub(crate) fn saturate(
        self,
        address: SocketAddr,
        connections: usize,
        slice: Duration,
    ) -> Result<f64, Failure> {
        let (connections, seconds) = (connections.to_string(), slice.as_secs().to_string());
        let url = format!("http://{address}/");
        let mut command = Command::new(self.name());
        match self {
            Peer::Wrk => command.args(["-t", "1", "-c", &connections, "-d", &seconds, &url]),
            Peer::H2load => command.args(["--h1", "-t", "1", "-c", &connections, "-D", &seconds, &url]),
        };
        let output = command.stderr(Stdio::inherit()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        self.rate(&text).ok_or_else(|| format!("{command:?} told no rate: {text}").into())
    }

    /// wrk: `Requests/sec:  1234.56`; h2load: `finished in 1.00s, 1234.56 req/s, 1.23MB/s`.
    fn rate(self, text: &str) -> Option<f64> {
        let number = match self {
            Peer::Wrk => text.lines().find_map(|line| line.strip_prefix("Requests/sec:"))?,
            Peer::H2load => {
                let line = text.lines().find(|line| line.starts_with("finished in"))?;
                line.split(", ").find_map(|part| part.strip_suffix(" req/s"))?
            }
        };
        number.trim().parse().ok()
    }
}
