//! The server in its pod: hostgap's own responder, on threads of the pod's process.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use linux::CpuSet;
use load::serve::{Listen, ResponderConfig, ServeError, Server};
use record::{Workload, WorkloadKind};

use crate::LabError;

/// A server that answers until it is dropped.
pub(super) struct Serving {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Serving {
    /// Starts to answer at an address; port 0 is any that is free.
    pub(super) fn start(
        workload: &Workload,
        address: IpAddr,
        port: u16,
        cpus: CpuSet,
    ) -> Result<Serving, LabError> {
        let at = SocketAddr::new(address, port);
        let listen = match workload.kind {
            WorkloadKind::Http | WorkloadKind::Connect | WorkloadKind::Download => Listen::Http(at),
            WorkloadKind::Grpc => Listen::Grpc(at),
            WorkloadKind::TcpRr | WorkloadKind::Verbs | WorkloadKind::TcpStream => Listen::Tcp(at),
            WorkloadKind::UdpRr | WorkloadKind::UdpStream | WorkloadKind::Packets => Listen::Udp(at),
        };
        let config = ResponderConfig {
            listen: vec![listen],
            echo: !workload.kind.is_http() && workload.kind != WorkloadKind::Grpc,
            cpu_time: Duration::from_micros(workload.cpu_us.unwrap_or(0).into()),
            cpus,
            ..ResponderConfig::default()
        };
        let server = Server::bind(&config).map_err(|error| ended(error.to_string()))?;
        let port = server.addresses().first().map_or(port, SocketAddr::port);
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let serve = move || server.run(&ends).map(drop);
        let thread = std::thread::Builder::new().name("server".to_owned()).spawn(serve);
        let thread = thread.map_err(|error| ended(error.to_string()))?;
        Ok(Serving { port, stop, thread: Some(thread) })
    }

    /// The port at which it answers.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// An error if it has ended.
    pub(super) fn check(&self) -> Result<(), LabError> {
        match self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            true => Err(ended("it has ended by itself".to_owned())),
            false => Ok(()),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // How it ended was asked before, or does not matter any more.
        self.thread.take().map(JoinHandle::join);
    }
}

fn ended(what: String) -> LabError {
    LabError::Server { whose: "the server in the pod".to_owned(), what, log: String::new() }
}
