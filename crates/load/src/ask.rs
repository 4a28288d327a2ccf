//! The bytes of requests, made once and sent many times.

use std::io::Write;

use bytes::Bytes;

use crate::grpc::{self, GRPC_BODY_BYTES_MAX};
use crate::target::{Ask, Expect, HttpRequest, HttpVersion, Sizes, Target};
use crate::{Address, LoadError, MESSAGE_BYTES_MAX};

/// The greatest length of a request in bytes, so that one write of a whole pipeline fits in memory.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// The greatest payload of a UDP datagram over IPv4: 65,535 less 20 of IP and 8 of UDP.
const DATAGRAM_BYTES_MAX: u32 = 65_507;

/// All that a client asks.
#[derive(Debug)]
pub(crate) struct Asks {
    pub(crate) kinds: Vec<EncodedRequest>,
    pub(crate) reply: ReplyForm,
    /// Of each kind, the sum of its weight and those before it.
    weights: Vec<u64>,
    /// The message of a gRPC call; empty for other protocols.
    pub(crate) message: Bytes,
}

/// One of several requests.
#[derive(Debug)]
pub(crate) struct EncodedRequest {
    pub(crate) bytes: Vec<u8>,
    /// The answer consists of a head only, whatever length it declares (RFC 9110, 9.3.2).
    pub(crate) is_head: bool,
    pub(crate) expect: Expect,
}

/// The form of the answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyForm {
    Http,
    /// Bytes of a stream, as many for each request.
    Stream(u64),
    /// One datagram for each request.
    Datagram,
    /// The outcome of a call of gRPC.
    Call,
}

impl Asks {
    /// What is sent to a target.
    pub(crate) fn of(target: &Target) -> Result<Asks, LoadError> {
        match (&target.ask, &target.address) {
            (Ask::Http(_), Address::Udp(_)) => Err(LoadError::Shape("HTTP does not run over UDP")),
            (Ask::Http(_), Address::Verbs(_)) => Err(LoadError::Shape("HTTP does not run over RDMA verbs")),
            (Ask::Grpc { .. }, Address::Udp(_) | Address::Unix(_) | Address::Verbs(_)) => {
                Err(LoadError::Shape("calls of gRPC are made over TCP"))
            }
            (Ask::Raw(_) | Ask::Grpc { .. }, _) if target.tls.is_some() => {
                Err(LoadError::Shape("TLS is for HTTP alone"))
            }
            (Ask::Http(requests), _) => Asks::http(requests),
            (Ask::Grpc { body_bytes }, _) => Asks::grpc(*body_bytes),
            (Ask::Raw(sizes), Address::Udp(_)) => Asks::datagrams(*sizes),
            (Ask::Raw(sizes), Address::Verbs(_))
                if sizes.request_bytes.max(sizes.response_bytes) > MESSAGE_BYTES_MAX =>
            {
                Err(LoadError::Shape("messages of at most 65536 bytes are possible"))
            }
            (Ask::Raw(sizes), _) => Asks::raw(*sizes),
        }
    }

    fn http(requests: &[HttpRequest]) -> Result<Asks, LoadError> {
        if requests.is_empty() {
            return Err(LoadError::Shape("there is nothing to ask"));
        }
        let kinds = requests.iter().map(EncodedRequest::http).collect::<Result<_, _>>()?;
        let weights = requests.iter().scan(0, |sum, request| {
            *sum += u64::from(request.weight.max(1));
            Some(*sum)
        });
        Ok(Asks { kinds, reply: ReplyForm::Http, weights: weights.collect(), message: Bytes::new() })
    }

    fn raw(sizes: Sizes) -> Result<Asks, LoadError> {
        if sizes.request_bytes == 0 || sizes.response_bytes == 0 {
            return Err(LoadError::Shape("a request and its answer have at least one byte each"));
        }
        if sizes.request_bytes as usize > REQUEST_BYTES_MAX {
            return Err(LoadError::Shape("a request of at most 1048576 bytes is possible"));
        }
        let mut asks = Asks::filled(sizes, ReplyForm::Stream(u64::from(sizes.response_bytes)));
        if let Some(length) = asks.kinds[0].bytes.first_chunk_mut::<{ Sizes::LENGTH_BYTES }>() {
            *length = sizes.request_bytes.to_le_bytes();
        }
        Ok(asks)
    }

