//! One connection of the responder.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::sockopt;

use linux::rdma::VerbsConnection;

use super::calls::Calls;
use super::ending::Ending;
use super::line::AnswerQueue;
use super::session::Session;
use super::upload::Upload;
use crate::poller::Tag;
use crate::socket;
use crate::verbs::{self, HELLO_BYTES};

/// A peer, with its pending requests and answers.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) socket: OwnedFd,
    pub(super) tag: Tag,
    pub(super) protocol: PeerProtocol,
    /// The TLS session, on HTTPS.
    pub(super) session: Option<Box<Session>>,
    /// The connection of messages by RDMA verbs, once it is agreed on.
    pub(super) messages: Option<Box<VerbsConnection>>,
    pub(super) waits: Waits,
    /// Input that makes no whole request yet, or that waits until the peer takes its answers.
    pub(super) held: Vec<u8>,
    /// Answers that are sent at an instant of their own.
    pub(super) line: AnswerQueue,
    /// What the socket did not take yet, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// The TLS session has ended: what is held is all that the peer has sent.
    pub(super) has_ended: bool,
    /// How the connection ends after the pending output; no further request is read.
    pub(super) ending: Option<Ending>,
}

/// What a peer speaks, and how far it is in a request.
#[derive(Debug)]
pub(super) enum PeerProtocol {
    Http {
        /// The request whose body is arriving.
        upload: Option<Upload>,
    },
    /// gRPC, which does its own reading and writing.
    Calls(Box<Calls>),
    /// What has come of the client's word about its queue pair.
    Greeting { hello: [u8; HELLO_BYTES], got: usize },
    Raw {
        /// Bytes of the request that have come.
        partial: usize,
        /// The length of the request; `None` until its first bytes, which contain it, have arrived.
        whole: Option<usize>,
    },
}

/// What has to happen before a peer is served on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    Input,
    /// The peer does not read its answers. Its requests are not read until it does.
    Room,
    /// The next answer is not due yet. No input is read, because enough is pending or the peer has finished.
    Time,
}

/// What became of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushed {
    All,
    /// The peer is not served on until something happens.
    Blocked,
}

impl Waits {
    /// The requested events. epoll reports errors and hang-ups anyway.
    pub(super) fn events(self) -> EventFlags {
        match self {
            Waits::Input => EventFlags::IN,
            Waits::Room => EventFlags::OUT,
            Waits::Time => EventFlags::empty(),
        }
    }
}

impl Peer {
    pub(super) fn new(
        socket: OwnedFd,
        tag: Tag,
        protocol: PeerProtocol,
        session: Option<Box<Session>>,
    ) -> Peer {
        Peer {
            socket,
            tag,
            protocol,
            session,
            messages: None,
            waits: Waits::Input,
            held: Vec::new(),
            line: AnswerQueue::default(),
            unsent: Vec::new(),
            sent: 0,
            has_ended: false,
            ending: None,
        }
    }

    /// Sends answers, and keeps what the socket does not take.
    pub(super) fn send(&mut self, output: &[u8]) -> Result<Flushed, Errno> {
        match &mut self.session {
            None => self.send_bytes(output),
            Some(session) => {
                let records = session.seal(output);
                self.send_bytes(&records)
            }
        }
    }

    /// Goes on sending what was kept.
    pub(super) fn send_rest(&mut self) -> Result<Flushed, Errno> {
        let unsent = std::mem::take(&mut self.unsent);
        let sent = self.push(&unsent[self.sent..]);
        self.unsent = unsent;
        self.sent += sent?;
        if self.sent < self.unsent.len() {
            return Ok(Flushed::Blocked);
        }
        // Peers that block once may have had a megabyte in here; most never come back to it.
        self.unsent = Vec::new();
        self.sent = 0;
        Ok(Flushed::All)
    }

    /// The number of bytes received; zero at the end, `None` if none are there.
    pub(super) fn receive(&mut self, input: &mut [u8]) -> Result<Option<usize>, Errno> {
        match &mut self.messages {
            None => socket::receive(&self.socket, input),
            Some(messages) => verbs::take(messages, &self.socket, input),
        }
    }

    /// Whether all output has been sent.
    pub(super) fn is_over(&self) -> bool {
        self.ending.is_some() && self.unsent.is_empty() && self.line.is_empty()
    }

    /// The regular end. The peer notices it when its socket is closed.
    pub(super) fn part(mut self) {
        match self.ending {
            Some(Ending::Close) => {
                if let Some(session) = &mut self.session {
                    let records = session.close();
                    // A peer that does not read it closes without it.
                    let _ = self.push(&records);
                }
            }
            // To close without lingering is to reset (socket(7)).
            Some(Ending::Reset) => _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO)),
            Some(Ending::Cut) | None => {}
        }
    }

    fn send_bytes(&mut self, output: &[u8]) -> Result<Flushed, Errno> {
        let sent = self.push(output)?;
        if sent == output.len() {
            return Ok(Flushed::All);
        }
        self.unsent.extend_from_slice(&output[sent..]);
        Ok(Flushed::Blocked)
    }

    fn push(&mut self, output: &[u8]) -> Result<usize, Errno> {
        let mut sent = 0;
        while sent < output.len() {
            if let Some(messages) = &mut self.messages {
                sent += verbs::put(messages, &output[sent..])?;
                continue;
            }
            match socket::send(&self.socket, &output[sent..])? {
                Some(bytes) => sent += bytes,
                None => break,
            }
        }
        Ok(sent)
    }
}
