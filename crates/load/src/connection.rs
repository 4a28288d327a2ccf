//! One permanent connection: its socket, and the requests that are open on it.

use std::collections::VecDeque;

use bytes::Bytes;
use rustix::io::Errno;

use crate::ConnectionError;
use crate::ask::{Asks, ReplyForm};
use crate::client_socket::{ClientSocket, Received};
use crate::intervals::AnswerTimes;
use crate::poller::{Poller, Tag};
use crate::response::{Learned, Malformed, Parser, Response};
use crate::target::{Sizes, Target};

/// A request that waits for its answer. Instants are nanoseconds of the run's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenRequest {
    pub(crate) intended_ns: u64,
    /// [`OpenRequest::PROMISED`] while its connection is being made.
    pub(crate) sent_ns: u64,
    /// Since when its connection had room for it.
    pub(crate) free_ns: u64,
    /// Which request of its thread it is, of those that were due.
    pub(crate) ordinal: u64,
    /// Which it is of those that were sent, in the order of sending.
    pub(crate) number: u64,
    /// Which of the target's requests it is.
    pub(crate) kind: u16,
}

impl OpenRequest {
    /// Stands for a request that has not been sent.
    pub(crate) const PROMISED: u64 = u64::MAX;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// There is no socket; it will be tried again. A request may be open nevertheless, for which a queue of connections
    /// had no place.
    Down,
    Connecting,
    /// Takes requests as long as it has room for them.
    Up,
}

/// What becomes of bytes that come.
#[derive(Debug)]
enum Reader {
    Http(Parser),
    /// Bytes of this answer that have come already, and those of a whole one.
    Stream {
        got: u64,
        whole: u64,
    },
    Datagram,
    Call,
}

#[derive(Debug)]
pub(crate) struct Connection {
    socket: Option<ClientSocket>,
    pub(crate) phase: ConnectionState,
    reader: Reader,
    /// In the order of sending. Never holds more than there is room for, so it never grows.
    pub(crate) open: VecDeque<OpenRequest>,
    /// The first so many of them most likely are lost, and take no room. Datagrams alone can be.
    pub(crate) lost: usize,
    /// Bytes of the open requests that the socket did not take yet: the last ones.
    unsent: usize,
    /// Answers since the socket was made.
    pub(crate) answers: u64,
    /// When they came, in a closed loop.
    pub(crate) times: AnswerTimes,
    /// Since when it is left to the server to close the connection, whose last answer is there.
    pub(crate) ending_ns: Option<u64>,
    /// Since when there is room for a request: the clock's reading with which the last answer was read that made room,
    /// or with which the connection was made.
    pub(crate) since_ns: u64,
    /// True while its index stands in the queue of idle connections, or in that of those with room.
    pub(crate) in_idle: bool,
    pub(crate) in_roomy: bool,
    /// Likewise in the queue of those that are tried again.
    pub(crate) in_retry: bool,
    /// Another one with every new socket.
    tag: Tag,
}

/// Datagrams of a socket that most likely are lost, and whose answers would still count.
pub(crate) const LOST_MAX: usize = 16;

impl Connection {
    /// At an index of its owner's, with room for a number of open requests.
    pub(crate) fn new(index: u32, reply: ReplyForm, depth: usize) -> Connection {
        let reader = match reply {
            ReplyForm::Http => Reader::Http(Parser::default()),
            ReplyForm::Stream(whole) => Reader::Stream { got: 0, whole },
            ReplyForm::Datagram => Reader::Datagram,
            ReplyForm::Call => Reader::Call,
        };
        Connection {
            socket: None,
            phase: ConnectionState::Down,
            reader,
            open: VecDeque::with_capacity(depth + if reply == ReplyForm::Datagram { LOST_MAX } else { 0 }),
            lost: 0,
            unsent: 0,
            answers: 0,
            times: AnswerTimes::default(),
            ending_ns: None,
            since_ns: 0,
            in_idle: false,
            in_roomy: false,
            in_retry: false,
            tag: Tag { index, generation: 0 },
        }
    }

