//! What sockets see: where their calls come out, and whom they are shown.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use bpf::services::{self, ServiceCounter};

use super::{PATIENCE, Scene, V4, V6, accept, all, assert_refused, at, echo};

#[test]
fn connections_reach_backends_and_show_the_service() {
    let Some(scene) = Scene::new() else { return };
    for (service, backends) in [V4, V6] {
        let (called, backends) = (at(service), all(backends));
        let listeners = scene.listeners(&backends);
        let service = scene.set(&format!("{service}/tcp"), 0, &backends);
        let stream = scene.connect(called).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), called, "getpeername shows what was called");
        assert!(backends.contains(&accept(&listeners, &stream)));
        // Other ports and protocols of the address are none of the Service's: nothing leads there.
        let elsewhere = SocketAddr::new(called.ip(), 81);
        let refused = scene.connect(elsewhere).unwrap_err();
        assert_ne!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
        // Sockets of another group are not led.
        let outside = scene.pods.run(|| TcpStream::connect_timeout(&called, PATIENCE)).unwrap();
        assert_ne!(outside.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        // A backend that is called by its own address shows it.
        let direct = scene.connect(backends[0]).unwrap();
        assert_eq!(direct.peer_addr().unwrap(), backends[0]);
        services::remove(&scene.folder, &service).unwrap();
        assert_ne!(scene.connect(called).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(stream.peer_addr().unwrap(), called, "a connection stays");
    }
    assert_eq!((scene.entries("services"), scene.entries("service_slots")), (0, 0));
    assert_eq!(scene.count(ServiceCounter::Led), 2);
}

/// A socket of IPv6 may call an IPv4 address.
#[test]
fn mapped_addresses_are_ipv4() {
    let Some(scene) = Scene::new() else { return };
    let (called, backends) = (at(V4.0), all(V4.1));
    let listeners = scene.listeners(&backends);
    scene.set("10.96.0.1:80/tcp", 0, &backends);
    let mapped = at("[::ffff:10.96.0.1]:80");
    let stream = scene.connect(mapped).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), mapped);
    let from = loop {
        let accepted = listeners.iter().find_map(|listener| {
            listener.set_nonblocking(true).unwrap();
            listener.accept().ok()
        });
        if let Some((_, from)) = accepted {
            break from;
        }
    };
    assert_eq!(from.port(), stream.local_addr().unwrap().port());

    let receivers = scene.receivers(&backends);
    scene.set("10.96.0.1:80/udp", 0, &backends);
    let socket = scene.udp("[::]:0");
    socket.send_to(b"hello", mapped).unwrap();
    echo(&receivers);
    let mut buffer = [0; 64];
    assert_eq!(socket.recv_from(&mut buffer).unwrap(), (5, mapped));
    socket.connect(mapped).unwrap();
    assert_eq!(socket.peer_addr().unwrap(), SocketAddr::new(mapped.ip(), called.port()));
}

#[test]
fn datagrams_reach_one_backend_and_answers_show_the_service() {
    let Some(scene) = Scene::new() else { return };
    for (bind, (service, backends)) in [("0.0.0.0:0", V4), ("[::]:0", V6)] {
        let (called, mut backends) = (at(service), all(backends));
        let receivers = scene.receivers(&backends);
        let service = format!("{service}/udp");
        scene.set(&service, 0, &backends);
        let mut buffer = [0; 64];
        let free = scene.udp(bind);
        let mut ask = || {
            free.send_to(b"free", called).unwrap();
            let by = echo(&receivers);
            assert_eq!(free.recv_from(&mut buffer).unwrap(), (4, called), "recvfrom shows what was called");
            by
        };
        let first = ask();
        for _ in 0..30 {
            assert_eq!(ask(), first, "the datagrams of one socket go to one backend");
        }
        // As long as there is that one, also when others change; and then to another.
        backends.retain(|backend| *backend != first);
        scene.set(&service, 0, &[first, backends[1]]);
        assert_eq!(ask(), first);
        scene.set(&service, 0, &backends);
        let second = ask();
        assert!(backends.contains(&second));
        assert_eq!(ask(), second);

        for _ in 0..15 {
            let connected = scene.udp(bind);
            connected.connect(called).unwrap();
            assert_eq!(connected.peer_addr().unwrap(), called);
            connected.send(b"connected").unwrap();
            let by = echo(&receivers);
            assert_eq!(connected.recv_from(&mut buffer).unwrap(), (9, called));
            // It hears no other backend, so what names the address once more goes to that one, too.
            connected.send_to(b"named", called).unwrap();
            assert_eq!(echo(&receivers), by);
            assert_eq!(connected.recv_from(&mut buffer).unwrap(), (5, called));
        }
        // What comes from elsewhere shows where from.
        let stranger = scene.udp(bind);
        let own = SocketAddr::new(backends[0].ip(), free.local_addr().unwrap().port());
        stranger.send_to(b"stranger", own).unwrap();
        let from = free.recv_from(&mut buffer).unwrap().1;
        assert_eq!(from.port(), stranger.local_addr().unwrap().port());
    }
}

