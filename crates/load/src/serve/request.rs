//! Parsing of the heads of HTTP/1.1 requests, as far as they decide the answer.

use super::answers::Reply;
use super::upload::Body;

/// The greatest length of a request's head in bytes.
const HEAD_BYTES_MAX: usize = 8192;

/// Fields that a request may have.
const FIELDS_MAX: usize = 64;

/// The parts of a request that decide its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestParts<'a> {
    /// Length of the head in bytes, with the empty line that ends it.
    pub(super) bytes: usize,
    pub(super) path: &'a str,
    /// Whether the answer has a body.
    pub(super) with_body: bool,
    pub(super) keep_alive: bool,
    /// What follows the head and has to be read away.
    pub(super) body: Option<Body>,
    /// The peer sends the body only after status 100 (RFC 9110, 10.1.1).
    pub(super) expects_continue: bool,
}

/// The last request, and its answer. Generators repeat identical bytes, and comparing them takes a fraction of the
/// time that parsing takes.
#[derive(Debug, Default)]
pub(super) struct LastRequest {
    request: Vec<u8>,
    reply: Option<Reply>,
}

/// Reads one request. `None`: it is not complete. `Err`: the status to refuse it with; the connection cannot go on,
/// because where the next request starts is not known.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<RequestParts<'_>>, u16> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(httparse::Error::Version) => return Err(505),
        Err(_) => return Err(400),
    };
    let with_body = match head.method {
        Some("GET" | "POST" | "PUT" | "PATCH" | "DELETE") => true,
        Some("HEAD") => false,
        _ => return Err(405),
    };
    let is_http_1_1 = head.version == Some(1);
    let mut request = RequestParts {
        bytes: length,
        path: head.path.unwrap_or(""),
        with_body,
        keep_alive: is_http_1_1,
        body: None,
        expects_continue: false,
    };
    for field in head.headers.iter() {
        request.read_field(field)?;
    }
    if request.body == Some(Body::Sized(0)) {
        request.body = None;
    }
    request.expects_continue &= is_http_1_1;
    Ok(Some(request))
}

impl LastRequest {
    /// Notes a whole request without a body.
    pub(super) fn remember(&mut self, request: &[u8], reply: Reply) {
        self.request.clear();
        self.request.extend_from_slice(request);
        self.reply = Some(reply);
    }

    /// Length and answer of the last request, if the input begins with identical bytes. A whole head is complete
    /// whatever follows it.
    pub(super) fn repeated(&self, input: &[u8]) -> Option<(usize, Reply)> {
        let reply = self.reply.filter(|_| input.starts_with(&self.request))?;
        Some((self.request.len(), reply))
    }
}

impl RequestParts<'_> {
    fn read_field(&mut self, field: &httparse::Header<'_>) -> Result<(), u16> {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        let value = field.value.trim_ascii();
        if is("connection") {
            for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                if option.eq_ignore_ascii_case(b"close") {
                    self.keep_alive = false;
                }
            }
        } else if is("expect") {
            self.expects_continue = value.eq_ignore_ascii_case(b"100-continue");
        } else if is("content-length") || is("transfer-encoding") {
            let body = match is("content-length") {
                true => Body::Sized(size(value).ok_or(400_u16)?),
                false if value.eq_ignore_ascii_case(b"chunked") => Body::CHUNKED,
                false => return Err(501),
            };
            // A request with contradictory lengths may be read differently by other programs (RFC 9112, 6.3).
            if self.body.replace(body).is_some_and(|before| before != body) {
                return Err(400);
            }
        }
        Ok(())
    }
}

/// Digits alone, which `u64::from_str` is not strict about.
fn size(digits: &[u8]) -> Option<u64> {
    let digits =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, path: &str, keep_alive: bool) {
        let request = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!((request.path, request.keep_alive, request.bytes), (path, keep_alive, text.len()));
        for at in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..at]), Ok(None), "cut at {at}");
        }
    }

    #[test]
    fn requests_are_read() {
        check("GET /100 HTTP/1.1\r\nHost: a\r\n\r\n", "/100", true);
        check("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "/", false);
        check("GET / HTTP/1.0\r\n\r\n", "/", false);
        check("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "/", true);
        check("POST /1 HTTP/1.1\r\nContent-Length: 3\r\n\r\n", "/1", true);
        assert!(!parse(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().unwrap().with_body);
    }

    #[test]
    fn bodies_are_announced() {
        let body = |fields: &str| {
            let text = format!("PUT / HTTP/1.1\r\n{fields}\r\n");
            parse(text.as_bytes()).map(|request| request.unwrap().body)
        };
        assert_eq!(body(""), Ok(None));
        assert_eq!(body("Content-Length: 0\r\n"), Ok(None));
        assert_eq!(body("Content-Length: 3\r\n"), Ok(Some(Body::Sized(3))));
        assert_eq!(body("content-length: 3\r\nContent-Length: 3\r\n"), Ok(Some(Body::Sized(3))));
        assert_eq!(body("Transfer-Encoding: Chunked\r\n"), Ok(Some(Body::CHUNKED)));
        for fields in [
            "Content-Length: 3\r\nContent-Length: 4\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        ] {
            assert_eq!(body(fields), Err(400), "{fields}");
        }
        assert_eq!(body("Transfer-Encoding: gzip, chunked\r\n"), Err(501));
    }

    #[test]
    fn what_cannot_be_answered_is_refused() {
        assert_eq!(parse(b"BREW / HTTP/1.1\r\n\r\n"), Err(405));
        assert_eq!(parse(b"GET / HTTP/3.0\r\n\r\n"), Err(505));
        assert_eq!(parse(b"\x16\x03\x01\x02\x00\x01"), Err(400));
        let long = format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(parse(long.as_bytes()), Err(431));
    }
}
