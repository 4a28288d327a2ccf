//! The server and the client of `tonic`, the usual gRPC library in Rust.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use bytes::{Buf, BufMut, Bytes};
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, Service, http};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status};

/// A codec that passes messages as plain bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Verbatim;

impl Codec for Verbatim {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Verbatim;
    type Decoder = Verbatim;

    fn encoder(&mut self) -> Verbatim {
        Verbatim
    }

    fn decoder(&mut self) -> Verbatim {
        Verbatim
    }
}

impl Encoder for Verbatim {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Verbatim {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// The outcome of the call with a number from 0. `None`: it is never answered.
pub(super) type Fate = fn(u64) -> Option<Code>;

#[derive(Clone)]
struct Echo {
    calls: Arc<AtomicU64>,
    fate: Fate,
}

impl Service<Request<Bytes>> for Echo {
    type Response = Response<Bytes>;
    type Error = Status;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let fate = (self.fate)(self.calls.fetch_add(1, Ordering::Relaxed));
        Box::pin(async move {
            match fate {
                Some(Code::Ok) => Ok(Response::new(request.into_inner())),
                Some(code) => Err(Status::new(code, "as was asked for")),
                None => std::future::pending().await,
            }
        })
    }
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<http::Response<Body>, std::convert::Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        assert_eq!(request.uri().path(), "/hostgap.Echo/Unary");
        let echo = self.clone();
        Box::pin(async move { Ok(tonic::server::Grpc::new(Verbatim).unary(echo, request).await) })
    }
}

/// A server in a thread of its own, until it is stopped. Its connections then break.
pub(super) struct Tonic {
    pub(super) address: SocketAddr,
    pub(super) calls: Arc<AtomicU64>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Tonic {
    pub(super) fn start(fate: Fate) -> Tonic {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel();
        let calls = Arc::<AtomicU64>::default();
        let echo = Echo { calls: Arc::clone(&calls), fate };
        let thread = std::thread::spawn(move || {
            let runtime = runtime();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                // Dropping the server in mid-call imitates one that dies.
                tokio::select! {
                    served = Server::builder().serve_with_incoming(echo, incoming) => served.unwrap(),
                    _ = ended => {}
                }
            });
        });
        Tonic { address, calls, end: Some(end), thread: Some(thread) }
    }

    pub(super) fn end(&mut self) {
        if let (Some(end), Some(thread)) = (self.end.take(), self.thread.take()) {
            // The server may already have ended.
            let _ = end.send(());
            thread.join().unwrap();
        }
    }
}

impl Drop for Tonic {
    fn drop(&mut self) {
        self.end();
    }
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
