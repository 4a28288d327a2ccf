//! Any bytes as responses: the parser finds the same in them however they are split, and whether it remembers the last
//! head or not. Where httparse reads a head too, both see the same one.
//!
//! An input is two digits, six lengths of pieces, and the bytes of the server. Of a digit the low four bits count, so
//! that it can be written as one.
#![no_main]

/// One module of it. The whole crate brings TLS along, which takes minutes to build with coverage.
#[path = "../../crates/load/src"]
mod load {
    pub mod response;
}

use libfuzzer_sys::fuzz_target;
use load::response::{Learned, Malformed, Parser, Response};

/// How the bytes come: lengths of pieces, in turn.
type Pieces<'a> = &'a [u8];

/// Which of four responses belong to HEAD requests, a bit each, in turn.
#[derive(Clone, Copy)]
struct Heads(u8);

/// What was read of a connection: its responses, each with where it ends, and how the connection ended.
#[derive(Debug, PartialEq)]
struct ReadResponses {
    responses: Vec<(usize, Response)>,
    end: Result<Option<Response>, Malformed>,
}

fuzz_target!(|input: &[u8]| {
    let Some(([heads, again, pieces @ ..], text)) = input.split_first_chunk::<8>() else { return };
    let heads = Heads(*heads);
    // A server that says the same again: what is learnt is used, and with the square heads reach their limit.
    let stream = text.repeat(1 + usize::from(again & 15).pow(2));

    let whole = read(&stream, &[], heads, None);
    check(&stream, &whole, heads);
    let splits: [Pieces<'_>; 3] = [&[], &[1], pieces];
    for pieces in splits {
        assert_eq!(read(&stream, pieces, heads, None), whole, "in pieces of {pieces:?}");
        let learned = read(&stream, pieces, heads, Some(Learned::new()));
        assert_eq!(learned, whole, "learned, in pieces of {pieces:?}");
    }
});

impl Heads {
    fn is_head(self, nth: usize) -> bool {
        self.0 >> (nth % 4) & 1 == 1
    }
}

/// Reads the stream to its end, or to the first error.
fn read(stream: &[u8], pieces: Pieces<'_>, heads: Heads, mut learned: Option<Learned>) -> ReadResponses {
    let mut parser = Parser::default();
    let mut responses = Vec::new();
    let mut at = 0;
    for piece in cut(stream, pieces) {
        let mut rest = piece;
        loop {
            let is_head = heads.is_head(responses.len());
            let fed = match &mut learned {
                Some(learned) => learned.feed(&mut parser, rest, is_head),
                None => parser.feed(rest, is_head),
            };
            match fed {
                Err(error) => return ReadResponses { responses, end: Err(error) },
                Ok(None) => break,
                Ok(Some((used, response))) => {
                    assert!((1..=rest.len()).contains(&used), "{used} of {} bytes used", rest.len());
                    assert!(parser.is_fresh());
                    rest = &rest[used..];
                    responses.push((at + piece.len() - rest.len(), response));
                }
            }
        }
        at += piece.len();
    }
    let fresh = parser.is_fresh();
    let end = parser.end();
    assert_eq!(fresh, end == Ok(None));
    ReadResponses { responses, end }
}

/// The stream in pieces of the given lengths, in turn. Without a length above zero it is one piece.
fn cut<'a>(stream: &'a [u8], lengths: Pieces<'a>) -> impl Iterator<Item = &'a [u8]> {
    let whole = lengths.iter().all(|length| *length == 0);
    let mut lengths = lengths.iter().cycle();
    let mut rest = Some(stream);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let length = if whole { bytes.len() } else { usize::from(*lengths.next()?).min(bytes.len()) };
        let (piece, left) = bytes.split_at(length);
        rest = (!left.is_empty()).then_some(left);
        Some(piece)
    })
}

/// What holds of every response, whatever the bytes are.
fn check(stream: &[u8], found: &ReadResponses, heads: Heads) {
    let mut start = 0;
    for (nth, (end, response)) in found.responses.iter().enumerate() {
        let bytes = &stream[start..*end];
        assert!(bytes.starts_with(b"HTTP/1."));
        assert!((200..1000).contains(&response.status));
        assert!(response.body_bytes < bytes.len() as u64);
        let head = &bytes[..bytes.len() - response.body_bytes as usize];
        // Without chunks the head's empty line comes before the body, with chunks there is one at the end.
        assert!(ends_in_empty_line(head) || ends_in_empty_line(bytes));
        judge(bytes, response, heads.is_head(nth));
        start = *end;
    }
    match found.end {
        Ok(None) => assert_eq!(start, stream.len()),
        Ok(Some(response)) => {
            assert!(!response.keep_alive);
            assert!(response.body_bytes < (stream.len() - start) as u64);
        }
        Err(_) => {}
    }
}

fn ends_in_empty_line(bytes: &[u8]) -> bool {
    bytes.ends_with(b"\n\n") || bytes.ends_with(b"\n\r\n")
}

/// An outside judge, of those heads that it takes; it is stricter about what may be in a field.
fn judge(bytes: &[u8], response: &Response, is_head: bool) {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(head_bytes)) = head.parse(bytes) else { return };
    if head.code.is_some_and(|code| code < 200) {
        return;
    }
    assert_eq!(head.code, Some(response.status));
    let field = |name: &str| head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    if is_head || matches!(response.status, 204 | 304) {
        assert_eq!((head_bytes, response.body_bytes), (bytes.len(), 0));
    } else if field("Transfer-Encoding").is_none() {
        let length = field("Content-Length").and_then(|field| str::from_utf8(field.value).ok()?.parse().ok());
        assert_eq!(length, Some(response.body_bytes));
        assert_eq!((bytes.len() - head_bytes) as u64, response.body_bytes);
    }
}
