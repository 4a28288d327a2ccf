//! One connection of HTTP on a stack of our own.

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Duration;

use super::super::Served;
use super::super::answers::{Answers, Reply};
use super::super::request::LastRequest;
use super::super::request_head::{CONTINUE, RequestHead};
use super::super::upload::{Skipped, Upload};
use super::super::work::CpuWork;

/// Bytes that a peer may send before it is read, and that may wait for it.
const BUFFER_BYTES: usize = 65_536;
/// Output that waits for room; meanwhile no request is read.
const OUTPUT_BYTES: usize = 262_144;
/// A peer that does not confirm the beginning or the end of a connection for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// A socket, and what is between it and its requests.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) handle: SocketHandle,
    /// A request that is not whole yet.
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    upload: Option<Upload>,
    /// No request is read any more; the connection ends after the output.
    ends: bool,
    /// Somebody is at the other end.
    met: bool,
}

/// What requests are answered with.
pub(super) struct Desk {
    pub(super) answers: Answers,
    pub(super) last: LastRequest,
    pub(super) work: Option<CpuWork>,
    pub(super) served: Served,
}

/// A socket that waits for a connection to a port.
pub(super) fn listening(port: u16) -> Socket<'static> {
    let buffer = || SocketBuffer::new(vec![0; BUFFER_BYTES]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.set_nagle_enabled(false);
    listen(&mut socket, port);
    socket
}

/// Forgets a connection, and waits for another one.
pub(super) fn listen(socket: &mut Socket<'_>, port: u16) {
    socket.abort();
    // Until it is known that somebody is there: who asks for a connection may never confirm it.
    socket.set_timeout(Some(SILENCE));
    socket.listen(port).expect("a closed socket listens at a port that is not zero");
}

impl Connection {
    pub(super) fn new(handle: SocketHandle) -> Connection {
        Connection {
            handle,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            upload: None,
            ends: false,
            met: false,
        }
    }

    /// Does what can be done now. False: the connection has ended, and the socket may listen again.
    pub(super) fn serve(&mut self, socket: &mut Socket<'_>, desk: &mut Desk) -> bool {
        match socket.state() {
            State::Listen | State::SynReceived => return true,
            // Both have closed. A last packet that comes again is answered by a reset.
            State::Closed | State::TimeWait => return false,
            State::SynSent
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => {}
        }
        if !self.met {
            self.met = true;
            socket.set_timeout(None);
            desk.served.connections += 1;
        }
        self.send(socket);
        // A receive buffer is a ring, of which one call gives what lies in one piece.
        while !self.ends && self.waiting() < OUTPUT_BYTES && socket.can_recv() {
            let input = &mut self.input;
            let taken = socket.recv(|bytes| {
                input.extend_from_slice(bytes);
                (bytes.len(), ())
            });
            if taken.is_err() {
                break;
            }
            self.answer(desk);
            self.send(socket);
        }
        // Requests that waited for room.
        if !self.input.is_empty() && !self.ends && self.waiting() < OUTPUT_BYTES {
            self.answer(desk);
            self.send(socket);
        }
        let peer_ended = !socket.may_recv();
        if (self.ends || peer_ended) && self.waiting() == 0 {
            socket.set_timeout(Some(SILENCE));
            socket.close();
        }
        true
    }

    fn waiting(&self) -> usize {
        self.output.len() - self.sent
    }

    fn send(&mut self, socket: &mut Socket<'_>) {
        if self.waiting() == 0 {
            return;
        }
        // A socket that cannot send has been closed, which its state says.
        self.sent += socket.send_slice(&self.output[self.sent..]).unwrap_or(0);
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// Answers the requests in the input, in order, and keeps an incomplete one.
    fn answer(&mut self, desk: &mut Desk) {
        let mut used = 0;
        while !self.ends && self.waiting() < OUTPUT_BYTES {
            let Some(bytes) = self.answer_one(used, desk) else { break };
            used += bytes;
        }
        if self.ends {
            self.input.clear();
        } else {
            self.input.drain(..used);
        }
    }

    /// Takes a step through the input, which is mostly one request. How many bytes it took; `None`: more are needed.
    fn answer_one(&mut self, from: usize, desk: &mut Desk) -> Option<usize> {
        let input = &self.input[from..];
        if let Some(upload) = &mut self.upload {
            return match upload.body.skip(input) {
                Ok(Skipped::All(bytes)) => {
                    let reply = upload.reply;
                    self.upload = None;
                    self.reply(reply, desk);
                    Some(bytes)
                }
                Ok(Skipped::Part(bytes)) => (bytes > 0).then_some(bytes),
                Err(status) => self.give_up(status, desk),
            };
        }
        match RequestHead::read(&mut desk.last, &desk.answers, input) {
            RequestHead::Incomplete => None,
            RequestHead::Now { bytes, reply } => {
                self.reply(reply, desk);
                Some(bytes)
            }
            RequestHead::AfterBody { bytes, upload, says_continue } => {
                if says_continue {
                    self.output.extend_from_slice(CONTINUE);
                }
                self.upload = Some(upload);
                Some(bytes)
            }
            RequestHead::Unreadable { status } => self.give_up(status, desk),
        }
    }

    fn give_up(&mut self, status: u16, desk: &mut Desk) -> Option<usize> {
        self.reply(Reply::Refusal { status, keep_alive: false }, desk);
        Some(0)
    }

    fn reply(&mut self, reply: Reply, desk: &mut Desk) {
        if let Some(work) = &mut desk.work {
            work.one();
        }
        self.ends |= !reply.keep_alive();
        match reply {
            Reply::Page { .. } | Reply::Raw { .. } => desk.served.answered += 1,
            Reply::Refusal { .. } => desk.served.refused += 1,
        }
        desk.answers.write(reply, &mut self.output);
    }
}
