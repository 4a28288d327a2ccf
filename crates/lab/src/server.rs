//! The server in the server's pod: real nginx, or our own responder where it is not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use linux::cpu::Scheduling;
use linux::process::{Child, Spawn};
use linux::{Cgroup, CpuSet, NetnsName, netns::Netns};
use record::ServerKind;

use crate::LabError;
use crate::topology::SERVER_PORT;

/// Who will answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerChoice {
    /// nginx.
    Nginx(Nginx),
    /// `hostgap serve`, run from this executable.
    Hostgap(PathBuf),
}

/// An nginx that answers when asked for its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nginx {
    /// The executable.
    pub program: PathBuf,
    /// Its own words: "nginx/1.22.1".
    pub version: String,
}

/// A server that runs in a pod. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: PathBuf,
    candidate: String,
}

/// What a server is started with.
#[derive(Debug)]
pub struct Place<'a> {
    /// Whose server it is, for messages.
    pub candidate: &'a str,
    /// The namespace.
    pub netns: &'a NetnsName,
    /// The control group, if it is to be in one.
    pub cgroup: Option<Cgroup>,
    /// One worker a CPU.
    pub cpus: &'a CpuSet,
    /// A directory of ours for its files.
    pub dir: &'a Path,
    /// Policy of its threads.
    pub scheduling: Scheduling,
    /// The most connections that it is given.
    pub connections: u32,
    /// It goes on when this process ends.
    pub outlives_us: bool,
    /// Sizes of the bodies that it must be able to answer with; each is found at `/<size>`.
    pub body_bytes: &'a [u32],
}

impl Nginx {
    /// Looks for nginx: the path given, else `nginx` in `PATH` and `/usr/sbin`.
    pub fn find(given: Option<&Path>) -> Result<Nginx, LabError> {
        let candidates = match given {
            Some(path) => vec![path.to_owned()],
            None => vec![PathBuf::from("nginx"), PathBuf::from("/usr/sbin/nginx")],
        };
        let mut why = String::new();
        for program in candidates {
            // nginx -v writes "nginx version: nginx/1.22.1" to stderr.
            match Command::new(&program).arg("-v").output() {
                Ok(output) => {
                    let text = String::from_utf8_lossy(&output.stderr).into_owned();
                    if let Some((_, version)) = text.trim().split_once("nginx version: ") {
                        return Ok(Nginx { program, version: version.to_owned() });
                    }
                    why = format!("{} -v said {:?}", program.display(), text.trim());
                }
                Err(error) => why = format!("{}: {error}", program.display()),
            }
        }
        Err(LabError::NoNginx { why })
    }
}

impl ServerChoice {
    /// Decides who answers. `own` is this executable.
    pub fn decide(kind: ServerKind, nginx: Option<&Path>, own: &Path) -> Result<ServerChoice, LabError> {
        match kind {
            ServerKind::Nginx => Nginx::find(nginx).map(ServerChoice::Nginx),
            ServerKind::Hostgap => Ok(ServerChoice::Hostgap(own.to_owned())),
            // A path that was given and does not work is a mistake to be told, not a reason to take another server.
            ServerKind::Auto if nginx.is_some() => Nginx::find(nginx).map(ServerChoice::Nginx),
            ServerKind::Auto => match Nginx::find(None) {
                Ok(nginx) => Ok(ServerChoice::Nginx(nginx)),
                Err(_) => Ok(ServerChoice::Hostgap(own.to_owned())),
            },
        }
    }

    /// Its name for the record.
    pub fn describe(&self) -> String {
        match self {
            ServerChoice::Nginx(nginx) => nginx.version.clone(),
            ServerChoice::Hostgap(_) => format!("hostgap serve {}", env!("CARGO_PKG_VERSION")),
        }
    }

    /// Starts it.
    pub fn start(&self, place: &Place<'_>) -> Result<Server, LabError> {
        fs::create_dir_all(place.dir).map_err(LabError::file("create", place.dir))?;
        let log = place.dir.join("server.log");
        let netns = Netns::open(place.netns)?;
        let (program, args) = match self {
            ServerChoice::Nginx(nginx) => (nginx.program.clone(), nginx_args(place)?),
            ServerChoice::Hostgap(program) => (program.clone(), own_args(place)),
        };
        let spawn = Spawn {
            args,
            netns: Some(netns),
            cgroup: place.cgroup.clone(),
            cpus: Some(place.cpus.clone()),
            scheduling: place.scheduling,
            log: Some(log.clone()),
            // nginx's workers outlive a master that is killed; as members of a PID namespace they cannot.
            new_pid_namespace: true,
            die_with_parent: !place.outlives_us,
            ..Spawn::new(program)
        };
        Ok(Server { child: spawn.start()?, log, candidate: place.candidate.to_owned() })
    }
}

impl Server {
    /// An error if it has ended.
    pub fn check(&mut self) -> Result<(), LabError> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.failure(format!("ended by itself ({status})"))),
        }
    }

    /// The error that tells what happened to it, with the end of its log.
    pub fn failure(&self, what: String) -> LabError {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(3).collect();
        let log = tail.into_iter().rev().collect::<Vec<_>>().join(" | ");
        LabError::Server { candidate: self.candidate.clone(), what, log }
    }

    /// Asks it to end and waits; after a second it is killed.
    pub fn stop(mut self) -> Result<(), LabError> {
        self.child.terminate(Duration::from_secs(1))?;
        Ok(())
    }

    /// Lets it go on after this process has ended.
    pub fn leave_running(self) {
        self.child.detach();
    }
}

