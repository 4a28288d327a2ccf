//! Findings about opening connections: full backlogs, exhausted ports, forgotten TIME_WAIT and closed ports.

use std::io::Read;
use std::net::{SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

use doctor::{Diagnosis, ExaminedNetns};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use testkit::require_root;

use super::{Line, SERVER, check_first, check_known, connect, counter, listen, set, sleep, wait_until};

/// Starts to connect, and does not wait for the connection.
fn begin(address: SocketAddrV4) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    let begun = rustix::net::connect(&socket, &address);
    assert!(begun == Err(rustix::io::Errno::INPROGRESS) || begun.is_ok(), "{begun:?}");
    socket
}

#[test]
fn a_line_with_traffic_is_quiet() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    let (listener, address) = listen(&line);
    let talk = || {
        for _ in 0..50 {
            let stream = connect(&line, address);
            let (accepted, _) = listener.accept().unwrap();
            drop((stream, accepted));
        }
        sleep(300);
    };
    for side in ["client", "server"] {
        line.falls_quiet(side, talk);
    }
}

#[test]
fn who_entered_a_namespace_alone_sees_its_links() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    let (snapshot, _) = line.client.run(|| ExaminedNetns::here().look()).unwrap().unwrap();
    let names: Vec<&str> = snapshot.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["eth0", "lo"]);
    assert!(snapshot.devices.iter().all(|device| !device.hardware), "these are not the machine's cards");
    assert!(snapshot.unseen.is_empty(), "{:?}", snapshot.unseen);
}

/// Makes thirty connections to a listener on the server that has a backlog of one and never accepts, until
/// first packets have been retransmitted. Returns the diagnosis of one side.
fn overflowing(side: &str) -> Diagnosis {
    let line = Line::new();
    let address: SocketAddrV4 = format!("{SERVER}:8080").parse().unwrap();
    let listener = line.server.run(|| {
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 1).unwrap();
        socket
    });
    let sent_again = || counter(&line.client, "TcpExtTCPSynRetrans");
    let before = sent_again();
    let diagnosis = line.watch(side, || {
        let begun = line.client.run(|| (0..30).map(|_| begin(address)).collect::<Vec<_>>()).unwrap();
        wait_until(|| sent_again() >= before + 20);
        begun
    });
    drop(listener);
    diagnosis
}

#[test]
fn a_backlog_of_one_overflows() {
    if require_root() {
        check_first(&overflowing("server"), "HG060");
    }
}

#[test]
fn a_listener_that_does_not_answer_is_named_where_they_connect() {
    if !require_root() {
        return;
    }
    let diagnosis = overflowing("client");
    check_first(&diagnosis, "HG063");
    let finding = diagnosis.findings.iter().find(|finding| finding.check.code == "HG063").unwrap();
    let named = format!(" of them for {SERVER}:8080");
    assert!(finding.seen.evidence[1].saw.ends_with(&named), "{:?}", finding.seen);
    // The retransmitted packets are those of handshakes, not data.
    assert!(diagnosis.findings.iter().all(|finding| !["HG070", "HG071"].contains(&finding.check.code)));
}

#[test]
fn ports_to_one_destination_run_out() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    set(&line.client, "net/ipv4/ip_local_port_range", "40000 40099");
    let (listener, address) = listen(&line);
    let diagnosis = line.watch("client", || {
        let pair = |_| (connect(&line, address), listener.accept().unwrap());
        (0..90).map(pair).collect::<Vec<_>>()
    });
    check_first(&diagnosis, "HG064");
}

#[test]
fn ends_are_forgotten_where_few_are_remembered() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    set(&line.client, "net/ipv4/tcp_max_tw_buckets", "2");
    let (listener, address) = listen(&line);
    let forgotten = || counter(&line.client, "TcpExtTCPTimeWaitOverflow");
    let before = forgotten();
    let diagnosis = line.watch("client", || {
        for _ in 0..40 {
            let stream = connect(&line, address);
            let (mut accepted, _) = listener.accept().unwrap();
            drop(stream);
            // The client ends it first, and so is the one to remember it.
            assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
        }
        wait_until(|| forgotten() >= before + 38);
    });
    check_first(&diagnosis, "HG065");
}

#[test]
fn knocks_at_closed_ports_are_known() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    let closed: SocketAddr = format!("{SERVER}:9").parse().unwrap();
    let tcp = line.watch("server", || {
        line.client.run(|| (0..200).for_each(|_| assert!(TcpStream::connect(closed).is_err()))).unwrap();
    });
    check_known(&tcp, "HG066");
    let refused = || counter(&line.server, "UdpNoPorts");
    let before = refused();
    let udp = line.watch("server", || {
        let socket = line.client.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        wait_until(|| {
            (0..200).for_each(|_| drop(socket.send_to(b"x", closed)));
            refused() >= before + 200
        });
    });
    check_known(&udp, "HG108");
}
