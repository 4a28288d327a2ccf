//! Requests and answers over UDP on a stack of our own, as [`super::super::datagrams`] has them on sockets.

use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, Socket};

use super::super::{DATAGRAM_BYTES_MAX, Raw};
use super::connection::Desk;

/// Datagrams that wait in either direction.
const WAITING: usize = 256;
/// The most bytes of each; a stack of ours sends no fragments.
const DATAGRAM_BYTES: usize = 1500;

/// What datagrams are answered with.
#[derive(Debug)]
pub(super) struct Datagrams {
    /// `None`: the answer is as long as the request.
    raw: Option<Raw>,
    answer: Vec<u8>,
}

/// A socket that receives at a port.
pub(super) fn bound(port: u16) -> Socket<'static> {
    let buffer =
        || PacketBuffer::new(vec![PacketMetadata::EMPTY; WAITING], vec![0; WAITING * DATAGRAM_BYTES]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.bind(port).expect("a new socket is bound to a port that is not zero");
    socket
}

impl Datagrams {
    pub(super) fn new(raw: Option<Raw>) -> Datagrams {
        Datagrams { raw, answer: vec![b'x'; DATAGRAM_BYTES_MAX as usize] }
    }

    /// Answers what came, as far as there is room for answers.
    pub(super) fn serve(&mut self, socket: &mut Socket<'_>, desk: &mut Desk) {
        while socket.can_send() {
            let Ok((datagram, from)) = socket.recv() else { return };
            if let Some(work) = &mut desk.work {
                work.one();
            }
            let bytes = self.raw.map_or(datagram.len(), |raw| raw.response_bytes as usize);
            let head = datagram.len().min(bytes).min(8);
            self.answer[..head].copy_from_slice(&datagram[..head]);
            match socket.send_slice(&self.answer[..bytes], from) {
                Ok(()) => desk.served.answered += 1,
                Err(_) => desk.served.dropped += 1,
            }
        }
    }
}
