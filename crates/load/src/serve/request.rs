//! Reads requests.

/// The greatest length of a request's head in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 8192;

/// Fields that a request may have.
const FIELDS_MAX: usize = 64;

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// Bytes of its head.
    pub(super) bytes: usize,
    pub(super) path: &'a str,
    pub(super) with_body: bool,
    pub(super) keep_alive: bool,
}

/// Reads one request. `None`: it is not complete. `Err`: the status to refuse it with; the connection cannot go on,
/// because where the next request starts is not known.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Request<'_>>, u16> {
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
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return Err(405),
    };
    let mut keep_alive = head.version == Some(1);
    for field in head.headers.iter() {
        if field.name.eq_ignore_ascii_case("connection") {
            for option in field.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                if option.eq_ignore_ascii_case(b"close") {
                    keep_alive = false;
                }
            }
        }
        // A body would have to be read away; no question that is answered here has one.
        let sized = field.name.eq_ignore_ascii_case("content-length") && field.value.trim_ascii() != b"0";
        if sized || field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(400);
        }
    }
    let path = head.path.unwrap_or("");
    Ok(Some(Request { bytes: length, path, with_body, keep_alive }))
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
        assert!(!parse(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().unwrap().with_body);
    }

    #[test]
    fn what_cannot_be_answered_is_refused() {
        assert_eq!(parse(b"POST / HTTP/1.1\r\n\r\n"), Err(405));
        assert_eq!(parse(b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"), Err(400));
        assert_eq!(parse(b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(400));
        assert_eq!(parse(b"GET / HTTP/3.0\r\n\r\n"), Err(505));
        assert_eq!(parse(b"\x16\x03\x01\x02\x00\x01"), Err(400));
        let long = format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(parse(long.as_bytes()), Err(431));
    }
}
