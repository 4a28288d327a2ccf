//! Messages by RDMA verbs: how a peer agrees on them, and how a thread looks for them that does not sleep.

use std::sync::Arc;

use linux::RdmaName;
use linux::rdma::{VerbsConnection, VerbsDevice, VerbsWait};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::peer::{Peer, PeerProtocol};
use super::responder::Responder;
use super::{BODY_BYTES_MAX, Listen, ResponderConfig, ServeError};
use crate::MESSAGE_BYTES_MAX;
use crate::socket::{receive, send};
use crate::verbs::{HELLO_BYTES, Hello, errno};

/// A thread that looks for messages looks at its sockets in one turn of so many.
const TURNS: u32 = 64;

/// By what messages come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagesConfig {
    /// The RDMA device by its name.
    pub device: RdmaName,
    /// What a thread does until one comes. With [`super::Idle::Sleep`] it sleeps in any case.
    pub wait: VerbsWait,
}

/// The open device, and how messages are waited for.
#[derive(Debug, Clone)]
pub(super) struct Messages {
    device: Arc<VerbsDevice>,
    wait: VerbsWait,
    turn: u32,
}

impl Messages {
    pub(super) fn open(config: &MessagesConfig) -> Result<Messages, ServeError> {
        Ok(Messages { device: VerbsDevice::open(&config.device)?, wait: config.wait, turn: 0 })
    }

    /// Whether threads poll for them, and none is woken.
    pub(super) fn are_polled(&self) -> bool {
        self.wait == VerbsWait::Polling
    }
}

/// Why messages cannot be answered as asked; `None`: they can.
pub(super) fn refused(config: &ResponderConfig) -> Option<String> {
    let at = config.listen.iter().find(|listen| matches!(listen, Listen::Verbs(_)));
    match (at, &config.messages) {
        (Some(at), None) => Some(format!("{at} needs the RDMA device by which messages come")),
        (None, Some(_)) => Some("an RDMA device is for messages: listen on verbs:ADDRESS:PORT".to_owned()),
        (Some(_), Some(_))
            if !config.echo
                && config.raw.request_bytes.max(config.raw.response_bytes) > MESSAGE_BYTES_MAX =>
        {
            Some(format!("a message has up to {MESSAGE_BYTES_MAX} bytes"))
        }
        _ => None,
    }
}

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
