//! Where a responder listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// An address and the protocol spoken there. Port 0 selects a free one; an IPv6 address accepts only IPv6.
///
/// As text: `ADDRESS:PORT` or `http:ADDRESS:PORT`, `https:ADDRESS:PORT`, `unix:PATH`, `tcp:ADDRESS:PORT`,
/// `udp:ADDRESS:PORT`, `grpc:ADDRESS:PORT`, `verbs:ADDRESS:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// HTTP/1.1 over TCP; connections stay open as the client asks.
    Http(SocketAddr),
    /// HTTP/1.1 over TLS, with the certificate of the configuration.
    Https(SocketAddr),
    /// HTTP/1.1 over a Unix stream socket.
    HttpUnix(PathBuf),
    /// Requests and responses over TCP without content ([`super::Raw`]).
    Tcp(SocketAddr),
    /// The same over UDP.
    Udp(SocketAddr),
    /// gRPC over HTTP/2 in the clear.
    Grpc(SocketAddr),
    /// Messages by RDMA verbs, as over [`Listen::Tcp`]; queue pairs are agreed on over TCP here.
    Verbs(SocketAddr),
}

/// A text that names no place to listen at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no place to listen: ADDRESS:PORT, https:ADDRESS:PORT, unix:PATH, tcp:ADDRESS:PORT, \
     udp:ADDRESS:PORT, grpc:ADDRESS:PORT or verbs:ADDRESS:PORT is expected, the address in digits"
)]
pub struct NoListen(String);

impl Listen {
    /// Its Internet address; a Unix socket has none.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Listen::Http(address)
            | Listen::Https(address)
            | Listen::Tcp(address)
            | Listen::Udp(address)
            | Listen::Grpc(address)
            | Listen::Verbs(address) => Some(*address),
            Listen::HttpUnix(_) => None,
        }
    }

    /// Whether it is something else than HTTP that is spoken there.
    pub(super) fn is_raw(&self) -> bool {
        match self {
            Listen::Tcp(_) | Listen::Udp(_) | Listen::Grpc(_) | Listen::Verbs(_) => true,
            Listen::Http(_) | Listen::Https(_) | Listen::HttpUnix(_) => false,
        }
    }

    pub(super) fn address_mut(&mut self) -> Option<&mut SocketAddr> {
        match self {
            Listen::Http(address)
            | Listen::Https(address)
            | Listen::Tcp(address)
            | Listen::Udp(address)
            | Listen::Grpc(address)
            | Listen::Verbs(address) => Some(address),
            Listen::HttpUnix(_) => None,
        }
    }
}

impl FromStr for Listen {
    type Err = NoListen;

    fn from_str(text: &str) -> Result<Listen, NoListen> {
        let bad = || NoListen(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(bad()) } else { Ok(Listen::HttpUnix(path.into())) };
        }
        let (kind, address) = ["http", "https", "tcp", "udp", "grpc", "verbs"]
            .into_iter()
            .find_map(|kind| Some((kind, text.strip_prefix(kind)?.strip_prefix(':')?)))
            .unwrap_or(("http", text));
        let address = address.parse().map_err(|_| bad())?;
        Ok(match kind {
            "https" => Listen::Https(address),
            "tcp" => Listen::Tcp(address),
            "udp" => Listen::Udp(address),
            "grpc" => Listen::Grpc(address),
            "verbs" => Listen::Verbs(address),
            _ => Listen::Http(address),
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Http(address) => write!(f, "{address}"),
            Listen::Https(address) => write!(f, "https:{address}"),
            Listen::HttpUnix(path) => write!(f, "unix:{}", path.display()),
            Listen::Tcp(address) => write!(f, "tcp:{address}"),
            Listen::Udp(address) => write!(f, "udp:{address}"),
            Listen::Grpc(address) => write!(f, "grpc:{address}"),
            Listen::Verbs(address) => write!(f, "verbs:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_what_is_typed() {
        let v4 = "127.0.0.1:80".parse().unwrap();
        let v6 = "[::1]:443".parse().unwrap();
        for (text, expected) in [
            ("127.0.0.1:80", Listen::Http(v4)),
            ("https:[::1]:443", Listen::Https(v6)),
            ("unix:/run/a b", Listen::HttpUnix("/run/a b".into())),
            ("tcp:[::1]:443", Listen::Tcp(v6)),
            ("udp:127.0.0.1:80", Listen::Udp(v4)),
            ("grpc:127.0.0.1:80", Listen::Grpc(v4)),
            ("verbs:127.0.0.1:80", Listen::Verbs(v4)),
        ] {
            let listen: Listen = text.parse().unwrap();
            assert_eq!((&listen, listen.to_string().as_str()), (&expected, text));
        }
        assert_eq!("http:127.0.0.1:80".parse(), Ok(Listen::Http(v4)));
    }

    #[test]
    fn what_is_no_place_says_what_would_be() {
        for text in ["", "nowhere", "unix:", "tcp:", "tcp:80", "sctp:127.0.0.1:80", "localhost:80", "::1:80x"]
        {
            let error = text.parse::<Listen>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("`{text}` ")) && error.contains("unix:PATH"), "{error}");
        }
    }
}