    /// Starts a new socket towards the target without waiting for it.
    pub(crate) fn open(
        &mut self,
        poller: &Poller,
        target: &Target,
        stamps: bool,
    ) -> Result<(), ConnectionError> {
        self.close();
        self.tag = self.tag.next();
        self.socket = Some(ClientSocket::open(target, stamps, poller, self.tag)?);
        self.phase = ConnectionState::Connecting;
        Ok(())
    }

    /// Whether an event with this tag is for its socket, and not for one before it.
    pub(crate) fn is_tagged(&self, tag: Tag) -> bool {
        self.tag == tag && self.socket.is_some()
    }

    /// How many requests take room on it.
    pub(crate) fn taken(&self) -> usize {
        self.open.len() - self.lost
    }

    /// Closes the socket and drops its open requests.
    pub(crate) fn close(&mut self) {
        self.socket = None;
        self.phase = ConnectionState::Down;
        match &mut self.reader {
            Reader::Http(parser) => parser.reset(),
            Reader::Stream { got, .. } => *got = 0,
            Reader::Datagram | Reader::Call => {}
        }
        self.open.clear();
        self.lost = 0;
        self.unsent = 0;
        self.answers = 0;
        self.ending_ns = None;
    }

    /// Goes on with connecting. True when it is up.
    pub(crate) fn progress(&mut self) -> Result<bool, ConnectionError> {
        let up = self.socket()?.progress()?;
        if up {
            self.phase = ConnectionState::Up;
        }
        Ok(up)
    }

    /// Sends the last `bytes` of the open requests, and what was left of those before.
    pub(crate) fn send(
        &mut self,
        bytes: usize,
        asks: &Asks,
        scratch: &mut Vec<u8>,
    ) -> Result<(), ConnectionError> {
        self.unsent += bytes;
        self.send_rest(asks, scratch)
    }

    /// Whether the answer that was taken last came before its request was sent whole: bytes are left to send that
    /// belong to no open request.
    pub(crate) fn is_cut_short(&self, asks: &Asks) -> bool {
        self.unsent > 0
            && self.unsent > self.open.iter().map(|open| bytes_of(asks, open).len()).sum::<usize>()
    }