/// A minimal configuration of our own: nothing of the machine's is read, all files are under our directory. The
/// answer is made in memory; its header is filled up to what a small static file gets, so that a body of 100 bytes
/// makes about 350 on the wire, as in the published comparisons.
fn nginx_args(place: &Place<'_>) -> Result<Vec<String>, LabError> {
    let dir = place.dir.display();
    let locations: String = place.body_bytes.iter().map(|size| location(*size as usize)).collect();
    let workers = place.cpus.len();
    // The kernel spreads connections over workers by a hash, so one worker may get nearly all of them.
    let connections = worker_connections(place.connections);
    let files = connections + 64;
    let affinity: Vec<String> = place.cpus.iter().map(affinity_mask).collect();
    let affinity = affinity.join(" ");
    let config = format!(
        "daemon off;
user root;
worker_processes {workers};
worker_cpu_affinity {affinity};
worker_rlimit_nofile {files};
pid {dir}/nginx.pid;
error_log {dir}/server.log;
events {{ worker_connections {connections}; }}
http {{
  access_log off;
  default_type text/plain;
  keepalive_timeout 24h;
  keepalive_time 24h;
  keepalive_requests 4294967295;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  server {{
    listen {SERVER_PORT} reuseport backlog=4096;
    listen [::]:{SERVER_PORT} reuseport backlog=4096;
    add_header Last-Modified \"Thu, 01 Jan 2015 00:00:00 GMT\";
    add_header ETag \"\\\"54a48e00-64\\\"\";
    add_header Accept-Ranges bytes;
{locations}  }}
}}
"
    );
    let path = place.dir.join("nginx.conf");
    fs::write(&path, config).map_err(LabError::file("write", &path))?;
    let text = |path: PathBuf| path.display().to_string();
    Ok(vec![
        "-e".to_owned(),
        text(place.dir.join("server.log")),
        "-p".to_owned(),
        text(place.dir.to_owned()),
        "-c".to_owned(),
        text(path),
    ])
}

/// What a worker is told for a number of connections. nginx closes idle connections of the kind that stays open as soon
/// as a sixteenth or less of its places is free (`ngx_drain_connections`), so an eighth is added, and some for what is
/// no connection of a client.
fn worker_connections(connections: u32) -> u32 {
    connections.saturating_add(connections / 8).saturating_add(64)
}

/// The answer of a size. A word of nginx's configuration must be shorter than 4 KiB, so a longer body is written as
/// repetitions of `$k`, and put together for each request by one copy.
fn location(size: usize) -> String {
    let body = "x".repeat(size % CHUNK_BYTES) + &"$k".repeat(size / CHUNK_BYTES);
    if size < CHUNK_BYTES {
        return format!("    location = /{size} {{ return 200 \"{body}\"; }}\n");
    }
    let chunk = "x".repeat(CHUNK_BYTES);
    format!("    location = /{size} {{ set $k \"{chunk}\"; return 200 \"{body}\"; }}\n")
}

/// The length of `$k`.
const CHUNK_BYTES: usize = 2000;

/// nginx's own format: a binary number in which the lowest bit is CPU 0.
fn affinity_mask(cpu: u16) -> String {
    format!("1{}", "0".repeat(cpu.into()))
}

fn own_args(place: &Place<'_>) -> Vec<String> {
    let listen = |host: &str| ["--listen".to_owned(), format!("{host}:{SERVER_PORT}")];
    let mut args = vec!["serve".to_owned()];
    args.extend(listen("0.0.0.0"));
    args.extend(listen("[::]"));
    args.extend(["--cpus".to_owned(), place.cpus.to_string()]);
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_is_made_of_short_words() {
        for size in [0, 100, 1999, 2000, 4096, 1 << 20] {
            let location = location(size);
            let (_, body) = location.split_once("return 200 \"").unwrap();
            let body = body.trim_end_matches("\"; }\n");
            assert!(body.len() < 4000);
            assert_eq!(body.matches("$k").count() * CHUNK_BYTES + body.matches('x').count(), size);
        }
    }

    #[test]
    fn nginx_has_places_enough_to_keep_all_connections() {
        for connections in [1, 32, 960, 1_000, 3_290, 20_000] {
            let places = worker_connections(connections);
            assert!(places - connections - 8 > places / 16, "{connections}");
        }
    }

    #[test]
    fn nginx_counts_cpus_from_the_right() {
        assert_eq!(affinity_mask(0), "1");
        assert_eq!(affinity_mask(3), "1000");
    }

    #[test]
    fn a_given_nginx_that_is_none_is_an_error_even_where_any_server_would_do() {
        let error =
            ServerChoice::decide(ServerKind::Auto, Some(Path::new("/nonexistent/nginx")), Path::new("x"));
        assert!(matches!(error, Err(LabError::NoNginx { .. })));
        let error = Nginx::find(Some(Path::new("/bin/true"))).unwrap_err();
        assert!(error.to_string().contains("-v said"), "{error}");
    }
}
