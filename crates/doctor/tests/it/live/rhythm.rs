//! Connections that pause, and connections whose ends alternate.

use std::io::{Read, Write};
use std::net::TcpStream;

use doctor::Severity;
use linux::features::{Feature, probe};
use linux::qdisc::Fq;
use linux::{Netlink, Qdisc};
use rustix::net::sockopt;
use testkit::{require_root, skip};

use super::wan::{can_run, wire};
use super::{Busy, Line, connect, ifname, listen, set, sleep};

/// A client that repeatedly sends a request of 200 bytes in `writes` writes and reads the answer.
fn questions(line: &Line, writes: usize) -> (Busy, Busy) {
    let (listener, address) = listen(line);
    let mut client = connect(line, address);
    let (mut server, _) = listener.accept().unwrap();
    let answering =
        Busy::with(move || server.read_exact(&mut [0; 200]).is_ok() && server.write_all(&[7; 10]).is_ok());
    let asking = Busy::with(move || {
        let written = (0..writes).all(|_| client.write_all(&vec![7; 200 / writes]).is_ok());
        written && client.read_exact(&mut [0; 10]).is_ok()
    });
    (asking, answering)
}

#[test]
fn two_writes_for_a_question_are_named() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    let busy = questions(&line, 2);
    // A snapshot taken between two waits misses it.
    line.finds_first("HG089", "client", || sleep(300));
    drop(busy);
}

#[test]
fn one_write_for_a_question_is_no_fault() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    let busy = questions(&line, 1);
    let diagnosis = line.falls_quiet("client", || sleep(1000));
    assert!(!diagnosis.findings.iter().any(|finding| finding.check.code == "HG089"));
    drop(busy);
}

/// Sends 400 segments at once. Then the connection is idle for longer than a retransmission timeout, after which the
/// kernel lets its window begin anew: time itself is the subject.
fn burst(stream: &mut TcpStream) {
    stream.write_all(&vec![7; 400 * 1448]).unwrap();
    sleep(2000);
}

#[test]
fn bursts_that_begin_anew_are_named() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    set(&line.client, "net/ipv4/tcp_congestion_control", "reno");
    wire(&line, 80, &linux::qdisc::Netem::default());
    let (listener, address) = listen(&line);
    let mut stream = connect(&line, address);
    let (accepted, _) = listener.accept().unwrap();
    let reading = Busy::reading(accepted, 65_536, 0);
    burst(&mut stream);
    // On a busy machine the burst may still be running at the second snapshot.
    line.finds_first("HG087", "client", || burst(&mut stream));
    set(&line.client, "net/ipv4/tcp_slow_start_after_idle", "0");
    line.falls_quiet("client", || burst(&mut stream));
    drop((stream, reading));
}

#[test]
fn a_flow_that_may_have_one_packet_waiting_is_cut_off() {
    if !require_root() {
        return;
    }
    if !probe().unwrap().unmet(&[Feature::Fq]).is_empty() {
        return skip("this kernel has no fq");
    }
    let line = Line::new();
    let netlink = Netlink::open_in(&line.client).unwrap();
    let index = netlink.index_of(&ifname("eth0")).unwrap();
    netlink.set_root_qdisc(index, &Qdisc::Fq(Fq { flow_limit: Some(1), ..Fq::default() })).unwrap();
    let (listener, address) = listen(&line);
    let stream = connect(&line, address);
    // BBR paces, so its packets wait in fq, not only when two CPUs send at once.
    testkit::shell("modprobe tcp_bbr");
    sockopt::set_tcp_congestion(&stream, "bbr").unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let reading = Busy::reading(accepted, 65_536, 0);
    let sending = Busy::sending(stream);
    let diagnosis = line.finds_first("HG049", "client", || sleep(1500));
    drop((sending, reading));
    let finding = diagnosis.findings.iter().find(|finding| finding.check.code == "HG049").unwrap();
    assert_eq!((finding.seen.severity, finding.seen.subject.as_str()), (Severity::Warning, "eth0"));
    // The qdisc reports the same drops, so that finding comes second.
    let dropped = diagnosis.findings.iter().find(|finding| finding.check.code == "HG043").unwrap();
    assert_eq!(dropped.because_of, ["HG049"]);
}