    fn datagrams(sizes: Sizes) -> Result<Asks, LoadError> {
        let possible = Sizes::NUMBER_BYTES as u32..=DATAGRAM_BYTES_MAX;
        if !possible.contains(&sizes.request_bytes) || !possible.contains(&sizes.response_bytes) {
            return Err(LoadError::Shape("datagrams of 8 to 65507 bytes are possible"));
        }
        Ok(Asks::filled(sizes, ReplyForm::Datagram))
    }

    fn filled(sizes: Sizes, reply: ReplyForm) -> Asks {
        let expect = Expect { status: 200, body_bytes: Some(u64::from(sizes.response_bytes)) };
        let kind = EncodedRequest { bytes: vec![b'x'; sizes.request_bytes as usize], is_head: false, expect };
        Asks { kinds: vec![kind], reply, weights: vec![1], message: Bytes::new() }
    }

    fn grpc(body_bytes: u32) -> Result<Asks, LoadError> {
        if body_bytes > GRPC_BODY_BYTES_MAX {
            return Err(LoadError::Shape("a call with a body of at most 1048576 bytes is possible"));
        }
        let message = grpc::message(body_bytes);
        let expect = Expect { status: grpc::OK, body_bytes: Some(message.len() as u64) };
        // Its bytes are not handed to a socket, but to the library that frames them.
        let kind = EncodedRequest { bytes: Vec::new(), is_head: false, expect };
        Ok(Asks { kinds: vec![kind], reply: ReplyForm::Call, weights: vec![1], message })
    }

    /// The bytes of the longest request.
    pub(crate) fn longest(&self) -> usize {
        self.kinds.iter().map(|kind| kind.bytes.len()).max().unwrap_or(0)
    }

    /// Which request is the one with a number. Depends on the number alone, so a run can be repeated.
    pub(crate) fn kind_of(&self, number: u64) -> u16 {
        if self.kinds.len() == 1 {
            return 0;
        }
        let total = self.weights.last().copied().unwrap_or(1);
        let place = scatter(number) % total;
        self.weights.partition_point(|sum| *sum <= place) as u16
    }
}

/// Mixes consecutive numbers (the finaliser of SplitMix64; Steele, Lea and Flood 2014, "Fast splittable pseudorandom
/// number generators").
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl EncodedRequest {
    fn http(request: &HttpRequest) -> Result<EncodedRequest, LoadError> {
        let bad = |what, text: &str, why| LoadError::Target { what, text: text.to_owned(), why };
        let visible = |text: &str| !text.is_empty() && text.bytes().all(|byte| (0x21..0x7f).contains(&byte));
        if !visible(&request.path) || !request.path.starts_with('/') {
            let why = "it must start with / and have printable ASCII characters only";
            return Err(bad("path", &request.path, why));
        }
        if !visible(&request.host) {
            return Err(bad("host", &request.host, "printable ASCII characters are expected"));
        }
        if !is_token(&request.method) {
            return Err(bad("method", &request.method, "a word such as GET or POST is expected"));
        }
        for (name, value) in &request.fields {
            if !is_token(name) {
                return Err(bad("field", name, "a field's name has letters, digits and hyphens"));
            }
            // RFC 9110, 5.5: visible characters, blanks and tabs.
            if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
                return Err(bad("field", value, "a field's value is one line"));
            }
            if name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding") {
                return Err(bad("field", name, "the body sets the length itself"));
            }
        }
        let bytes = EncodedRequest::bytes(request);
        if bytes.len() > REQUEST_BYTES_MAX {
            return Err(bad("body", "…", "a request of at most 1048576 bytes is possible"));
        }
        Ok(EncodedRequest { bytes, is_head: request.method == "HEAD", expect: request.expect })
    }

    fn bytes(request: &HttpRequest) -> Vec<u8> {
        let HttpRequest { method, host, path, fields, body, .. } = request;
        let mut bytes = Vec::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            bytes.write_fmt(text).expect("writing to memory does not fail");
        };
        let version = match request.version {
            HttpVersion::Http11 => "HTTP/1.1",
            HttpVersion::Http10 => "HTTP/1.0",
        };
        line(format_args!("{method} {path} {version}\r\n"));
        // RFC 1945 has no such field, but servers of several names need it, and every client sends it.
        if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            line(format_args!("Host: {host}\r\n"));
        }
        for (name, value) in fields {
            line(format_args!("{name}: {value}\r\n"));
        }
        // RFC 9110, 8.6: a method that anticipates content sends its length even if that is 0.
        if !body.is_empty() || ["POST", "PUT", "PATCH"].contains(&method.as_str()) {
            line(format_args!("Content-Length: {}\r\n", body.len()));
        }
        line(format_args!("\r\n"));
        bytes.extend_from_slice(body);
        bytes
    }
}

