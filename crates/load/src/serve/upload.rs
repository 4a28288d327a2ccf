//! Reads the bodies of requests away.

use super::answers::Reply;

/// The greatest length of a line between chunks or behind them, in bytes.
const LINE_BYTES_MAX: usize = 8192;

/// A request whose head was read and whose body is arriving.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) body: Body,
    /// The answer to send after the body.
    pub(super) reply: Reply,
}

/// The rest of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// This many bytes remain.
    Sized(u64),
    /// A chunk's head, after the rest of the previous chunk with its line end.
    Chunks {
        /// Bytes of that rest.
        rest: u64,
    },
    /// The lines after the last chunk, to an empty one.
    Trailers,
}

/// How far a body was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skipped {
    /// All, and that many bytes of the input were its end.
    All(usize),
    /// This many bytes of the input were used, and more are to come. None: the input is less than a line and must be
    /// kept.
    Part(usize),
}

impl Body {
    /// A chunked body at its beginning.
    pub(super) const CHUNKED: Body = Body::Chunks { rest: 0 };

    /// Takes from the input what belongs to the body. `Err`: the status to refuse the request with.
    pub(super) fn skip(&mut self, input: &[u8]) -> Result<Skipped, u16> {
        let mut used = 0;
        loop {
            let input = &input[used..];
            match self {
                Body::Sized(rest) => {
                    let taken = take(rest, input);
                    used += taken;
                    return Ok(if *rest == 0 { Skipped::All(used) } else { Skipped::Part(used) });
                }
                Body::Chunks { rest } if *rest > 0 => {
                    used += take(rest, input);
                    if *rest > 0 {
                        return Ok(Skipped::Part(used));
                    }
                }
                Body::Chunks { rest } => match httparse::parse_chunk_size(input) {
                    Ok(httparse::Status::Complete((bytes, 0))) => {
                        used += bytes;
                        *self = Body::Trailers;
                    }
                    Ok(httparse::Status::Complete((bytes, size))) => {
                        used += bytes;
                        *rest = size.checked_add(2).ok_or(400_u16)?;
                    }
                    Ok(httparse::Status::Partial) => return part(used, input),
                    Err(_) => return Err(400),
                },
                Body::Trailers => {
                    let Some(line) = input.iter().position(|byte| *byte == b'\n') else {
                        return part(used, input);
                    };
                    used += line + 1;
                    if matches!(&input[..line], b"" | b"\r") {
                        return Ok(Skipped::All(used));
                    }
                }
            }
        }
    }
}

/// Takes input up to the remaining length.
fn take(rest: &mut u64, input: &[u8]) -> usize {
    let taken = usize::try_from(*rest).map_or(input.len(), |rest| rest.min(input.len()));
    *rest -= taken as u64;
    taken
}

/// A line that has not come to its end yet.
fn part(used: usize, line: &[u8]) -> Result<Skipped, u16> {
    if line.len() < LINE_BYTES_MAX { Ok(Skipped::Part(used)) } else { Err(400) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a body in pieces of every size; something else follows it at once.
    #[track_caller]
    fn check(body: Body, text: &str) {
        let input = format!("{text}GET /");
        for piece in 1..=input.len() {
            let mut body = body;
            let (mut used, mut end) = (0, 0);
            let ended = loop {
                end = (end + piece).min(input.len());
                match body.skip(&input.as_bytes()[used..end]) {
                    Ok(Skipped::All(bytes)) => break used + bytes,
                    Ok(Skipped::Part(bytes)) => used += bytes,
                    Err(status) => panic!("{status} in pieces of {piece}"),
                }
                assert!(end < input.len(), "no end in pieces of {piece}");
            };
            assert_eq!(ended, text.len(), "in pieces of {piece}");
        }
    }

    #[test]
    fn bodies_end_where_they_end() {
        check(Body::Sized(11), "GET / HTTP/");
        check(Body::CHUNKED, "0\r\n\r\n");
        check(Body::CHUNKED, "3\r\nabc\r\n0b;name=value\r\n0123456789a\r\n0\r\nA: b\r\nC: d\r\n\r\n");
    }

    #[test]
    fn chunks_that_are_none_are_refused() {
        for text in ["x\r\n", "-1\r\n", "ffffffffffffffff\r\n", "10000000000000000\r\n"] {
            assert_eq!(Body::CHUNKED.clone().skip(text.as_bytes()), Err(400), "{text}");
        }
        let endless = "1;".to_owned() + &"x".repeat(LINE_BYTES_MAX);
        assert_eq!(Body::CHUNKED.clone().skip(endless.as_bytes()), Err(400));
    }
}
