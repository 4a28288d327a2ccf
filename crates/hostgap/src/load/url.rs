//! Addresses as they are typed.

use std::net::{SocketAddr, ToSocketAddrs};

use ::load::{Expect, Target};
use anyhow::Context;

use crate::exit::BadInput;

/// The parts of `http://AUTHORITY/PATH`.
#[derive(Debug, PartialEq, Eq)]
struct Url<'a> {
    /// Goes into the `Host` field as it was typed.
    authority: &'a str,
    /// A name or an address, without brackets.
    host: &'a str,
    port: u16,
    path: &'a str,
}

/// Whom a URL means. A name is looked up once; its first address is taken.
pub(super) fn target(text: &str, expect: Expect) -> anyhow::Result<Target> {
    let url = parse(text).map_err(|why| BadInput(format!("`{text}` cannot be asked: {why}")))?;
    let address = resolve(&url).with_context(|| format!("could not find the address of {}", url.host))?;
    let path = if url.path.is_empty() { "/".to_owned() } else { url.path.to_owned() };
    Ok(Target::get(address, url.authority, &path, expect))
}

fn resolve(url: &Url<'_>) -> std::io::Result<SocketAddr> {
    let mut addresses = (url.host, url.port).to_socket_addrs()?;
    addresses.next().ok_or_else(|| std::io::Error::other("the name has no address"))
}

fn parse(text: &str) -> Result<Url<'_>, &'static str> {
    if text.starts_with("https://") {
        return Err("TLS is not supported, only http://");
    }
    let rest = text.strip_prefix("http://").ok_or("http://HOST[:PORT][/PATH] is expected")?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if authority.contains('@') {
        return Err("names and passwords are not supported");
    }
    if rest.contains('#') {
        return Err("a fragment (#) is not part of a request");
    }
    let (host, port) = host_and_port(authority)?;
    let port = match port {
        None => 80,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or("a port is 1 to 65535")?,
    };
    Ok(Url { authority, host, port, path })
}

fn host_and_port(authority: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("an IPv6 address ends with ]")?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err("after ] comes a port or the path"),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err("an IPv6 address stands in brackets, http://[::1]/");
        }
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    if host.is_empty() { Err("a host is missing") } else { Ok((host, port)) }
}

#[cfg(test)]
mod tests {
    use ::load::{Address, Ask, Request};

    use super::*;

    #[track_caller]
    fn check(text: &str, authority: &str, host: &str, port: u16, path: &str) {
        assert_eq!(parse(text), Ok(Url { authority, host, port, path }));
    }

    #[test]
    fn urls_are_taken_apart() {
        check("http://a", "a", "a", 80, "");
        check("http://a:8080/4096?x=/y", "a:8080", "a", 8080, "/4096?x=/y");
        check("http://127.0.0.1/", "127.0.0.1", "127.0.0.1", 80, "/");
        check("http://[::1]:81/x", "[::1]:81", "::1", 81, "/x");
        check("http://[::1]", "[::1]", "::1", 80, "");
    }

    #[test]
    fn what_is_no_url_is_told_why() {
        for text in [
            "https://a/",
            "a:80",
            "http://",
            "http:///x",
            "http://a:0/",
            "http://a:x/",
            "http://a:70000/",
            "http://::1/",
            "http://[::1/",
            "http://[::1]x/",
            "http://u@a/",
            "http://a/#b",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_needs_no_look_up() {
        let target = target("http://[::1]:81", Expect::default()).unwrap();
        let address = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 81));
        assert_eq!(target.address, Address::Tcp(address));
        assert_eq!(target.ask, Ask::Http(vec![Request::get("[::1]:81", "/", Expect::default())]));
    }
}
