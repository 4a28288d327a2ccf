//! Calls of Services on the real kernel: sockets of a control group and a namespace, in which backends listen. No link
//! and no route leads to a Service's address, so what comes through was never sent to one.

mod calls;
mod changes;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bpf::pins;
use bpf::services::{self, FoundService, Service, ServiceAddress, ServiceCounter};
use libbpf_rs::{MapCore as _, MapHandle};
use linux::features::{self, Feature};
use linux::{Cgroup, Netns};
use testkit::{World, require_root, shell};

/// Fails only after a long time.
const PATIENCE: Duration = Duration::from_secs(60);
/// A Service of each family, and their backends.
const V4: (&str, [&str; 3]) = ("10.96.0.1:80", ["10.244.1.1:8080", "10.244.1.2:8081", "10.244.1.3:8080"]);
const V6: (&str, [&str; 3]) =
    ("[fd00:96::1]:80", ["[fd00:244::1]:8080", "[fd00:244::2]:8081", "[fd00:244::3]:8080"]);

/// A namespace with the addresses of backends, a control group, and the programs at it.
struct Scene {
    pods: Netns,
    cgroup: Cgroup,
    folder: PathBuf,
    // The last to go: it removes what is pinned.
    _world: World,
}

impl Scene {
    /// `None`, and noted, where it cannot be tried.
    fn new() -> Option<Scene> {
        if !require_root() {
            return None;
        }
        if let Err(unmet) = features::services() {
            assert_eq!(unmet.feature, Feature::BpfServices);
            testkit::skip(&unmet.to_string());
            return None;
        }
        let world = World::new();
        let pods = world.add("pods");
        let name = world.name("pods");
        shell(&format!("ip -n {name} link set lo up"));
        for (_, backends) in [V4, V6] {
            for backend in backends {
                let address = at(backend).ip();
                shell(&format!("ip -n {name} address add {address} dev lo"));
            }
        }
        let cgroup = Cgroup::named(name.as_str()).unwrap();
        cgroup.create().unwrap();
        let folder = pins::folder(name.as_str());
        pins::make(&folder).unwrap();
        let scene = Scene { pods, cgroup, folder, _world: world };
        services::load(&scene.folder).unwrap_or_else(|error| panic!("{error}"));
        services::attach(&scene.folder, scene.cgroup.path()).unwrap();
        Some(scene)
    }

    /// Leads calls to backends.
    fn set(&self, service: &str, affinity_s: u32, backends: &[SocketAddr]) -> ServiceAddress {
        let at: ServiceAddress = service.parse().unwrap();
        let service = Service { at, affinity_s, backends: backends.iter().copied().collect() };
        services::set(&self.folder, &service).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(self.find(&at), Some(FoundService { service, is_whole: true }));
        at
    }

    fn find(&self, at: &ServiceAddress) -> Option<FoundService> {
        services::find(&self.folder, at).unwrap()
    }

    /// Opens a socket in the group and the namespace.
    fn open<T>(&self, open: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.cgroup.run(|| self.pods.run(open)).unwrap().unwrap()
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.open(|| TcpStream::connect_timeout(&to, PATIENCE))
    }

    fn udp(&self, bind: &str) -> UdpSocket {
        let socket = self.open(|| UdpSocket::bind(bind)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn count(&self, wanted: ServiceCounter) -> u64 {
        let all = services::counters(&self.folder).unwrap();
        all.into_iter().find(|(counter, _)| *counter == wanted).unwrap().1
    }

    /// Entries of a map.
    fn entries(&self, map: &str) -> usize {
        MapHandle::from_pinned_path(self.folder.join(map)).unwrap().keys().count()
    }

    fn listeners(&self, backends: &[SocketAddr]) -> Vec<TcpListener> {
        let listen = |backend: &SocketAddr| self.pods.run(|| TcpListener::bind(backend)).unwrap().unwrap();
        backends.iter().map(listen).collect()
    }

    fn receivers(&self, backends: &[SocketAddr]) -> Vec<UdpSocket> {
        let bind = |backend: &SocketAddr| {
            let socket = self.pods.run(|| UdpSocket::bind(backend)).unwrap().unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        backends.iter().map(bind).collect()
    }
}

impl Drop for Scene {
    /// A control group does not end with the namespaces of a test.
    fn drop(&mut self) {
        let _ = services::detach(&self.folder);
        let _ = self.cgroup.remove();
    }
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn all(texts: [&str; 3]) -> Vec<SocketAddr> {
    texts.into_iter().map(at).collect()
}

/// The backend to which a connection was made; it has one connection to accept.
fn accept(listeners: &[TcpListener], stream: &TcpStream) -> SocketAddr {
    let own = stream.local_addr().unwrap();
    let begun = Instant::now();
    loop {
        for listener in listeners {
            listener.set_nonblocking(true).unwrap();
            match listener.accept() {
                Ok((_, from)) => {
                    assert_eq!(from, own, "another connection");
                    return listener.local_addr().unwrap();
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
        assert!(begun.elapsed() < PATIENCE, "no backend has the connection");
    }
}

/// The backend that has a datagram, which it sends back.
fn echo(receivers: &[UdpSocket]) -> SocketAddr {
    let (begun, mut buffer) = (Instant::now(), [0; 64]);
    loop {
        for receiver in receivers {
            match receiver.recv_from(&mut buffer) {
                Ok((bytes, from)) => {
                    receiver.send_to(&buffer[..bytes], from).unwrap();
                    return receiver.local_addr().unwrap();
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
        assert!(begun.elapsed() < PATIENCE, "no backend has the datagram");
    }
}

#[track_caller]
fn assert_refused<T>(result: io::Result<T>) {
    match result {
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}