/// Whether the text is a token (RFC 9110, 5.6.2).
fn is_token(text: &str) -> bool {
    let symbol = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(symbol)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(host: &str, path: &str) -> HttpRequest {
        HttpRequest::get(host, path, Expect::default())
    }

    fn bytes(request: &HttpRequest) -> Result<String, LoadError> {
        let kind = EncodedRequest::http(request)?;
        Ok(String::from_utf8(kind.bytes).unwrap())
    }

    #[test]
    fn a_request_is_a_line_and_a_host() {
        let text = bytes(&get("a:8080", "/100?x")).unwrap();
        assert_eq!(text, "GET /100?x HTTP/1.1\r\nHost: a:8080\r\n\r\n");
    }

    #[test]
    fn a_request_says_how_its_connection_ends() {
        let text = bytes(&get("a", "/").closing()).unwrap();
        assert_eq!(text, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let old = HttpRequest { version: HttpVersion::Http10, ..get("a", "/") };
        assert_eq!(bytes(&old.closing()).unwrap(), "GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    }

    #[test]
    fn fields_and_a_body_are_sent_as_given() {
        let fields = vec![("Host".to_owned(), "b".to_owned()), ("X-Y".to_owned(), "1 2".to_owned())];
        let method = "POST".to_owned();
        let post = HttpRequest { method, fields, body: b"hello".to_vec(), ..get("a", "/") };
        let text = bytes(&post).unwrap();
        assert_eq!(text, "POST / HTTP/1.1\r\nHost: b\r\nX-Y: 1 2\r\nContent-Length: 5\r\n\r\nhello");
        let empty = HttpRequest { body: Vec::new(), ..post };
        assert!(bytes(&empty).unwrap().contains("Content-Length: 0\r\n"));
    }

    #[test]
    fn nothing_can_be_smuggled_into_a_request() {
        let field = |name: &str, value: &str| HttpRequest {
            fields: vec![(name.to_owned(), value.to_owned())],
            ..get("a", "/")
        };
        for request in [
            get("a", "no-slash"),
            get("a", "/ HTTP/1.0\r\nX: y"),
            get("a\r\nX: y", "/"),
            get("", "/"),
            get("a", &format!("/{}", "x".repeat(REQUEST_BYTES_MAX))),
            field("A b", "c"),
            field("A", "b\r\nC: d"),
            field("content-length", "5"),
            HttpRequest { method: "G ET".to_owned(), ..get("a", "/") },
        ] {
            assert!(bytes(&request).is_err(), "{} {}", request.host, request.method);
        }
    }

    #[test]
    fn requests_are_asked_as_often_as_they_weigh() {
        let weighted = |weight| HttpRequest { weight, ..get("a", "/") };
        let asks = Asks::http(&[weighted(1), weighted(7), weighted(2)]).unwrap();
        let mut counts = [0; 3];
        (0..100_000).for_each(|number| counts[usize::from(asks.kind_of(number))] += 1);
        let near = |count: i32, share: f64| (f64::from(count) / 100_000.0 - share).abs() < 0.01;
        assert!(near(counts[0], 0.1) && near(counts[1], 0.7) && near(counts[2], 0.2), "{counts:?}");
    }

    #[test]
    fn sizes_have_limits() {
        let sizes = |request_bytes, response_bytes| Sizes { request_bytes, response_bytes };
        assert!(Asks::raw(sizes(1, 1)).is_ok());
        assert!(Asks::raw(sizes(0, 1)).is_err());
        assert!(Asks::datagrams(sizes(8, 65_507)).is_ok());
        assert!(Asks::datagrams(sizes(7, 100)).is_err());
        assert!(Asks::datagrams(sizes(100, 65_508)).is_err());
    }
}
