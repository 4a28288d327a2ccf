//! Any bytes as a datagram of sockets: nothing panics, no socket comes from nothing, what is cut off changes nothing
//! before it, and a socket is the same after it was written down and read again, as `hostgap collect` does.
#![no_main]

/// One module of it, which needs no kernel.
#[path = "../../crates/linux/src/sock_diag"]
mod sock_diag {
    // Its lints are those of the crate to which it belongs.
    #[allow(unfulfilled_lint_expectations)]
    pub mod message;
}

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use sock_diag::message::{DatagramEnd, TcpSocket, read_datagram};

/// Of a message with a socket without attributes.
const BYTES_MIN: usize = 16 + 72;

fuzz_target!(|input: &[u8]| {
    let (ended, sockets) = read(input);
    assert!(sockets.len() * BYTES_MIN <= input.len(), "{} sockets of {} bytes", sockets.len(), input.len());
    if let DatagramEnd::Refused(errno) = ended {
        assert_ne!(errno, i32::MIN);
    }
    sockets.iter().for_each(check);
    for cut in [input.len() / 2, input.len().saturating_sub(1)] {
        let (_, before) = read(&input[..cut]);
        assert!(before.len() <= sockets.len());
        // The last one may itself be cut.
        let whole = before.len().saturating_sub(1);
        assert_eq!(before[..whole], sockets[..whole], "cut at {cut}");
    }
});

fn read(bytes: &[u8]) -> (DatagramEnd, Vec<TcpSocket>) {
    let mut sockets = Vec::new();
    let ended = read_datagram(bytes, &mut sockets);
    (ended, sockets)
}

fn check(socket: &TcpSocket) {
    assert!(!socket.congestion.contains('\0'));
    // A mapped address is reported as what it is.
    for address in [socket.local.ip(), socket.peer.ip()] {
        assert!(matches!(address, IpAddr::V4(_)) || address.to_canonical() == address);
    }
    let text = serde_json::to_string(socket).expect("numbers and texts");
    assert_eq!(serde_json::from_str::<TcpSocket>(&text).expect("it was written here"), *socket);
}
