//! The client's side of a connection of HTTP/2, with one call open at a time.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::{Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request};

use super::wire::{PollLoop, SocketIo};
use super::{CONTENT_TYPE, METHOD, OK, PREFIX_BYTES, STATUS_MAX, UNKNOWN, is_whole};
use crate::ConnectionError;
use crate::response::Response;

/// The flow-control window for answers in bytes: more than any answer has.
const WINDOW_BYTES: u32 = 4 << 20;

/// A connection, and the call that is open on it.
pub(crate) struct Calls {
    state: State,
    polls: PollLoop,
    request: Request<()>,
    call: Option<Call>,
    /// Why the connection is over, once it is.
    over: Option<ConnectionError>,
}

enum State {
    Greeting(Pin<Box<dyn Future<Output = Result<Open, h2::Error>> + Send>>),
    Open(Box<Open>),
}

type Open = (SendRequest<Bytes>, Connection<SocketIo, Bytes>);

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("over", &self.over).finish_non_exhaustive()
    }
}

impl Calls {
    /// On a socket that is connected, or will be.
    pub(crate) fn new(socket: Arc<OwnedFd>, authority: &str) -> Result<Calls, ConnectionError> {
        let request = Request::post(format!("http://{authority}{METHOD}"))
            .header("content-type", CONTENT_TYPE)
            .header("te", "trailers")
            .header("user-agent", "grpc-hostgap/0")
            .body(())
            .map_err(|error| ConnectionError::Http2(error.to_string()))?;
        let mut builder = h2::client::Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        let greeting = async move { builder.handshake(SocketIo(socket)).await };
        let state = State::Greeting(Box::pin(greeting));
        Ok(Calls { state, polls: PollLoop::new(), request, call: None, over: None })
    }

    /// Goes on with the beginning of the connection. True when calls can be made.
    pub(crate) fn greet(&mut self) -> Result<bool, ConnectionError> {
        let State::Greeting(greeting) = &mut self.state else { return Ok(true) };
        match greeting.as_mut().poll(&mut self.polls.begin()) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(error)) => return Err(fault(&error)),
            Poll::Ready(Ok(open)) => self.state = State::Open(Box::new(open)),
        }
        // The settings go out with the first turn.
        self.poll().map(|_| true)
    }

    /// Begins a call. Its bytes leave with the next [`Calls::poll`].
    pub(crate) fn call(&mut self, message: &Bytes) -> Result<(), ConnectionError> {
        let State::Open(open) = &mut self.state else { return Err(ConnectionError::Closed) };
        let (send, _) = &mut **open;
        match send.poll_ready(&mut self.polls.begin()) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Err(self.over.take().unwrap_or_else(|| fault(&error))),
            Poll::Pending => {
                return Err(ConnectionError::Http2("the server allows no call at all".to_owned()));
            }
        }
        let begun = send.send_request(self.request.clone(), false).and_then(|(response, mut stream)| {
            stream.send_data(message.clone(), true)?;
            Ok(response)
        });
        self.call = Some(Call::new(begun.map_err(|error| fault(&error))?));
        Ok(())
    }

    /// Sends and reads until the socket would block in both directions, or the call is over.
    pub(crate) fn poll(&mut self) -> Result<Option<Response>, ConnectionError> {
        loop {
            self.turn();
            if let Some(call) = &mut self.call {
                match call.poll(&mut Context::from_waker(self.polls.waker())) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(response)) => {
                        self.call = None;
                        // What was read is acknowledged at once and not with the next call.
                        self.turn();
                        return Ok(Some(response));
                    }
                    // A call that ends with its connection ends for the connection's reason.
                    Poll::Ready(Err(fault)) => return Err(self.over.take().unwrap_or(fault)),
                }
            }
            if let Some(fault) = self.over.take() {
                return Err(fault);
            }
            if !self.polls.goes_on() {
                return Ok(None);
            }
        }
    }

    fn turn(&mut self) {
        let State::Open(open) = &mut self.state else { return };
        if self.over.is_some() {
            return;
        }
        match Pin::new(&mut open.1).poll(&mut self.polls.begin()) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.over = Some(ConnectionError::Closed),
            Poll::Ready(Err(error)) => self.over = Some(fault(&error)),
        }
    }
}

/// What has come of an answer.
struct Call {
    response: ResponseFuture,
    body: Option<RecvStream>,
    http: u16,
    status: Option<u16>,
    prefix: [u8; PREFIX_BYTES],
    bytes: u64,
    /// All of the body has come.
    whole: bool,
}

impl Call {
    fn new(response: ResponseFuture) -> Call {
        Call {
            response,
            body: None,
            http: 0,
            status: None,
            prefix: [0; PREFIX_BYTES],
            bytes: 0,
            whole: false,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, ConnectionError>> {
        if self.body.is_none() {
            let head = ready!(Pin::new(&mut self.response).poll(cx)).map_err(|error| fault(&error))?;
            self.http = head.status().as_u16();
            self.status = status(head.headers());
            self.body = Some(head.into_body());
        }
        let Some(body) = &mut self.body else { return Poll::Pending };
        while !self.whole {
            match ready!(body.poll_data(cx)) {
                None => self.whole = true,
                Some(Err(error)) => return Poll::Ready(Err(fault(&error))),
                Some(Ok(data)) => {
                    let at = usize::try_from(self.bytes).map_or(PREFIX_BYTES, |at| at.min(PREFIX_BYTES));
                    let part = data.len().min(PREFIX_BYTES - at);
                    self.prefix[at..at + part].copy_from_slice(&data[..part]);
                    self.bytes += data.len() as u64;
                    body.flow_control().release_capacity(data.len()).map_err(|error| fault(&error))?;
                }
            }
        }
        let trailers = ready!(body.poll_trailers(cx)).map_err(|error| fault(&error))?;
        self.status = trailers.as_ref().and_then(status).or(self.status);
        Poll::Ready(self.judged())
    }

    fn judged(&self) -> Result<Response, ConnectionError> {
        // An answer that is not gRPC counts by its HTTP status, which is never a gRPC code.
        let status = if self.http == 200 { self.status.unwrap_or(UNKNOWN) } else { self.http };
        if status == OK && !is_whole(self.prefix, self.bytes) {
            return Err(ConnectionError::Http2("an answer is not one message as long as it says".to_owned()));
        }
        Ok(Response { status, body_bytes: self.bytes, keep_alive: true })
    }
}

/// The outcome in a head or in trailers.
fn status(fields: &HeaderMap) -> Option<u16> {
    let text = fields.get("grpc-status")?.to_str().ok();
    let code = text.and_then(|text| text.parse().ok()).filter(|code| *code <= STATUS_MAX);
    Some(code.unwrap_or(UNKNOWN))
}

/// Why a call or its connection broke.
fn fault(error: &h2::Error) -> ConnectionError {
    if let Some(error) = error.get_io() {
        return match error.raw_os_error() {
            Some(errno) => ConnectionError::System(errno),
            None if error.kind() == io::ErrorKind::InvalidData => ConnectionError::Http2(error.to_string()),
            None => ConnectionError::Closed,
        };
    }
    if error.is_remote() && error.is_go_away() && error.reason() == Some(Reason::NO_ERROR) {
        return ConnectionError::Closed;
    }
    let text = crate::plain(&error.to_string());
    if error.is_remote() && error.is_reset() {
        ConnectionError::CallReset(text)
    } else {
        ConnectionError::Http2(text)
    }
}
