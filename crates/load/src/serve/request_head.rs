//! What the input of a connection asks for, and which answer that gets.

use super::answers::{Answers, Reply};
use super::request::{self, LastRequest};
use super::upload::Upload;

/// Says to a peer that it may send the body (RFC 9110, 10.1.1).
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What the beginning of the input asks for.
#[derive(Debug)]
pub(super) enum RequestHead {
    /// It is not a whole head yet.
    Incomplete,
    /// An answer at once; the request has so many bytes.
    Now { bytes: usize, reply: Reply },
    /// An answer behind the body that follows so many bytes.
    AfterBody {
        bytes: usize,
        upload: Upload,
        /// The peer waits for [`CONTINUE`] first.
        says_continue: bool,
    },
    /// Where the next request begins is not known: the connection ends with this status.
    Unreadable { status: u16 },
}

impl RequestHead {
    /// Reads the head at the beginning of the input. The one that was last answered is recognised without parsing it.
    pub(super) fn read(last: &mut LastRequest, answers: &Answers, input: &[u8]) -> RequestHead {
        if let Some((bytes, reply)) = last.repeated(input) {
            return RequestHead::Now { bytes, reply };
        }
        let request = match request::parse(input) {
            Ok(None) => return RequestHead::Incomplete,
            Ok(Some(request)) => request,
            Err(status) => return RequestHead::Unreadable { status },
        };
        let (bytes, keep_alive) = (request.bytes, request.keep_alive);
        let reply = match answers.body_bytes(request.path) {
            Some(body_bytes) => Reply::Page { body_bytes, with_body: request.with_body, keep_alive },
            None => Reply::Refusal { status: 404, keep_alive },
        };
        match request.body {
            None => {
                last.remember(&input[..bytes], reply);
                RequestHead::Now { bytes, reply }
            }
            Some(body) => RequestHead::AfterBody {
                bytes,
                upload: Upload { body, reply },
                says_continue: request.expects_continue && input.len() == bytes,
            },
        }
    }
}
