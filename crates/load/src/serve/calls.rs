//! The responder's side of gRPC: the answer to each call is its own message.

use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::server::{Connection, Handshake, SendResponse};
use http::{HeaderMap, HeaderValue, Method, Request, Response};

use crate::grpc::wire::{PollLoop, SocketIo};
use crate::grpc::{
    CONTENT_TYPE, GRPC_BODY_BYTES_MAX, INTERNAL, METHOD, OK, PREFIX_BYTES, RESOURCE_EXHAUSTED, UNIMPLEMENTED,
    is_whole,
};

/// The flow-control window for messages in bytes: more than any message has.
const WINDOW_BYTES: u32 = 4 << 20;

/// The greatest message in bytes, with its prefix and the fields before the body.
const MESSAGE_BYTES_MAX: usize = GRPC_BODY_BYTES_MAX as usize + PREFIX_BYTES + 8;

/// Calls of one peer at a time.
const CALLS_MAX: u32 = 256;

/// A connection of HTTP/2, and the calls that are coming on it.
pub(super) struct Calls {
    state: State,
    polls: PollLoop,
    coming: Vec<Coming>,
}

enum State {
    Greeting(Pin<Box<Handshake<SocketIo, Bytes>>>),
    Open(Box<Connection<SocketIo, Bytes>>),
}

/// A call whose message is incomplete.
pub(super) struct Coming {
    known: bool,
    body: RecvStream,
    message: BytesMut,
    respond: SendResponse<Bytes>,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("coming", &self.coming.len()).finish_non_exhaustive()
    }
}

impl Calls {
    pub(super) fn new(socket: OwnedFd) -> Calls {
        let mut builder = h2::server::Builder::new();
        builder
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_concurrent_streams(CALLS_MAX);
        let greeting = builder.handshake(SocketIo(Arc::new(socket)));
        Calls { state: State::Greeting(Box::pin(greeting)), polls: PollLoop::new(), coming: Vec::new() }
    }

    /// Sends and reads what goes, and takes the calls that begin. False: the connection is over.
    pub(super) fn turn(&mut self) -> bool {
        let mut cx = self.polls.begin();
        if let State::Greeting(greeting) = &mut self.state {
            match greeting.as_mut().poll(&mut cx) {
                Poll::Pending => return true,
                Poll::Ready(Err(_)) => return false,
                Poll::Ready(Ok(connection)) => self.state = State::Open(Box::new(connection)),
            }
        }
        let State::Open(connection) = &mut self.state else { return true };
        loop {
            match connection.poll_accept(&mut cx) {
                Poll::Pending => return true,
                Poll::Ready(Some(Ok((request, respond)))) => self.coming.push(Coming::new(request, respond)),
                Poll::Ready(Some(Err(_)) | None) => return false,
            }
        }
    }

    /// Whether there is more to do although no event will say so.
    pub(super) fn goes_on(&self) -> bool {
        self.polls.goes_on()
    }

    /// A call that can be answered, and its outcome code. Calls that the peer cancelled are dropped.
    pub(super) fn next(&mut self) -> Option<(u16, Coming)> {
        let mut cx = Context::from_waker(self.polls.waker());
        let mut index = 0;
        while index < self.coming.len() {
            match self.coming[index].poll(&mut cx) {
                Poll::Pending => index += 1,
                Poll::Ready(None) => drop(self.coming.swap_remove(index)),
                Poll::Ready(Some(status)) => return Some((status, self.coming.swap_remove(index))),
            }
        }
        None
    }
}

impl Coming {
    fn new(request: Request<RecvStream>, respond: SendResponse<Bytes>) -> Coming {
        let known = request.method() == Method::POST && request.uri().path() == METHOD;
        Coming { known, body: request.into_body(), message: BytesMut::new(), respond }
    }

    /// Takes more of the message. `Some`: the code to answer with; `None`: no answer is needed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<u16>> {
        if !self.known {
            return Poll::Ready(Some(UNIMPLEMENTED));
        }
        loop {
            match self.body.poll_data(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Err(_))) => return Poll::Ready(None),
                Poll::Ready(None) => {
                    let prefix = self.message.first_chunk::<PREFIX_BYTES>();
                    let whole = prefix.is_some_and(|prefix| is_whole(*prefix, self.message.len() as u64));
                    return Poll::Ready(Some(if whole { OK } else { INTERNAL }));
                }
                Poll::Ready(Some(Ok(data))) => {
                    self.message.extend_from_slice(&data);
                    if self.message.len() > MESSAGE_BYTES_MAX {
                        return Poll::Ready(Some(RESOURCE_EXHAUSTED));
                    }
                    if self.body.flow_control().release_capacity(data.len()).is_err() {
                        return Poll::Ready(None);
                    }
                }
            }
        }
    }

    /// Answers it. A peer that has gone meanwhile is left without.
    pub(super) fn answer(mut self, status: u16) {
        let mut outcome = HeaderMap::new();
        outcome.insert("grpc-status", HeaderValue::from(status));
        let mut head = Response::new(());
        head.headers_mut().insert("content-type", HeaderValue::from_static(CONTENT_TYPE));
        if status != OK {
            head.headers_mut().extend(outcome);
            let _ = self.respond.send_response(head, true);
            return;
        }
        if let Ok(mut stream) = self.respond.send_response(head, false) {
            let sent = stream.send_data(self.message.freeze(), false);
            let _ = sent.and_then(|()| stream.send_trailers(outcome));
        }
    }
}
