//! A socket with the interface that `h2` needs, and a way to poll it without an executor.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use rustix::io::Errno;
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::socket::{receive, send};

/// A connected, non-blocking socket. epoll reports when to poll it again.
#[derive(Debug)]
pub(crate) struct SocketIo(pub(crate) Arc<OwnedFd>);

impl AsyncRead for SocketIo {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        done(receive(&self.0, buf.initialize_unfilled())).map_ok(|bytes| buf.advance(bytes))
    }
}

impl AsyncWrite for SocketIo {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        done(send(&self.0, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        done(rustix::net::shutdown(&self.0, Shutdown::Write).map(Some))
    }
}

fn done<T>(call: Result<Option<T>, Errno>) -> Poll<io::Result<T>> {
    match call {
        Ok(Some(done)) => Poll::Ready(Ok(done)),
        Ok(None) => Poll::Pending,
        Err(errno) => Poll::Ready(Err(errno.into())),
    }
}

/// Whether something asked to be polled again although no socket has to be waited for.
#[derive(Debug, Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes the place of an executor: polls until no other poll is requested.
#[derive(Debug)]
pub(crate) struct PollLoop {
    woken: Arc<WakeFlag>,
    waker: Waker,
}

impl PollLoop {
    pub(crate) fn new() -> PollLoop {
        let woken = Arc::new(WakeFlag::default());
        PollLoop { waker: Waker::from(Arc::clone(&woken)), woken }
    }

    /// Begins a round of polls; they all get the context that this returns.
    pub(crate) fn begin(&self) -> Context<'_> {
        self.woken.0.store(false, Ordering::Relaxed);
        Context::from_waker(&self.waker)
    }

    /// The waker for further polls in the round that has begun.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Whether a poll of this round has asked to be polled again.
    pub(crate) fn goes_on(&self) -> bool {
        self.woken.0.load(Ordering::Relaxed)
    }
}
