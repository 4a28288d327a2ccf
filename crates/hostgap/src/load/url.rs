//! From the URLs of the command line to a server and its requests.

use std::net::{SocketAddr, ToSocketAddrs};

use ::load::{Address, Ask, Expect, HttpRequest, Sessions, Sizes, Target, Tls, Trust, VerbsTarget, plain};
use anyhow::Context;
use linux::rdma::{VerbsDevice, VerbsWait};

use super::args::RequestArgs;
use crate::exit::BadInput;
use crate::units;

/// The default size of a request and of an answer without HTTP, the same as the responder's.
const RAW_BYTES: u32 = 64;

/// The protocol of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
    Tcp,
    Udp,
    Grpc,
    Verbs,
}

/// The parts of `SCHEME://AUTHORITY/PATH`.
#[derive(Debug, PartialEq, Eq)]
struct Url<'a> {
    scheme: Scheme,
    /// Goes unchanged into the `Host` field.
    authority: &'a str,
    /// A name or an address, without brackets.
    host: &'a str,
    port: u16,
    path: &'a str,
}

/// The server of the URLs, and their requests. A name is looked up once; its first address is used.
pub(super) fn target(texts: &[String], args: &RequestArgs, expect: Expect) -> anyhow::Result<Target> {
    let bad = |text: &str, why: &str| BadInput(format!("cannot use the URL `{text}`: {why}"));
    let urls = texts.iter().map(|text| parse(text).map_err(|why| bad(text, why)));
    let urls = urls.collect::<Result<Vec<_>, _>>()?;
    let first = urls.first().ok_or_else(|| BadInput("a URL is needed".to_owned()))?;
    let origin = |url: &Url<'_>| (url.scheme, url.host.to_owned(), url.port);
    if let Some(index) = urls.iter().position(|url| origin(url) != origin(first)) {
        let why = "all URLs of a run must be of one server; start a run for each server";
        return Err(bad(&texts[index], why).into());
    }
    Ok(Target { address: address(first, args)?, tls: tls(first, args)?, ask: ask(&urls, args, expect)? })
}

fn address(url: &Url<'_>, args: &RequestArgs) -> anyhow::Result<Address> {
    if let Some(path) = &args.unix_socket {
        if matches!(url.scheme, Scheme::Udp | Scheme::Verbs) {
            return Err(BadInput("--unix-socket carries neither datagrams nor messages".to_owned()).into());
        }
        return Ok(Address::Unix(path.clone()));
    }
    let address = resolve(url).with_context(|| format!("find the address of {}", plain(url.host)))?;
    if args.rdma.is_some() && url.scheme != Scheme::Verbs {
        return Err(BadInput("--rdma is for verbs://".to_owned()).into());
    }
    Ok(match url.scheme {
        Scheme::Http | Scheme::Https | Scheme::Tcp | Scheme::Grpc => Address::Tcp(address),
        Scheme::Udp => Address::Udp(address),
        Scheme::Verbs => Address::Verbs(verbs(address, args)?),
    })
}

fn verbs(address: SocketAddr, args: &RequestArgs) -> anyhow::Result<VerbsTarget> {
    let Some(name) = &args.rdma else {
        let text = "verbs:// needs --rdma DEVICE; `rdma link show` lists the devices";
        return Err(BadInput(text.to_owned()).into());
    };
    let wait = if args.rdma_poll { VerbsWait::Polling } else { VerbsWait::Events };
    Ok(VerbsTarget { address, device: VerbsDevice::open(name)?, wait })
}

fn tls(url: &Url<'_>, args: &RequestArgs) -> anyhow::Result<Option<Tls>> {
    if url.scheme != Scheme::Https {
        if args.insecure || args.tls_ca.is_some() || args.no_session_reuse {
            let text = "--insecure, --tls-ca and --no-session-reuse are for https://";
            return Err(BadInput(text.to_owned()).into());
        }
        return Ok(None);
    }
    let trust = match &args.tls_ca {
        _ if args.insecure => Trust::Anyone,
        Some(path) => Trust::File(path),
        None => Trust::System,
    };
    let sessions = if args.no_session_reuse { Sessions::Forgotten } else { Sessions::Resumed };
    Ok(Some(Tls::new(url.host, trust)?.with_sessions(sessions)))
}

