//! Addresses and sockets at which an agent answers.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where an agent answers over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// An address of the node: `127.0.0.1:9475`. The agent that keeps the network has it, and one that waits for it
    /// does not answer there.
    Address(SocketAddr),
    /// A socket in the file system: `unix:/run/agent.sock`. The agent answers there also while it waits, so each agent
    /// needs a path of its own, as every container has.
    Socket(PathBuf),
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Endpoint::Socket(path.into())),
            Some(_) => Err("unix:PATH is expected".to_owned()),
            None => {
                let address = text.parse().map_err(|_| "ADDRESS:PORT or unix:PATH is expected".to_owned());
                address.map(Endpoint::Address)
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Address(address) => address.fmt(f),
            Endpoint::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_or_a_socket() {
        for text in ["127.0.0.1:9475", "[::1]:9475", "unix:/run/agent.sock"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        for wrong in ["9475", "unix:", "localhost:9475", "/run/agent.sock"] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
