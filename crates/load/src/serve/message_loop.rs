//! A responder of messages by RDMA verbs: it agrees on them with a peer, and looks for them without sleep.

use linux::rdma::VerbsConnection;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::BODY_BYTES_MAX;
use super::peer::{Peer, PeerProtocol};
use super::responder::Responder;
use crate::socket::{receive, send};
use crate::verbs::{HELLO_BYTES, Hello, errno};

/// A thread that looks for messages looks at its sockets in one turn of so many.
const TURNS: u32 = 64;

impl Responder<'_> {
    /// Reads what a client says of its queue pair, connects one to it, and answers. False: the connection is over.
    pub(super) fn greet(&mut self, peer: &mut Peer) -> Result<bool, Errno> {
        let PeerProtocol::Greeting { hello, got } = &mut peer.protocol else { return Ok(false) };
        while *got < HELLO_BYTES {
            match receive(&peer.socket, &mut hello[*got..])? {
                None => return Ok(true),
                Some(0) => return Ok(false),
                Some(bytes) => *got += bytes,
            }
        }
        let (Some(theirs), Some(messages)) = (Hello::of(hello), &self.messages) else { return Ok(false) };
        let message_bytes = theirs.message_bytes.min(BODY_BYTES_MAX);
        let connection = VerbsConnection::new(&messages.device, message_bytes, messages.wait);
        let mut connection = connection.map_err(|error| errno(&error))?;
        connection.connect(&theirs.address).map_err(|error| errno(&error))?;
        self.poller.add(&connection, peer.tag, EventFlags::IN)?;
        let ours = Hello { address: connection.address(), message_bytes };
        // Behind this the client may send: the queue pair is connected.
        send(&peer.socket, &ours.to_bytes())?;
        peer.messages = Some(Box::new(connection));
        peer.protocol = self.raw_protocol();
        Ok(true)
    }

    /// Serves the messages that are there; true if there were any. If a thread is to sleep, the next one wakes it.
    pub(super) fn serve_messages(&mut self, sleeps_ns: u64) -> bool {
        let mut served = false;
        for index in 0..self.peers.len() {
            let Some(peer) = &mut self.peers[index] else { continue };
            let tag = peer.tag;
            let Some(messages) = &mut peer.messages else { continue };
            let armed = if sleeps_ns > 0 { messages.arm() } else { Ok(()) };
            // An error is one for the reader.
            if armed.and_then(|()| messages.has_come()).unwrap_or(true)
                && let Some(mut peer) = self.take(tag)
            {
                let on = self.serve(&mut peer, EventFlags::IN);
                self.settle(peer, on);
                served = true;
            }
        }
        let turn = self.messages.as_mut().map_or(0, |messages| {
            messages.turn = messages.turn.wrapping_add(1);
            messages.turn
        });
        if sleeps_ns > 0 && !served || turn.is_multiple_of(TURNS) {
            self.poller.wait(if served { 0 } else { sleeps_ns });
        } else {
            self.poller.clear();
        }
        served
    }
}
