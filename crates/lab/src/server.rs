//! The server in the server's pod: real nginx, or our own responder where it is not installed.

mod nginx;
mod secret;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datapath::Family;
use linux::cpu::Scheduling;
use linux::process::{Child, Spawn};
use linux::{Cgroup, CpuSet, IfName, RdmaName};
use plan::Place;
use record::{Plant, ServerKind, StackWait, Workload, WorkloadKind};

use crate::LabError;
use crate::family::any;
use crate::program::{self, OwnProgram, Program};
pub(crate) use secret::Secret;

/// The program that answers requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ServerChoice {
    Nginx(Program),
    /// This program, as `hostgap serve`.
    Hostgap(OwnProgram),
}

/// A server, or a proxy in front of one, that runs in a pod. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: PathBuf,
    /// Which of whose: "the server of docker".
    whose: String,
}

/// What a server is started with.
#[derive(Debug)]
pub struct ServerSetup<'a> {
    /// Whose server it is, for messages.
    pub candidate: &'a str,
    /// The namespace in which it runs.
    pub place: &'a Place,
    /// The port at which it answers, of each address.
    pub port: u16,
    /// The only address at which it answers; `None`: all.
    pub address: Option<IpAddr>,
    /// The families by which clients may call.
    pub families: &'static [Family],
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
    /// Answers that it holds back on purpose; hostgap's own responder does.
    pub plant: Option<Plant>,
    /// What it does while nothing comes; hostgap's own responder does.
    pub wait: StackWait,
    /// The stack of our own that it answers on, if not the kernel's.
    pub(crate) stack: Option<OwnStack>,
    /// The RDMA device by which messages come, if they do not come over TCP.
    pub(crate) messages: Option<RdmaName>,
    /// What it is asked; over HTTP a body of a size is found at `/<size>`.
    pub workload: &'a Workload,
    /// The certificate and key with which it speaks TLS.
    pub(crate) secret: Option<&'a Secret>,
}

impl ServerSetup<'_> {
    /// The addresses at which it listens: the one that is set, or any of each family; those that nobody else has.
    fn addresses(&self) -> Vec<IpAddr> {
        if let Some(OwnStack::VhostUser { addresses, .. }) = &self.stack {
            return addresses.clone();
        }
        match self.address {
            Some(address) => vec![address],
            None => self.families.iter().map(|family| any(*family)).collect(),
        }
    }
}

/// A stack of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnStack {
    /// At a link of the server's namespace.
    AfXdp {
        link: IfName,
        /// The CPU on which the kernel hands frames over; `None`: the one that received them.
        receive_cpu: Option<u16>,
    },
    /// At a port of a switch that connects to a socket of the server's. No link has its addresses.
    VhostUser { socket: PathBuf, addresses: Vec<IpAddr>, mtu_bytes: u32 },
}

fn find_nginx(given: Option<&Path>) -> Result<Program, LabError> {
    program::nginx(given).map_err(|why| LabError::NoNginx { why })
}

impl ServerChoice {
    /// Chooses the server, if the workload has one.
    pub fn of(workload: &Workload, nginx: Option<&Path>, own: &OwnProgram) -> Result<ServerChoice, LabError> {
        let ours = !workload.kind.is_http() || workload.cpu_us.is_some();
        let kind = if ours { ServerKind::Hostgap } else { workload.server };
        ServerChoice::decide(kind, nginx, own)
    }

    /// Chooses the server program for HTTP.
    pub fn decide(
        kind: ServerKind,
        nginx: Option<&Path>,
        own: &OwnProgram,
    ) -> Result<ServerChoice, LabError> {
        match kind {
            ServerKind::Nginx => find_nginx(nginx).map(ServerChoice::Nginx),
            ServerKind::Hostgap => Ok(ServerChoice::Hostgap(own.clone())),
            // A given path that does not work is an error, not a reason to use another server.
            ServerKind::Auto if nginx.is_some() => find_nginx(nginx).map(ServerChoice::Nginx),
            ServerKind::Auto => match find_nginx(None) {
                Ok(nginx) => Ok(ServerChoice::Nginx(nginx)),
                Err(_) => Ok(ServerChoice::Hostgap(own.clone())),
            },
        }
    }

    /// Its name for the record.
    pub fn describe(&self) -> String {
        match self {
            ServerChoice::Nginx(nginx) => nginx.version.clone(),
            ServerChoice::Hostgap(own) => format!("hostgap serve {}", own.version),
        }
    }

    /// Starts the program in its namespace, with a log in its directory.
    pub fn start(&self, setup: &ServerSetup<'_>) -> Result<Server, LabError> {
        fs::create_dir_all(setup.dir).map_err(LabError::file("create", setup.dir))?;
        let log = setup.dir.join("server.log");
        let netns = setup.place.open()?;
        let (program, args) = match self {
            ServerChoice::Nginx(nginx) => (nginx.program.clone(), nginx::args(setup)?),
            ServerChoice::Hostgap(own) => (own.program.clone(), own_args(setup)),
        };
        // A server that hardly ever sleeps would, under SCHED_FIFO, keep the kernel's own work from its CPU.
        let hardly_sleeps = setup.workload.cpu_us.is_some() || setup.wait.hardly_sleeps();
        let scheduling = if hardly_sleeps { Scheduling::Normal } else { setup.scheduling };
        let spawn = Spawn {
            args,
            netns: Some(netns),
            cgroup: setup.cgroup.clone(),
            cpus: Some(setup.cpus.clone()),
            scheduling,
            // nginx's workers outlive a master that is killed; as members of a PID namespace they cannot.
            new_pid_namespace: true,
            die_with_parent: !setup.outlives_us,
            ..Spawn::new(program)
        };
        Server::spawn(spawn, log, format!("the server of {}", setup.candidate))
    }
}

