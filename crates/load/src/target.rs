//! What is asked, of whom, and what answer is expected.

use std::net::SocketAddr;

use crate::LoadError;

/// The greatest length of a request in bytes. It must fit into any socket's send buffer in one write.
const REQUEST_BYTES_MAX: usize = 8192;

/// One resource of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where the server listens.
    pub address: SocketAddr,
    /// The value of the `Host` field.
    pub host: String,
    /// The path with its query, from `/`.
    pub path: String,
    /// What counts as an answer.
    pub expect: Expect,
}

/// What an answer must be. Anything else is counted as unexpected and is in no histogram of latency, because a quick
/// error would flatter the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expect {
    /// The status code.
    pub status: u16,
    /// The length of the body in bytes; `None`: any.
    pub body_bytes: Option<u64>,
}

impl Default for Expect {
    fn default() -> Expect {
        Expect { status: 200, body_bytes: None }
    }
}

impl Target {
    /// The request's bytes, made once before the first packet.
    pub(crate) fn request(&self) -> Result<Vec<u8>, LoadError> {
        let bad = |what, text: &str, why| LoadError::Target { what, text: text.to_owned(), why };
        if !self.path.starts_with('/') || self.path.bytes().any(|byte| !(0x21..0x7f).contains(&byte)) {
            return Err(bad(
                "path",
                &self.path,
                "it must start with / and have printable ASCII characters only",
            ));
        }
        if self.host.is_empty() || self.host.bytes().any(|byte| !(0x21..0x7f).contains(&byte)) {
            return Err(bad("host", &self.host, "printable ASCII characters are expected"));
        }
        let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", self.path, self.host).into_bytes();
        if request.len() > REQUEST_BYTES_MAX {
            return Err(bad("path", &self.path, "a request of at most 8192 bytes is possible"));
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(host: &str, path: &str) -> Target {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        Target { address, host: host.to_owned(), path: path.to_owned(), expect: Expect::default() }
    }

    #[test]
    fn a_request_is_a_line_and_a_host() {
        let request = target("a:8080", "/100?x").request().unwrap();
        assert_eq!(request, b"GET /100?x HTTP/1.1\r\nHost: a:8080\r\n\r\n");
    }

    #[test]
    fn nothing_can_be_smuggled_into_a_request() {
        assert!(target("a", "no-slash").request().is_err());
        assert!(target("a", "/ HTTP/1.0\r\nX: y").request().is_err());
        assert!(target("a\r\nX: y", "/").request().is_err());
        assert!(target("", "/").request().is_err());
        assert!(target("a", &format!("/{}", "x".repeat(9000))).request().is_err());
    }
}
