//! The server, the requests to it, and the expected answers.

use std::net::SocketAddr;

use crate::{Address, Tls};

/// One server, and the requests to it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The address of the server.
    pub address: Address,
    /// How to speak TLS with it; `None`: in the clear.
    pub tls: Option<Tls>,
    /// The requests, and the answers to expect.
    pub ask: Ask,
}

/// What requests and answers are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP, over TCP, TLS or a Unix socket.
    Http,
    /// Bytes of a stream, over TCP or a Unix socket; or messages by RDMA verbs.
    Stream,
    /// Datagrams over UDP, one for a request and one for its answer.
    Datagrams,
    /// Unary calls of gRPC over HTTP/2, over TCP.
    Grpc,
}

/// The requests to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// HTTP requests, mixed in proportion to their weights.
    Http(Vec<HttpRequest>),
    /// Bytes for bytes, without a meaning.
    Raw(Sizes),
    /// Unary calls of gRPC's that are echoes, over HTTP/2 in the clear: a message with as many bytes as its body, at
    /// most [`crate::GRPC_BODY_BYTES_MAX`], for one of the same size.
    Grpc {
        /// The size of the call's body in bytes.
        body_bytes: u32,
    },
}

/// Which HTTP a request is written in. Answers are read in either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpVersion {
    /// The connection persists unless one side asks to close it (RFC 9112).
    #[default]
    Http11,
    /// The connection ends with the answer; if the server declares no length, the end of the connection ends the
    /// answer (RFC 1945). Needs a new connection for each request ([`crate::Pool::fresh`]).
    Http10,
}

/// An HTTP request and its weight in the mix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Which HTTP it is written in.
    pub version: HttpVersion,
    /// The method, in capitals.
    pub method: String,
    /// The value of the `Host` field.
    pub host: String,
    /// The path with its query, from `/`.
    pub path: String,
    /// Further fields of the head, in order. A `Host` among them takes the place of `host`.
    pub fields: Vec<(String, String)>,
    /// The body. Its length is sent if there is one, or if the method anticipates one.
    pub body: Vec<u8>,
    /// How often it is asked, beside the others; at least 1.
    pub weight: u32,
    /// What counts as an answer.
    pub expect: Expect,
}

/// The sizes of a raw exchange in bytes. Over TCP and Unix sockets a request and its answer are this many bytes. A
/// request of 4 bytes or more begins with its own length in [`Sizes::LENGTH_BYTES`] bytes, for servers that need it.
/// By RDMA verbs each is a message of up to [`crate::MESSAGE_BYTES_MAX`]. Over UDP both are one datagram that starts
/// with the request's number in [`Sizes::NUMBER_BYTES`] bytes, which the server returns. So late, duplicate and
/// reordered answers are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Of a request, 1 to 65,507; over UDP at least [`Sizes::NUMBER_BYTES`].
    pub request_bytes: u32,
    /// Of an answer, likewise, but over TCP up to 2³² − 1.
    pub response_bytes: u32,
}

/// The expected answer. Any other answer counts as unexpected and is in no histogram of latency, because a quick error
/// would flatter the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expect {
    /// The status code; of a call of gRPC the code of its outcome, which is 0 when it is good.
    pub status: u16,
    /// The length of the body in bytes; `None`: any.
    pub body_bytes: Option<u64>,
}

impl Default for Expect {
    fn default() -> Expect {
        Expect { status: 200, body_bytes: None }
    }
}

impl Sizes {
    /// Bytes of a request's length at its start over TCP and Unix sockets.
    pub const LENGTH_BYTES: usize = 4;

    /// Bytes of a request's number at the start of a datagram.
    pub const NUMBER_BYTES: usize = 8;
}

impl HttpRequest {
    /// The simplest: GET, no further fields, a weight of 1.
    pub fn get(host: &str, path: &str, expect: Expect) -> HttpRequest {
        HttpRequest {
            version: HttpVersion::Http11,
            method: "GET".to_owned(),
            host: host.to_owned(),
            path: path.to_owned(),
            fields: Vec::new(),
            body: Vec::new(),
            weight: 1,
            expect,
        }
    }

    /// The last of its connection: the server is asked to close it behind the answer. Over HTTP/1.0 it does so unasked.
    pub fn closing(mut self) -> HttpRequest {
        if self.version == HttpVersion::Http11 {
            self.fields.push(("Connection".to_owned(), "close".to_owned()));
        }
        self
    }
}

impl Target {
    /// One resource of an HTTP server on a TCP port, requested by GET.
    pub fn get(address: SocketAddr, host: &str, path: &str, expect: Expect) -> Target {
        let ask = Ask::Http(vec![HttpRequest::get(host, path, expect)]);
        Target { address: Address::Tcp(address), tls: None, ask }
    }

    /// What requests and answers are made of.
    pub fn protocol(&self) -> Protocol {
        match (&self.ask, &self.address) {
            (Ask::Http(_), _) => Protocol::Http,
            (Ask::Grpc { .. }, _) => Protocol::Grpc,
            (Ask::Raw(_), Address::Udp(_)) => Protocol::Datagrams,
            (Ask::Raw(_), Address::Tcp(_) | Address::Unix(_) | Address::Verbs(_)) => Protocol::Stream,
        }
    }
}
