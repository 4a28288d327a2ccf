//! The short way for servers that answer the same again and again, as nearly all do under load.

use super::{Malformed, Parser, Response};

/// The greatest head that is learnt, in bytes.
const LEARNT_BYTES_MAX: usize = 2048;

/// The last whole head, and its meaning. A response that starts with identical bytes has that meaning too, and one
/// comparison shows it: a tenth of the work of reading its lines. Servers change a head once a second, for its date;
/// where every head differs, this costs the copy of each.
#[derive(Debug)]
pub struct Learned {
    /// Empty until a head has been learnt.
    head: Vec<u8>,
    is_head: bool,
    response: Response,
}

impl Learned {
    /// Takes all its memory.
    pub fn new() -> Learned {
        let response = Response { status: 0, body_bytes: 0, keep_alive: false };
        Learned { head: Vec::with_capacity(LEARNT_BYTES_MAX), is_head: false, response }
    }

    /// As [`Parser::feed`], which it stands in front of.
    pub fn feed(
        &mut self,
        parser: &mut Parser,
        bytes: &[u8],
        is_head: bool,
    ) -> Result<Option<(usize, Response)>, Malformed> {
        if !parser.is_fresh() {
            return parser.feed(bytes, is_head);
        }
        if let Some(known) = self.find(bytes, is_head) {
            return Ok(Some(known));
        }
        let found = parser.feed(bytes, is_head)?;
        if let Some((used, response)) = found {
            self.learn(&bytes[..used], is_head, response);
        }
        Ok(found)
    }

    fn find(&self, bytes: &[u8], is_head: bool) -> Option<(usize, Response)> {
        let head_bytes = self.head.len();
        if head_bytes == 0 || is_head != self.is_head || !bytes.starts_with(&self.head) {
            return None;
        }
        // A body that is not whole yet is the parser's business.
        let whole = (head_bytes as u64).checked_add(self.response.body_bytes)?;
        (bytes.len() as u64 >= whole).then_some((whole as usize, self.response))
    }

    /// Learns the head of a response that arrived whole, if its body has the declared length.
    fn learn(&mut self, bytes: &[u8], is_head: bool, response: Response) {
        self.head.clear();
        let Some(head_bytes) = (bytes.len() as u64).checked_sub(response.body_bytes) else { return };
        let head = &bytes[..(head_bytes as usize).min(bytes.len())];
        // With chunks there are bytes that are neither head nor body, and then the head does not end here.
        if head.len() <= LEARNT_BYTES_MAX && is_final_head(head) {
            self.head.extend_from_slice(head);
            self.is_head = is_head;
            self.response = response;
        }
    }
}

impl Default for Learned {
    fn default() -> Learned {
        Learned::new()
    }
}

/// True if the bytes are exactly one head: its empty line comes last, and nowhere before. An empty line of a bare
/// newline counts as an earlier end: behind it, chunks can contain the bytes that end other heads.
fn is_final_head(bytes: &[u8]) -> bool {
    let end = memchr::memmem::find(bytes, b"\n\r\n");
    end.is_some_and(|at| at + 3 == bytes.len()) && memchr::memmem::find(bytes, b"\n\n").is_none()
}
