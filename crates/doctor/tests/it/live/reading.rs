//! Programs that read too slowly, and buffers that are too small.

use std::net::{TcpListener, UdpSocket};

use linux::sock_diag::TcpSocket;
use rustix::net::sockopt;
use testkit::require_root;

use super::{
    Busy, Line, SERVER, await_one, check_first, connect, connections, counter, listen, set, sleep, wait_until,
};

/// A connection on which the client sends all the time and the server reads `bytes` bytes every `every_ms`
/// milliseconds. `prepare` gets the server's listener.
fn slow(line: &Line, prepare: impl FnOnce(&TcpListener), bytes: usize, every_ms: u64) -> (Busy, Busy) {
    // Reno fills the window, whatever this machine's default does: BBR would follow the reader's rate.
    set(&line.client, "net/ipv4/tcp_congestion_control", "reno");
    let (listener, address) = listen(line);
    prepare(&listener);
    let stream = connect(line, address);
    let (accepted, _) = listener.accept().unwrap();
    (Busy::sending(stream), Busy::reading(accepted, bytes, every_ms))
}

#[test]
fn a_slow_reader_is_seen_where_it_reads() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    // The kernel would enlarge a full buffer as long as its owner reads at all.
    let fixed = |listener: &_| sockopt::set_socket_recv_buffer_size(listener, 131_072).unwrap();
    let busy = slow(&line, fixed, 32_768, 30);
    wait_until(|| {
        let full = |socket: TcpSocket| {
            socket.memory.is_some_and(|memory| socket.rqueue >= memory.receive_buffer * 2 / 5)
        };
        connections(&line.server).into_iter().any(full)
    });
    line.finds_first("HG092", "server", || sleep(1000));
    drop(busy);
}

#[test]
fn a_slow_reader_is_a_full_window_where_it_is_sent() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    let busy = slow(&line, |_| (), 32_768, 30);
    await_one(&line.client, |tcp| tcp.rwnd_limited > 0);
    line.finds_first("HG080", "client", || sleep(1000));
    drop(busy);
}

#[test]
fn a_limit_from_an_old_guide_is_felt() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    set(&line.server, "net/ipv4/tcp_rmem", "4096 16384 65536");
    let busy = slow(&line, |_| (), 65_536, 0);
    await_one(&line.server, |tcp| tcp.bytes_received > 1 << 20);
    let received = || -> u64 {
        connections(&line.server).iter().filter_map(|socket| socket.tcp).map(|tcp| tcp.bytes_received).sum()
    };
    // A connection that carries less does not need a larger buffer.
    line.finds_first("HG110", "server", || {
        let before = received();
        wait_until(|| received() >= before + (2 << 20));
    });
    drop(busy);
}

#[test]
fn datagrams_that_no_program_reads_are_dropped() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    let server = line.server.run(|| UdpSocket::bind((SERVER, 0))).unwrap().unwrap();
    sockopt::set_socket_recv_buffer_size(&server, 4096).unwrap();
    let address = server.local_addr().unwrap();
    let dropped = || counter(&line.server, "UdpRcvbufErrors");
    let before = dropped();
    let diagnosis = line.watch("server", || {
        let client = line.client.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        wait_until(|| {
            (0..300).for_each(|_| drop(client.send_to(&[0; 1000], address)));
            dropped() >= before + 200
        });
    });
    check_first(&diagnosis, "HG105");
    let expected = format!("the socket at {address} ");
    // Findings about the whole machine may come before it.
    let finding = diagnosis.findings.iter().find(|finding| finding.check.code == "HG105").unwrap();
    let saw = &finding.seen.evidence;
    assert!(saw.iter().any(|seen| seen.saw.starts_with(&expected)), "{expected}: {saw:?}");
}
