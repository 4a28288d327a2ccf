//! Long, lossy and narrow wires, which need netem.

use std::net::TcpStream;

use linux::Qdisc;
use linux::features::{Feature, probe};
use linux::qdisc::{Netem, Probability};
use rustix::net::sockopt;
use testkit::{require_root, skip};

use super::{Busy, Line, await_one, connect, listen, sleep};

pub(super) fn can_run() -> bool {
    if !require_root() {
        return false;
    }
    let has = probe().unwrap().unmet(&[Feature::Netem]).is_empty();
    if !has {
        skip("this kernel has no netem");
    }
    has
}

/// Delays each direction by half of the round trip. `there` is what else happens on the way to the server.
pub(super) fn wire(line: &Line, delay_ms: u64, there: &Netem) {
    let delay_ns = delay_ms * 500_000;
    line.shape("s", &Qdisc::Netem(Netem { delay_ns, limit: 10_000, ..there.clone() }));
    line.shape("c", &Qdisc::Netem(Netem { delay_ns, limit: 10_000, ..Netem::default() }));
}

/// A connection on which the client sends as fast as it can and the server reads everything.
fn stream(line: &Line, prepare: impl FnOnce(&TcpStream)) -> (Busy, Busy) {
    let (listener, address) = listen(line);
    let stream = connect(line, address);
    let (accepted, _) = listener.accept().unwrap();
    prepare(&stream);
    (Busy::sending(stream), Busy::reading(accepted, 65_536, 0))
}

#[test]
fn a_lossy_long_path_is_limited_by_loss() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    wire(&line, 80, &Netem { loss: Probability::from_ratio(0.01), ..Netem::default() });
    let busy = stream(&line, |_| ());
    // The first losses end slow start.
    await_one(&line.client, |tcp| tcp.total_retrans >= 5);
    let diagnosis = line.finds_first("HG082", "client", || sleep(10_000));
    let finding = diagnosis.findings.iter().find(|finding| finding.check.code == "HG082").unwrap();
    assert!(finding.remedy().contains("larger buffers cannot help"), "{}", finding.remedy());
    drop(busy);
}

#[test]
fn a_small_window_on_a_long_path_is_named() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    wire(&line, 80, &Netem::default());
    // The window scale is chosen at the handshake, so the buffer is set on the listener.
    let (listener, address) = listen(&line);
    sockopt::set_socket_recv_buffer_size(&listener, 32_768).unwrap();
    let client = connect(&line, address);
    let (accepted, _) = listener.accept().unwrap();
    let reading = Busy::reading(accepted, 65_536, 0);
    let sending = Busy::sending(client);
    await_one(&line.client, |tcp| tcp.rwnd_limited > 0);
    line.finds_first("HG080", "client", || sleep(5000));
    drop((sending, reading));
}

#[test]
fn a_small_send_buffer_on_a_long_path_is_named() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    wire(&line, 80, &Netem::default());
    let busy = stream(&line, |stream| sockopt::set_socket_send_buffer_size(stream, 16_384).unwrap());
    await_one(&line.client, |tcp| tcp.sndbuf_limited > 0);
    // At the moment of a snapshot the program may be about to fill the buffer again.
    line.finds_first("HG081", "client", || sleep(3000));
    drop(busy);
}

#[test]
fn a_long_queue_on_the_path_is_named() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    wire(&line, 10, &Netem::default());
    // The queue lasts a quarter of a second and is smaller than the receiver's initial window, so no other
    // limit applies.
    let narrow =
        Netem { delay_ns: 5_000_000, limit: 40, rate_bytes_per_s: Some(250_000), ..Netem::default() };
    line.shape("s", &Qdisc::Netem(narrow));
    let busy = stream(&line, |_| ());
    // Microseconds: most of the queue is full.
    await_one(&line.client, |tcp| tcp.rtt > 150_000);
    line.finds_first("HG085", "client", || sleep(4000));
    drop(busy);
}

#[test]
fn a_long_path_without_trouble_is_quiet() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    wire(&line, 20, &Netem::default());
    let (listener, address) = listen(&line);
    line.falls_quiet("client", || {
        for _ in 0..20 {
            let stream = connect(&line, address);
            drop((listener.accept().unwrap(), stream));
        }
        sleep(300);
    });
}
