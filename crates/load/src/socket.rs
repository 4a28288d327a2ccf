//! Bytes through a non-blocking socket.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// Sends what the socket takes. Returns `None` if its buffer is full.
pub(crate) fn send(socket: &impl AsFd, bytes: &[u8]) -> Result<Option<usize>, Errno> {
    loop {
        match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => return Ok(Some(sent)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Takes what has come. Returns `None` if no bytes are there, and zero at the end.
pub(crate) fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
    loop {
        match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((bytes, _)) => return Ok(Some(bytes)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn full_empty_and_over_are_three_things() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut buffer = [0; 65_536];
        assert_eq!(receive(&ours, &mut buffer), Ok(None));
        let mut sent = 0;
        while let Some(bytes) = send(&ours, &buffer).unwrap() {
            sent += bytes;
        }
        let mut received = 0;
        while let Some(bytes) = receive(&theirs, &mut buffer).unwrap() {
            received += bytes;
        }
        assert_eq!((sent, sent > 0), (received, true));
        drop(ours);
        assert_eq!(receive(&theirs, &mut buffer), Ok(Some(0)));
        // The signal of a broken pipe would end the test.
        assert_eq!(send(&theirs, &buffer), Err(Errno::PIPE));
    }
}