fn ask(urls: &[Url<'_>], args: &RequestArgs, expect: Expect) -> Result<Ask, BadInput> {
    let request = |url: &Url<'_>| {
        let path = if url.path.is_empty() { "/" } else { url.path };
        HttpRequest::get(url.authority, path, expect)
    };
    if urls.iter().all(|url| matches!(url.scheme, Scheme::Http | Scheme::Https)) {
        if args.request_bytes.is_some() || args.response_bytes.is_some() {
            let text =
                "--request-bytes and --response-bytes are only for tcp://, udp://, verbs:// and grpc://";
            return Err(BadInput(text.to_owned()));
        }
        return Ok(Ask::Http(urls.iter().map(request).collect()));
    }
    if urls.len() > 1 || !urls[0].path.is_empty() {
        return Err(BadInput(
            "with tcp://, udp://, verbs:// and grpc:// one URL is possible, without a path".to_owned(),
        ));
    }
    let bytes = |text: &Option<String>| text.as_deref().map_or(Ok(RAW_BYTES), units::bytes).map_err(BadInput);
    if urls[0].scheme == Scheme::Grpc {
        if args.response_bytes.is_some() {
            let text = "--response-bytes: the answer to a gRPC call has the size of its request";
            return Err(BadInput(text.to_owned()));
        }
        return Ok(Ask::Grpc { body_bytes: bytes(&args.request_bytes)? });
    }
    Ok(Ask::Raw(Sizes {
        request_bytes: bytes(&args.request_bytes)?,
        response_bytes: bytes(&args.response_bytes)?,
    }))
}

fn resolve(url: &Url<'_>) -> std::io::Result<SocketAddr> {
    let mut addresses = (url.host, url.port).to_socket_addrs()?;
    addresses.next().ok_or_else(|| std::io::Error::other("the name has no address"))
}

fn parse(text: &str) -> Result<Url<'_>, &'static str> {
    let expected = "http://HOST[:PORT][/PATH], https://…, tcp://HOST:PORT, udp://HOST:PORT, grpc://HOST:PORT or verbs://HOST:PORT is expected";
    let (scheme, rest) = text.split_once("://").ok_or(expected)?;
    let (scheme, usual_port) = match scheme {
        "http" => (Scheme::Http, Some(80)),
        "https" => (Scheme::Https, Some(443)),
        "tcp" => (Scheme::Tcp, None),
        "udp" => (Scheme::Udp, None),
        "grpc" => (Scheme::Grpc, None),
        "verbs" => (Scheme::Verbs, None),
        _ => return Err(expected),
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if authority.contains('@') {
        return Err("user names and passwords are not supported");
    }
    if rest.contains('#') {
        return Err("a fragment (#) is not part of a request");
    }
    let (host, port) = host_and_port(authority)?;
    let port = match port {
        None => usual_port.ok_or("a port is missing")?,
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or("a port is 1 to 65535")?,
    };
    Ok(Url { scheme, authority, host, port, path })
}

fn host_and_port(authority: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("an IPv6 address ends with ]")?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err("after ] only a port or the path can follow"),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err("an IPv6 address needs brackets, http://[::1]/");
        }
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    if host.is_empty() { Err("a host is missing") } else { Ok((host, port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, scheme: Scheme, authority: &str, host: &str, port: u16, path: &str) {
        assert_eq!(parse(text), Ok(Url { scheme, authority, host, port, path }));
    }

    #[test]
    fn urls_are_taken_apart() {
        check("http://a", Scheme::Http, "a", "a", 80, "");
        check("http://a:8080/4096?x=/y", Scheme::Http, "a:8080", "a", 8080, "/4096?x=/y");
        check("https://127.0.0.1/", Scheme::Https, "127.0.0.1", "127.0.0.1", 443, "/");
        check("http://[::1]:81/x", Scheme::Http, "[::1]:81", "::1", 81, "/x");
        check("http://[::1]", Scheme::Http, "[::1]", "::1", 80, "");
        check("tcp://[::1]:7", Scheme::Tcp, "[::1]:7", "::1", 7, "");
        check("udp://a:7", Scheme::Udp, "a:7", "a", 7, "");
        check("grpc://a:7", Scheme::Grpc, "a:7", "a", 7, "");
        check("verbs://a:7", Scheme::Verbs, "a:7", "a", 7, "");
    }

    #[test]
    fn an_invalid_url_is_refused_with_the_reason() {
        for text in [
            "ftp://a/",
            "a:80",
            "tcp://a",
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
}