    /// Sends what the socket did not take. All requests that are not sent whole are open, so their bytes are known:
    /// a connection that [`Connection::is_cut_short`] is replaced.
    pub(crate) fn send_rest(&mut self, asks: &Asks, scratch: &mut Vec<u8>) -> Result<(), ConnectionError> {
        let Some(socket) = &mut self.socket else { return Err(Errno::NOTCONN.into()) };
        socket.flush()?;
        while self.unsent > 0 {
            let rest = unsent_bytes(&self.open, self.unsent, asks, scratch);
            match socket.send(rest)? {
                Some(sent) => self.unsent -= sent,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Sends one datagram, which the kernel takes as a whole or not at all. If it does not, the datagram counts as
    /// lost in the network.
    pub(crate) fn send_datagram(&mut self, number: u64, scratch: &mut [u8]) -> Result<(), ConnectionError> {
        scratch[..Sizes::NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        self.socket()?.send(scratch).map(|_| ())
    }

    /// Begins a gRPC call.
    pub(crate) fn call(&mut self, message: &Bytes) -> Result<(), ConnectionError> {
        self.socket()?.calls()?.call(message)
    }

    /// Sends and reads as much as possible. `Some`: the call is over.
    pub(crate) fn poll_call(&mut self) -> Result<Option<Response>, ConnectionError> {
        self.socket()?.calls()?.poll()
    }

    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Result<Received, ConnectionError> {
        self.socket()?.receive(buffer)
    }

    pub(crate) fn receive_datagram(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ConnectionError> {
        self.socket()?.receive_datagram(buffer)
    }

    /// True if a read that did not fill the buffer has emptied the socket.
    pub(crate) fn short_read_empties(&self) -> bool {
        self.socket.as_ref().is_none_or(ClientSocket::short_read_empties)
    }

    /// Whether a message by RDMA verbs is there, for which no thread was woken.
    pub(crate) fn has_message(&mut self) -> bool {
        self.phase == ConnectionState::Up && self.socket.as_mut().is_some_and(ClientSocket::has_message)
    }

    /// From the last packet sent to the last received, by the kernel's timestamps, in nanoseconds; `None` without
    /// timestamps.
    pub(crate) fn wire_ns(&self) -> Option<u64> {
        self.socket.as_ref()?.wire_ns()
    }

    /// Takes bytes of the answer to the request that has been open for the longest time. `Some`: it is complete, and
    /// this many of the bytes belonged to it.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        is_head: bool,
        learned: &mut Learned,
    ) -> Result<Option<(usize, Response)>, Malformed> {
        match &mut self.reader {
            Reader::Http(parser) => learned.feed(parser, bytes, is_head),
            Reader::Stream { got, whole } => {
                let used = (*whole - *got).min(bytes.len() as u64);
                *got += used;
                if *got < *whole {
                    return Ok(None);
                }
                *got = 0;
                let response = Response { status: 200, body_bytes: *whole, keep_alive: true };
                Ok(Some((used as usize, response)))
            }
            Reader::Datagram | Reader::Call => unreachable!("datagrams and calls are not read as a stream"),
        }
    }

    /// The peer closed. `Some`: that was the end of an answer.
    pub(crate) fn end(&mut self) -> Result<Option<Response>, Malformed> {
        match &mut self.reader {
            Reader::Http(parser) => parser.end(),
            Reader::Stream { got: 0, .. } | Reader::Datagram | Reader::Call => Ok(None),
            Reader::Stream { .. } => Err(Malformed::Truncated),
        }
    }

    /// True if the connection is ready for a request: established, no request open, no bytes unread, not closed.
    pub(crate) fn is_clean(&mut self) -> bool {
        let is_idle = self.phase == ConnectionState::Up && self.open.is_empty();
        is_idle
            && match self.reader {
                // Leftover datagrams in its socket are recognised by their number and do no harm.
                Reader::Datagram => true,
                // A server may send frames that are not answers.
                Reader::Call => self.poll_call().is_ok_and(|response| response.is_none()),
                Reader::Http(_) | Reader::Stream { .. } => {
                    self.socket.as_mut().is_some_and(ClientSocket::is_quiet)
                }
            }
    }

    /// The local port of its socket.
    pub(crate) fn local_port(&self) -> Option<u16> {
        self.socket.as_ref()?.local_port()
    }

    /// Whether the connection resumed a session; `None` without TLS, and before its handshake is done.
    pub(crate) fn resumed(&self) -> Option<bool> {
        self.socket.as_ref()?.resumed()
    }

    fn socket(&mut self) -> Result<&mut ClientSocket, ConnectionError> {
        self.socket.as_mut().ok_or(ConnectionError::System(Errno::NOTCONN.raw_os_error()))
    }
}

/// The last bytes of the open requests.
fn unsent_bytes<'a>(
    open: &VecDeque<OpenRequest>,
    unsent: usize,
    asks: &'a Asks,
    scratch: &'a mut Vec<u8>,
) -> &'a [u8] {
    let mut covered = 0;
    let mut first = open.len();
    while covered < unsent && first > 0 {
        first -= 1;
        covered += bytes_of(asks, &open[first]).len();
    }
    let skip = covered - unsent;
    if first + 1 == open.len() {
        return &bytes_of(asks, &open[first])[skip..];
    }
    scratch.clear();
    open.range(first..).for_each(|open| scratch.extend_from_slice(bytes_of(asks, open)));
    &scratch[skip..]
}

fn bytes_of<'a>(asks: &'a Asks, open: &OpenRequest) -> &'a [u8] {
    &asks.kinds[usize::from(open.kind)].bytes
}
