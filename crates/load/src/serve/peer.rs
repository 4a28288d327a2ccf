//! One connection of the responder.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// A peer, and what is under way with it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) socket: OwnedFd,
    /// Input that makes no whole request yet, or that waits until the peer takes its answers.
    pub(super) held: Vec<u8>,
    /// Answers that the socket did not take yet, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// The connection ends when everything is sent.
    pub(super) closing: bool,
}

/// What became of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushed {
    All,
    /// The peer does not read. Nothing is read from it until it does.
    Blocked,
}

impl Peer {
    pub(super) fn new(socket: OwnedFd) -> Peer {
        Peer { socket, held: Vec::new(), unsent: Vec::new(), sent: 0, closing: false }
    }

    /// Sends answers, and keeps what the socket does not take.
    pub(super) fn send(&mut self, output: &[u8]) -> Result<Flushed, Errno> {
        let sent = self.push(output)?;
        if sent == output.len() {
            return Ok(Flushed::All);
        }
        self.unsent.extend_from_slice(&output[sent..]);
        Ok(Flushed::Blocked)
    }

    /// Goes on sending what was kept.
    pub(super) fn send_rest(&mut self) -> Result<Flushed, Errno> {
        self.sent += self.push(&self.unsent[self.sent..])?;
        if self.sent < self.unsent.len() {
            return Ok(Flushed::Blocked);
        }
        // Peers that block once may have had a megabyte in here; most never come back to it.
        self.unsent = Vec::new();
        self.sent = 0;
        Ok(Flushed::All)
    }

    /// Bytes that came; zero at the end, `None` if nothing is there.
    pub(super) fn receive(&self, input: &mut [u8]) -> Result<Option<usize>, Errno> {
        match rustix::net::recv(&self.socket, input, RecvFlags::empty()) {
            Ok((bytes, _)) => Ok(Some(bytes)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn push(&self, output: &[u8]) -> Result<usize, Errno> {
        let mut sent = 0;
        while sent < output.len() {
            match rustix::net::send(&self.socket, &output[sent..], SendFlags::NOSIGNAL) {
                Ok(bytes) => sent += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(sent)
    }
}
