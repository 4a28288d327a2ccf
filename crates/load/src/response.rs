//! Reads HTTP/1.1 responses as they arrive, in pieces of any size.
//!
//! The parser handles one line at a time and keeps no head. Of a line that is split over two reads it carries at most
//! the first [`LINE_BYTES_MAX`] bytes, because the fields that decide where a response ends are short. So a connection
//! costs a fixed 200 bytes however long a head is, and a response split at every byte takes the same code path as a
//! whole one.

mod head;
mod learned;

use head::{Carry, Head, HeadLine};
pub use learned::Learned;

/// The greatest length of a head, interim (1xx) heads and trailers included, in bytes. A longer head is an error.
pub const HEAD_BYTES_MAX: usize = 65_536;

/// The bytes of a line that are examined. A field that decides where the response ends must be shorter.
pub const LINE_BYTES_MAX: usize = 128;

/// A response that was read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// The status code, 200 to 999.
    pub status: u16,
    /// Bytes of the body without chunk framing.
    pub body_bytes: u64,
    /// The connection can be used again.
    pub keep_alive: bool,
}

/// Why bytes are no HTTP/1 response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The first line is not `HTTP/1.x NNN`.
    #[error("the status line is not HTTP/1")]
    StatusLine,
    /// A field line without a name and a colon.
    #[error("a field line has no name")]
    Field,
    /// `Content-Length` is not a number, or there are two that differ.
    #[error("the content length is not a number")]
    Length,
    /// A field that decides where the response ends is longer than any meaningful one.
    #[error("a framing field is longer than {LINE_BYTES_MAX} bytes")]
    LongField,
    /// The head does not end.
    #[error("the head is longer than {HEAD_BYTES_MAX} bytes")]
    LongHead,
    /// Chunk framing is broken.
    #[error("the chunk framing is broken")]
    Chunk,
    /// The server switched to another protocol, unasked.
    #[error("the server switched protocols")]
    Switched,
    /// The connection ended inside a response.
    #[error("the response is cut off")]
    Truncated,
}

/// The state of one connection's incoming side.
#[derive(Debug, Clone, Default)]
pub struct Parser {
    state: State,
    head: Head,
    /// Bytes of the current head, or of the current chunk's size line.
    head_bytes: usize,
    body_bytes: u64,
    is_head: bool,
    carry: Carry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    StatusLine,
    Fields,
    /// Bytes that are still to come.
    Body(u64),
    UntilClose,
    ChunkSize,
    /// Bytes of this chunk that are still to come.
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    Done,
}

impl Parser {
    /// Takes bytes in the order of their arrival. `is_head`: the response belongs to a HEAD request, and so has no
    /// body, whatever length its head declares. `Some` holds a response and how many of these bytes belong to it; the
    /// parser is then ready for the next one, which the caller feeds with the remaining bytes. `None`: all bytes were
    /// used.
    ///
    /// After an error the parser cannot continue; a new connection is needed.
    pub fn feed(&mut self, bytes: &[u8], is_head: bool) -> Result<Option<(usize, Response)>, Malformed> {
        self.is_head = is_head;
        let mut used = 0;
        while used < bytes.len() {
            used += self.step(&bytes[used..])?;
            if self.state == State::Done {
                let keep_alive = self.head.keep_alive();
                return Ok(Some((used, self.complete(keep_alive))));
            }
        }
        Ok(None)
    }

    /// True if no byte of the next response has been taken.
    pub fn is_fresh(&self) -> bool {
        self.state == State::StatusLine && self.head_bytes == 0
    }

    /// The peer closed. `Some`: that was the end of a response without a length.
    pub fn end(&mut self) -> Result<Option<Response>, Malformed> {
        match self.state {
            State::UntilClose => Ok(Some(self.complete(false))),
            State::StatusLine if self.is_fresh() => Ok(None),
            State::StatusLine
            | State::Fields
            | State::Body(_)
            | State::ChunkSize
            | State::ChunkData(_)
            | State::ChunkEnd
            | State::Trailers
            | State::Done => Err(Malformed::Truncated),
        }
    }

