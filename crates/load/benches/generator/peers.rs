//! Load generators of other projects, as processes.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;
use crate::saturation::Slice;

/// A generator that can saturate an HTTP/1.1 server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    Wrk,
    H2load,
    Ab,
    Hey,
    Oha,
}

impl Peer {
    pub(crate) const ALL: [Peer; 5] = [Peer::Wrk, Peer::H2load, Peer::Ab, Peer::Hey, Peer::Oha];

    /// The program's name. Debian has it in the packages wrk, nghttp2-client, apache2-utils and hey.
    /// `cargo install` has oha.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Wrk => "wrk",
            Peer::H2load => "h2load",
            Peer::Ab => "ab",
            Peer::Hey => "hey",
            Peer::Oha => "oha",
        }
    }

    pub(crate) fn is_installed(self) -> bool {
        let mut command = Command::new(self.name());
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    }

    /// Requests per second as the program reports them, and the CPU time of its whole process.
    pub(crate) fn saturate(
        self,
        address: SocketAddr,
        connections: usize,
        slice: Duration,
    ) -> Result<Slice, Failure> {
        let (connections, seconds) = (connections.to_string(), slice.as_secs().to_string());
        let (url, timed) = (format!("http://{address}/"), format!("{seconds}s"));
        let mut command = Command::new(self.name());
        match self {
            Peer::Wrk => command.args(["-t", "1", "-c", &connections, "-d", &seconds, &url]),
            Peer::H2load => command.args(["--h1", "-t", "1", "-c", &connections, "-D", &seconds, &url]),
            Peer::Ab => {
                command.args(["-q", "-k", "-c", &connections, "-t", &seconds, "-n", "100000000", &url])
            }
            Peer::Hey => command.args(["-cpus", "1", "-c", &connections, "-z", &timed, &url]),
            Peer::Oha => command.args(["--no-tui", "-c", &connections, "-z", &timed, &url]),
        };
        let before_s = children_cpu_s()?;
        let output = command.stderr(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let per_s = self.rate(&text).ok_or_else(|| format!("{command:?} printed no rate: {text}"))?;
        let spent_s = children_cpu_s()? - before_s;
        Ok(Slice { per_s, cpu_s: spent_s * 1e6 / (per_s * slice.as_secs_f64()) })
    }

    /// wrk: `Requests/sec:  1234.56`, and hey and oha print the same;
    /// h2load: `finished in 1.00s, 1234.56 req/s, 1.23MB/s`;
    /// ab: `Requests per second:    1234.56 [#/sec] (mean)`.
    fn rate(self, text: &str) -> Option<f64> {
        let after = |start: &str| text.lines().find_map(|line| line.trim_start().strip_prefix(start));
        let number = match self {
            Peer::Wrk | Peer::Hey | Peer::Oha => after("Requests/sec:")?,
            Peer::Ab => after("Requests per second:")?,
            Peer::H2load => after("finished in")?.split(", ").find_map(|part| part.strip_suffix(" req/s"))?,
        };
        number.split_whitespace().next()?.parse().ok()
    }
}

/// The CPU time of ended child processes (proc(5): cutime and cstime in `/proc/self/stat`, in ticks of 10
/// ms).
fn children_cpu_s() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The program's name may contain blanks and brackets.
    let after = stat.rsplit_once(") ").ok_or("stat has no name")?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks: u64 = fields[13].parse::<u64>()? + fields[14].parse::<u64>()?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
