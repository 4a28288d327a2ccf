//! Streams whose every byte is known: what is written at one end is found at the other.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// So long a byte may be on its way before it counts as lost: other tests have the same CPUs.
pub(super) const LOST: Duration = Duration::from_secs(20);
/// Bytes after which a stream says the same again: as no power of two divides it, a piece that is left out or
/// comes twice is seen.
pub(super) const PERIOD: usize = 999_983;

pub(super) fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(LOST)).expect("a time is set");
    stream.set_write_timeout(Some(LOST)).expect("a time is set");
    stream
}

/// Writes the same bytes again and again, in pieces of many lengths, until it has to stop. How many there were.
pub(super) fn write_until(stop: &AtomicBool, mut stream: &TcpStream, bytes: &[u8]) -> usize {
    let (mut written, mut step) = (0, 1);
    while !stop.load(Ordering::Relaxed) {
        step = (step * 31 + 17) % 70_001;
        let at = written % PERIOD;
        let piece = &bytes[at..(at + 1 + step).min(PERIOD)];
        stream.write_all(piece).unwrap_or_else(|error| panic!("{error} after {written} bytes"));
        written += piece.len();
    }
    stream.shutdown(Shutdown::Write).expect("it is open");
    written
}

/// Reads to the end, and finds the bytes of [`write_until`]. How many there were; `count` says it meanwhile.
pub(super) fn read_all(stream: &TcpStream, bytes: &[u8], count: &AtomicU64) -> usize {
    let (mut read, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        let at = read % PERIOD;
        let room = buffer.len().min(PERIOD - at);
        match read_some(stream, &mut buffer[..room]) {
            0 => return read,
            more => {
                assert!(buffer[..more] == bytes[at..at + more], "other bytes than were sent, after {read}");
                read += more;
                count.store(read as u64, Ordering::Relaxed);
            }
        }
    }
}

/// The kernel ends the wait of a thread that reads a socket in a map whenever it is woken and finds nothing, though it
/// be for another reason than bytes (`tcp_bpf_recvmsg_parser`).
pub(super) fn read_some(mut stream: &TcpStream, into: &mut [u8]) -> usize {
    let since = Instant::now();
    loop {
        match stream.read(into) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && since.elapsed() < LOST => {}
            done => return done.unwrap_or_else(|error| panic!("a byte is lost: {error}")),
        }
    }
}

/// A word there and one back.
#[track_caller]
pub(super) fn assert_passes(near: &TcpStream, far: &TcpStream, word: &[u8]) {
    for (mut from, to) in [(near, far), (far, near)] {
        from.write_all(word).expect("the stream stands");
        let mut got = Vec::new();
        while got.len() < word.len() {
            let mut buffer = vec![0; word.len() - got.len()];
            let more = read_some(to, &mut buffer);
            assert!(more > 0, "it ended");
            got.extend_from_slice(&buffer[..more]);
        }
        assert_eq!(got, word);
    }
}
