//! Bytes over TCP: a thread a flow at either end.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use linux::clock;

use super::{Delivered, Flow, LOOK, READ_BYTES, Window, is_pause, nanoseconds, on_cpus};
use crate::LoadError;
use crate::error::system;

/// How long connections that were made may take until they are accepted.
const ACCEPT_NS: u64 = 2_000_000_000;

pub(super) fn run(
    streams: &[TcpStream],
    listener: &TcpListener,
    write_bytes: usize,
    flow: &Flow,
    edge: &mut dyn FnMut(),
) -> Result<Delivered, LoadError> {
    let accepted = accept(listener, streams.len())?;
    for stream in streams.iter().chain(&accepted) {
        stream.set_write_timeout(Some(LOOK)).map_err(system("bound the time of a write"))?;
        stream.set_read_timeout(Some(LOOK)).map_err(system("bound the time of a read"))?;
    }
    let window = Window::from_now(flow);
    let mut total = Delivered { duration: flow.duration, ..Delivered::default() };
    let results: Vec<Result<Delivered, LoadError>> = thread::scope(|scope| {
        let receivers: Vec<_> =
            accepted.iter().map(|stream| scope.spawn(move || receive_on(stream, window, flow))).collect();
        let senders: Vec<_> = streams
            .iter()
            .map(|stream| {
                let work = move || send(stream, write_bytes, window);
                scope.spawn(move || on_cpus(&flow.sender_cpus, work))
            })
            .collect();
        window.observe(edge);
        let joined = senders.into_iter().chain(receivers);
        joined.map(|thread| thread.join().expect("a thread of a stream does not panic")).collect()
    });
    for delivered in results {
        total.add(&delivered?);
    }
    Ok(total)
}

/// The flows' other ends: they are there, since connecting has succeeded.
fn accept(listener: &TcpListener, flows: usize) -> Result<Vec<TcpStream>, LoadError> {
    let attempted = "accept a flow of a stream";
    listener.set_nonblocking(true).map_err(system(attempted))?;
    let deadline_ns = clock::now_ns() + ACCEPT_NS;
    let mut accepted = Vec::with_capacity(flows);
    while accepted.len() < flows {
        match listener.accept() {
            Ok((stream, _)) => accepted.push(stream),
            Err(error) if is_pause(&error) && clock::now_ns() < deadline_ns => {
                thread::sleep(std::time::Duration::from_millis(1));
            }
            Err(error) => return Err(system(attempted)(error)),
        }
    }
    for stream in &accepted {
        stream.set_nonblocking(false).map_err(system(attempted))?;
    }
    Ok(accepted)
}

/// Sends until the end of the measured part, then closes its direction.
fn send(mut stream: &TcpStream, write_bytes: usize, window: Window) -> Result<Delivered, LoadError> {
    let bytes = vec![b'x'; write_bytes];
    let mut delivered = Delivered::default();
    window.wait_for_begin();
    while clock::now_ns() < window.end_ns {
        match stream.write(&bytes) {
            Ok(sent) => delivered.total_bytes.0 += sent as u64,
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(system("send a stream")(error)),
        }
    }
    stream.shutdown(Shutdown::Write).map_err(system("end a stream"))?;
    Ok(delivered)
}

/// The receiver's threads have costs too, but those are in the node's CPU time: only the sender's may be late.
fn receive_on(stream: &TcpStream, window: Window, flow: &Flow) -> Result<Delivered, LoadError> {
    let mut delivered = on_cpus(&flow.receiver_cpus, || receive(stream, window, nanoseconds(flow.quiet)))?;
    delivered.threads.clear();
    Ok(delivered)
}

/// Receives to the end of the stream, or until no bytes have arrived for too long.
fn receive(mut stream: &TcpStream, window: Window, quiet_ns: u64) -> Result<Delivered, LoadError> {
    let mut buffer = vec![0; READ_BYTES];
    let mut delivered = Delivered::default();
    let mut last_ns = window.end_ns;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => {
                let now_ns = clock::now_ns();
                delivered.total_bytes.1 += bytes as u64;
                delivered.bytes += if window.holds(now_ns) { bytes as u64 } else { 0 };
                last_ns = last_ns.max(now_ns);
            }
            // TCP sends again what was lost, so silence is longer than the way's delay.
            Err(error) if is_pause(&error) && clock::now_ns() < last_ns + PATIENCE * quiet_ns => {}
            Err(error) if is_pause(&error) => break,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(system("receive a stream")(error)),
        }
    }
    Ok(delivered)
}

/// Silences that a stream of bytes is waited for: with the usual quiet of 150 ms, three doublings of the minimum RTO.
const PATIENCE: u64 = 20;