impl Server {
    /// Starts one that writes to this log.
    pub(crate) fn spawn(spawn: Spawn, log: PathBuf, whose: String) -> Result<Server, LabError> {
        let child = Spawn { log: Some(log.clone()), ..spawn }.start()?;
        Ok(Server { child, log, whose })
    }

    /// An error if it has ended.
    pub fn check(&mut self) -> Result<(), LabError> {
        self.check_within(Duration::ZERO)
    }

    /// An error if it ends within a time.
    pub(crate) fn check_within(&mut self, patience: Duration) -> Result<(), LabError> {
        match self.child.wait_for(patience)? {
            None => Ok(()),
            Some(status) => Err(self.failure(format!("ended by itself ({status})"))),
        }
    }

    /// The error that says what happened to it, with the end of its log.
    pub fn failure(&self, what: String) -> LabError {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(3).collect();
        let log = tail.into_iter().rev().collect::<Vec<_>>().join(" | ");
        LabError::Server { whose: self.whose.clone(), what, log }
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

fn own_args(setup: &ServerSetup<'_>) -> Vec<String> {
    let speaks = match setup.workload.kind {
        WorkloadKind::Http | WorkloadKind::Connect | WorkloadKind::Download if setup.secret.is_some() => {
            "https:"
        }
        WorkloadKind::Http | WorkloadKind::Connect | WorkloadKind::Download => "",
        WorkloadKind::Grpc => "grpc:",
        WorkloadKind::Verbs if setup.messages.is_some() => "verbs:",
        WorkloadKind::TcpRr | WorkloadKind::Verbs | WorkloadKind::TcpStream => "tcp:",
        WorkloadKind::UdpRr | WorkloadKind::UdpStream | WorkloadKind::Packets => "udp:",
    };
    let listen = |host: &str| ["--listen".to_owned(), format!("{speaks}{host}:{}", setup.port)];
    let mut args = vec!["serve".to_owned()];
    if !setup.workload.kind.is_http() && setup.workload.kind != WorkloadKind::Grpc {
        args.push("--echo".to_owned());
    }
    if let Some(Secret { chain, key }) = setup.secret {
        let file = |path: &Path| path.display().to_string();
        args.extend(["--tls-cert".to_owned(), file(chain), "--tls-key".to_owned(), file(key)]);
    }
    if let Some(cpu_us) = setup.workload.cpu_us {
        args.extend(["--cpu-us".to_owned(), cpu_us.to_string()]);
    }
    if let Some(plant) = setup.plant {
        let delays = format!("{}:0ns,{}:{}", plant.others(), plant.share, plant.delay);
        args.extend(["--delay".to_owned(), delays]);
    }
    args.extend(setup.addresses().into_iter().flat_map(|address| match address {
        IpAddr::V4(v4) => listen(&v4.to_string()),
        IpAddr::V6(v6) => listen(&format!("[{v6}]")),
    }));
    args.extend(["--cpus".to_owned(), setup.cpus.to_string()]);
    args.extend(setup.messages.iter().flat_map(|device| ["--rdma".to_owned(), device.to_string()]));
    args.extend(stack_args(setup.stack.as_ref(), setup.wait));
    args
}

/// The arguments by which `hostgap serve` answers on a stack and waits.
pub(crate) fn stack_args(stack: Option<&OwnStack>, wait: StackWait) -> Vec<String> {
    let mut args = Vec::new();
    match stack {
        None => {}
        Some(OwnStack::AfXdp { link, receive_cpu }) => {
            args.extend(["--afxdp".to_owned(), link.to_string()]);
            args.extend(receive_cpu.iter().flat_map(|cpu| ["--receive-cpu".to_owned(), cpu.to_string()]));
        }
        Some(OwnStack::VhostUser { socket, mtu_bytes, .. }) => {
            args.extend(["--vhost-user".to_owned(), socket.display().to_string()]);
            args.extend(["--mtu".to_owned(), mtu_bytes.to_string()]);
        }
    }
    if wait == StackWait::Spin {
        args.extend(["--wait".to_owned(), "spin".to_owned()]);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_nginx_that_is_none_is_an_error_even_where_any_server_would_do() {
        let own = OwnProgram { program: "x".into(), version: "0.1.0" };
        let error = ServerChoice::decide(ServerKind::Auto, Some(Path::new("/nonexistent/nginx")), &own);
        assert!(matches!(error, Err(LabError::NoNginx { .. })));
        let error = find_nginx(Some(Path::new("/bin/true"))).unwrap_err();
        assert!(error.to_string().contains("-v said"), "{error}");
    }
}