/// A binomial count of n calls with probability 1/3 leaves n/3 ± 6 standard deviations once in 500 million times.
#[test]
fn calls_are_spread_evenly() {
    const CALLS: u32 = 3000;
    let Some(scene) = Scene::new() else { return };
    let (called, backends) = (at(V4.0), all(V4.1));
    let receivers = scene.receivers(&backends);
    scene.set("10.96.0.1:80/udp", 0, &backends);
    let mut counts: BTreeMap<SocketAddr, u32> = BTreeMap::new();
    let socket = scene.udp("0.0.0.0:0");
    for _ in 0..CALLS {
        // Each connection of the socket is a call of its own.
        socket.connect(called).unwrap();
        socket.send(b"x").unwrap();
        *counts.entry(echo(&receivers)).or_default() += 1;
    }
    let (share, calls) = (f64::from(CALLS) / 3.0, f64::from(CALLS));
    let bound = 6.0 * (calls * (1.0 / 3.0) * (2.0 / 3.0)).sqrt();
    assert_eq!(counts.len(), 3, "{counts:?}");
    for count in counts.values() {
        assert!((f64::from(*count) - share).abs() < bound, "{counts:?} of {CALLS}");
    }
    assert_eq!(scene.count(ServiceCounter::Led), u64::from(CALLS));
}

#[test]
fn a_service_without_backends_refuses() {
    let Some(scene) = Scene::new() else { return };
    for (bind, (service, backends)) in [("0.0.0.0:0", V4), ("[::]:0", V6)] {
        let (called, backends) = (at(service), all(backends));
        for protocol in ["tcp", "udp"] {
            scene.set(&format!("{service}/{protocol}"), 0, &[]);
        }
        assert_refused(scene.connect(called));
        let socket = scene.udp(bind);
        assert_refused(socket.send_to(b"x", called));
        assert_refused(socket.connect(called));
        // It gets one.
        let listeners = scene.listeners(&backends);
        scene.set(&format!("{service}/tcp"), 0, &backends[..1]);
        assert_eq!(accept(&listeners, &scene.connect(called).unwrap()), backends[0]);
    }
    assert_eq!((scene.count(ServiceCounter::Refused), scene.count(ServiceCounter::Lost)), (6, 0));
}

/// Sockets of datagrams leave their choices behind: more here than any of the maps has room for.
#[test]
fn choices_of_sockets_push_out_no_clients() {
    let Some(scene) = Scene::new() else { return };
    let (called, backends) = (at(V4.0), all(V4.1));
    let listeners = scene.listeners(&backends);
    let call = || accept(&listeners, &scene.connect(called).unwrap());
    scene.set("10.96.0.1:80/tcp", 10_800, &backends);
    scene.set("10.96.0.1:80/udp", 0, &backends);
    let first = call();
    scene
        .open(|| {
            for _ in 0..70_000 {
                UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", called)?;
            }
            Ok(())
        })
        .unwrap();
    // Ten calls that went to any would all go to this one in one of 3^10 runs.
    for _ in 0..10 {
        assert_eq!(call(), first);
    }
}

#[test]
fn a_client_is_led_to_the_same_backend_while_its_affinity_lasts() {
    let Some(scene) = Scene::new() else { return };
    let (called, mut backends) = (at(V4.0), all(V4.1));
    let listeners = scene.listeners(&backends);
    let call = || accept(&listeners, &scene.connect(called).unwrap());
    scene.set("10.96.0.1:80/tcp", 10_800, &backends);
    let first = call();
    let calls = |times| (0..times).map(|_| call()).collect::<BTreeSet<_>>();
    // Thirty calls that went to any would all go to one in one of 3^30 runs.
    assert_eq!(calls(30), BTreeSet::from([first]));
    // Others come and go; it is found wherever its slot is now.
    backends.retain(|backend| *backend != first);
    scene.set("10.96.0.1:80/tcp", 10_800, &[first, backends[0]]);
    assert_eq!(calls(10), BTreeSet::from([first]));
    scene.set("10.96.0.1:80/tcp", 10_800, &backends);
    let second = call();
    assert!(backends.contains(&second));
    assert_eq!(calls(30), BTreeSet::from([second]));
    // Without an affinity to any, and one that is over is none.
    scene.set("10.96.0.1:80/tcp", 0, &backends);
    assert_eq!(calls(60).len(), 2, "each of 2^59 runs but one has both");
    scene.set("10.96.0.1:80/tcp", 1, &backends);
    let third = call();
    let begun = Instant::now();
    // The clock goes on by more than the second of the affinity between two calls until another backend comes; each
    // such call goes to any of the two.
    loop {
        std::thread::sleep(Duration::from_millis(1100));
        if call() != third {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "an affinity of a second lasts for a minute");
    }
}