    /// Takes the parser back to its start, for a new connection.
    pub fn reset(&mut self) {
        *self = Parser::default();
    }

    fn complete(&mut self, keep_alive: bool) -> Response {
        let response = Response { status: self.head.status, body_bytes: self.body_bytes, keep_alive };
        self.reset();
        response
    }

    /// Consumes at least one byte.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        match self.state {
            State::StatusLine | State::Fields | State::ChunkSize | State::ChunkEnd | State::Trailers => {
                self.line(bytes)
            }
            State::Body(left) => Ok(self.body(bytes, left, State::Body, State::Done)),
            State::ChunkData(left) => Ok(self.body(bytes, left, State::ChunkData, State::ChunkEnd)),
            State::UntilClose => {
                self.body_bytes = self.body_bytes.saturating_add(bytes.len() as u64);
                Ok(bytes.len())
            }
            State::Done => unreachable!("a complete response puts the parser back to its start"),
        }
    }

    fn body(&mut self, bytes: &[u8], left: u64, again: fn(u64) -> State, after: State) -> usize {
        let take = left.min(bytes.len() as u64);
        self.body_bytes = self.body_bytes.saturating_add(take);
        self.state = if take == left { after } else { again(left - take) };
        take as usize
    }

    fn line(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let newline = memchr::memchr(b'\n', bytes);
        let used = newline.map_or(bytes.len(), |at| at + 1);
        self.head_bytes += used;
        if self.head_bytes > HEAD_BYTES_MAX {
            return Err(Malformed::LongHead);
        }
        match newline {
            None => self.carry.push(bytes),
            Some(at) if self.carry.is_empty() => self.on_line(HeadLine::new(&bytes[..at]))?,
            Some(at) => {
                let mut carry = std::mem::take(&mut self.carry);
                carry.push(&bytes[..at]);
                self.on_line(carry.line())?;
            }
        }
        Ok(used)
    }

    fn on_line(&mut self, line: HeadLine<'_>) -> Result<(), Malformed> {
        match self.state {
            State::StatusLine => {
                self.head = Head::from_status_line(line)?;
                self.state = State::Fields;
            }
            State::Fields if line.is_empty() => self.on_head_end()?,
            State::Fields => self.head.field(line)?,
            State::ChunkSize => self.on_chunk_size(line)?,
            State::ChunkEnd if line.is_empty() => self.expect_chunk(),
            State::ChunkEnd => return Err(Malformed::Chunk),
            State::Trailers if line.is_empty() => self.state = State::Done,
            State::Trailers => line.name().map(|_| ())?,
            State::Body(_) | State::ChunkData(_) | State::UntilClose | State::Done => {
                unreachable!("bodies have no lines")
            }
        }
        Ok(())
    }

    /// RFC 9112, 6.3: what ends the body.
    fn on_head_end(&mut self) -> Result<(), Malformed> {
        match self.head.status {
            101 => return Err(Malformed::Switched),
            // An interim answer: the real one follows. Its bytes count, so that a flood of them hits the limit.
            100..=199 => self.state = State::StatusLine,
            _ if self.is_head => self.state = State::Done,
            204 | 304 => self.state = State::Done,
            _ if self.head.chunked => self.expect_chunk(),
            _ => {
                self.state = match self.head.length {
                    Some(0) => State::Done,
                    Some(length) => State::Body(length),
                    None => State::UntilClose,
                }
            }
        }
        Ok(())
    }

    fn expect_chunk(&mut self) {
        self.head_bytes = 0;
        self.state = State::ChunkSize;
    }

    fn on_chunk_size(&mut self, line: HeadLine<'_>) -> Result<(), Malformed> {
        self.state = match line.chunk_size()? {
            0 => State::Trailers,
            size => State::ChunkData(size),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
