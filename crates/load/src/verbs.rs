//! Messages by RDMA verbs in place of a stream's bytes: one SEND for a request, and one for its answer.
//!
//! The two ends agree on their queue pairs over a connection of TCP, as programs of RDMA do that come without its
//! connection manager: the client says where its own is, and the server connects one to it and answers likewise. The
//! connection of TCP stays, and its end is the end of both.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use linux::rdma::{VerbsAddress, VerbsConnection, VerbsDevice, VerbsWait};
use rustix::io::Errno;

use crate::ConnectionError;
use crate::socket::{receive, send};

/// The longest message in bytes.
pub const MESSAGE_BYTES_MAX: u32 = 65_536;

/// Bytes of what each end says of itself.
pub(crate) const HELLO_BYTES: usize = 36;
/// With what that begins: this protocol, and its version.
const MAGIC: u32 = u32::from_le_bytes(*b"hgv1");

/// A server of messages, and the device by which it is asked.
#[derive(Debug, Clone)]
pub struct VerbsTarget {
    /// Where the server agrees on queue pairs, over TCP.
    pub address: SocketAddr,
    /// The RDMA device by which the client sends.
    pub device: Arc<VerbsDevice>,
    /// What the client does until an answer comes.
    pub wait: VerbsWait,
}

impl PartialEq for VerbsTarget {
    fn eq(&self, other: &VerbsTarget) -> bool {
        let of = |it: &VerbsTarget| (it.address, it.wait, it.device.name().clone());
        of(self) == of(other)
    }
}

impl Eq for VerbsTarget {}

/// What an end says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) address: VerbsAddress,
    /// The longest message that it sends, which the other makes room for.
    pub(crate) message_bytes: u32,
}

/// A client's end, from its first word on.
#[derive(Debug)]
pub(crate) struct Verbs {
    pub(crate) connection: VerbsConnection,
    message_bytes: u32,
    is_greeted: bool,
    /// What has come of the server's word.
    answer: [u8; HELLO_BYTES],
    answered: usize,
}

impl Hello {
    pub(crate) fn to_bytes(self) -> [u8; HELLO_BYTES] {
        let VerbsAddress { queue_pair, first_packet, gid, mtu } = self.address;
        let mut bytes = [0; HELLO_BYTES];
        let words = [MAGIC, queue_pair, first_packet, mtu, self.message_bytes];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[20..].copy_from_slice(&gid);
        bytes
    }

    /// `None` if it is another protocol's.
    pub(crate) fn of(bytes: &[u8; HELLO_BYTES]) -> Option<Hello> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (queue_pair, first_packet, mtu, message_bytes) = (word(4), word(8), word(12), word(16));
        let gid = bytes[20..].try_into().expect("sixteen bytes");
        let is_sound = word(0) == MAGIC
            && (1..=MESSAGE_BYTES_MAX).contains(&message_bytes)
            && queue_pair.max(first_packet) < 1 << 24
            && (1..=5).contains(&mtu);
        let address = VerbsAddress { queue_pair, first_packet, gid, mtu };
        is_sound.then_some(Hello { address, message_bytes })
    }
}

impl Verbs {
    pub(crate) fn new(target: &VerbsTarget, message_bytes: u32) -> Result<Verbs, ConnectionError> {
        let connection = VerbsConnection::new(&target.device, message_bytes, target.wait)
            .map_err(|error| error_of(&error))?;
        let (answer, answered) = ([0; HELLO_BYTES], 0);
        Ok(Verbs { connection, message_bytes, is_greeted: false, answer, answered })
    }

    /// Goes on with agreeing, over a connection of TCP that is made. True when messages can be sent.
    pub(crate) fn agree(&mut self, control: &OwnedFd) -> Result<bool, ConnectionError> {
        if !self.is_greeted {
            let hello = Hello { address: self.connection.address(), message_bytes: self.message_bytes };
            // A new connection has room for it.
            send(control, &hello.to_bytes())?;
            self.is_greeted = true;
        }
        while self.answered < HELLO_BYTES {
            match receive(control, &mut self.answer[self.answered..])? {
                None => return Ok(false),
                Some(0) => return Err(ConnectionError::Closed),
                Some(bytes) => self.answered += bytes,
            }
        }
        let hello = Hello::of(&self.answer).ok_or(ConnectionError::Unasked)?;
        self.connection.connect(&hello.address).map_err(|error| error_of(&error))?;
        Ok(true)
    }
}

/// The next message; `None` if none has come, and zero at the end, which TCP reports.
pub(crate) fn take(
    connection: &mut VerbsConnection,
    control: &OwnedFd,
    buffer: &mut [u8],
) -> Result<Option<usize>, Errno> {
    if let Some(bytes) = connection.receive(buffer).map_err(|error| errno(&error))? {
        return Ok(Some(bytes));
    }
    match receive(control, &mut [0])? {
        Some(0) => Ok(Some(0)),
        None => Ok(None),
        // Both have said what they had to.
        Some(_) => Err(Errno::PROTO),
    }
}

/// Sends the beginning of these bytes as a message.
pub(crate) fn put(connection: &mut VerbsConnection, bytes: &[u8]) -> Result<usize, Errno> {
    connection.send(bytes).map_err(|error| errno(&error))
}

pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn error_of(error: &io::Error) -> ConnectionError {
    errno(error).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_as_it_was_said() {
        let gid = std::array::from_fn(|at| at as u8);
        let address = VerbsAddress { queue_pair: 17, first_packet: 0xff_ffff, gid, mtu: 3 };
        let hello = Hello { address, message_bytes: 64 };
        assert_eq!(Hello::of(&hello.to_bytes()), Some(hello));
    }

    #[test]
    fn what_is_no_hello_is_refused() {
        let sound = Hello {
            address: VerbsAddress { queue_pair: 17, first_packet: 1, gid: [0; 16], mtu: 3 },
            message_bytes: 64,
        };
        let with = |at: usize, word: u32| {
            let mut bytes = sound.to_bytes();
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            Hello::of(&bytes)
        };
        assert!(with(4, 18).is_some());
        for (at, word) in [(0, 1), (4, 1 << 24), (8, u32::MAX), (12, 0), (12, 6), (16, 0), (16, 65_537)] {
            assert_eq!(with(at, word), None, "{word} at {at}");
        }
    }
}
