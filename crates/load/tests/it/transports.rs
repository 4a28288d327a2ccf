//! The responder on every kind of address that it supports.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use load::serve::{Certificate, Delay, Faults, Listen, Raw, ResponderConfig, ServeError, Server};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::responder::{connect, ok, responses, with_server};

fn listen(text: &str) -> ResponderConfig {
    ResponderConfig { listen: vec![text.parse().unwrap()], ..ResponderConfig::default() }
}

fn on_unix(path: &Path) -> ResponderConfig {
    ResponderConfig { listen: vec![Listen::HttpUnix(path.to_owned())], ..ResponderConfig::default() }
}

#[test]
fn a_unix_socket_is_answered_by_all_threads_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let config = ResponderConfig { cpus: linux::cpu::allowed().unwrap(), ..on_unix(&path) };
    let served = with_server(&config, |server| {
        assert_eq!((server.listening(), server.addresses()), (config.listen.as_slice(), vec![]));
        for _ in 0..20 {
            let mut stream = UnixStream::connect(&path).unwrap();
            write!(stream, "GET /7 HTTP/1.1\r\n\r\nGET /8 HTTP/1.1\r\n\r\n").unwrap();
            assert_eq!(responses(&mut stream, 2), [ok(7), ok(8)]);
        }
    });
    assert_eq!((served.connections, served.answered), (20, 40));
    assert!(!path.exists());
}

#[test]
fn a_stale_unix_socket_is_replaced_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let refused = || match Server::bind(&on_unix(&path)) {
        Err(ServeError::Listen { listen, why }) => {
            assert_eq!(listen, Listen::HttpUnix(path.clone()));
            why.kind()
        }
        other => panic!("{other:?}"),
    };
    let live = UnixListener::bind(&path).unwrap();
    assert_eq!(refused(), io::ErrorKind::AddrInUse);
    drop(live);
    assert!(path.exists());
    drop(Server::bind(&on_unix(&path)).unwrap());
    assert!(!path.exists());
    fs::write(&path, "mine").unwrap();
    assert_eq!(refused(), io::ErrorKind::AddrInUse);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    // A file that another program put in place of ours stays.
    fs::remove_file(&path).unwrap();
    let server = Server::bind(&on_unix(&path)).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    drop(server);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[test]
fn raw_tcp_counts_bytes() {
    let raw = Raw { request_bytes: 10, response_bytes: 7 };
    let served = with_server(&ResponderConfig { raw, ..listen("tcp:127.0.0.1:0") }, |server| {
        let mut stream = connect(server.addresses()[0]);
        let mut responses = |requests: &[&[u8]], bytes| {
            requests.iter().for_each(|part| stream.write_all(part).unwrap());
            stream.read_exact(&mut vec![0; bytes]).unwrap();
        };
        responses(&[b"0123456789"], 7);
        responses(&[b"01234", b"56789012345", b"678901234"], 14);
        responses(&[b"56789"], 7);
        responses(&[&[0; 10_000]], 7000);
        // Not a byte more must follow.
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    });
    assert_eq!((served.connections, served.answered), (1, 1004));
}

#[test]
fn an_echo_is_as_long_as_the_request_says() {
    let served = with_server(&ResponderConfig { echo: true, ..listen("tcp:127.0.0.1:0") }, |server| {
        let mut stream = connect(server.addresses()[0]);
        let mut responses = |requests: &[&[u8]], bytes| {
            requests.iter().for_each(|part| stream.write_all(part).unwrap());
            stream.read_exact(&mut vec![0; bytes]).unwrap();
        };
        responses(&[b"\x04\0\0\0"], 4);
        responses(&[b"\x06\0", b"\0\0xy\x05\0\0\0x\x04\0", b"\0\0"], 15);
        let large = [&100_000_u32.to_le_bytes()[..], &[0; 99_996]].concat();
        responses(&[&large], 100_000);
        // Longer than any answer may be: the server closes the connection.
        stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    });
    assert_eq!((served.connections, served.answered), (1, 5));
    let served = with_server(&ResponderConfig { echo: true, ..listen("udp:127.0.0.1:0") }, |server| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        for bytes in [0, 7, 8, 1400, 65_507] {
            socket.send_to(&vec![7; bytes], server.addresses()[0]).unwrap();
            assert_eq!(socket.recv_from(&mut vec![0; 65_536]).unwrap().0, bytes);
        }
    });
    assert_eq!((served.answered, served.dropped), (5, 0));
}

#[test]
fn raw_tcp_waits_for_a_peer_that_reads_late() {
    let raw = Raw { request_bytes: 1, response_bytes: 1_000_000 };
    with_server(&ResponderConfig { raw, ..listen("tcp:[::1]:0") }, |server| {
        let mut stream = connect(server.addresses()[0]);
        stream.write_all(&[0; 40]).unwrap();
        let mut late = connect(server.addresses()[0]);
        late.write_all(&[0]).unwrap();
        late.read_exact(&mut vec![0; 1_000_000]).unwrap();
        stream.read_exact(&mut vec![0; 40_000_000]).unwrap();
    });
}

#[test]
fn a_datagram_is_answered_by_one_that_begins_alike() {
    for (server, client) in [("udp:127.0.0.1:0", "127.0.0.1:0"), ("udp:[::1]:0", "[::1]:0")] {
        for (request, response_bytes, alike) in
            [(100, 20, 8), (3, 20, 3), (100, 4, 4), (0, 1, 0), (1, 2000, 1)]
        {
            let raw = Raw { request_bytes: 64, response_bytes };
            let served = with_server(&ResponderConfig { raw, ..listen(server) }, |server| {
                let socket = UdpSocket::bind(client).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                let request: Vec<u8> = (1..=request).collect();
                socket.send_to(&request, server.addresses()[0]).unwrap();
                let mut response = vec![0; 65_536];
                let (bytes, from) = socket.recv_from(&mut response).unwrap();
                assert_eq!((bytes, from), (response_bytes as usize, server.addresses()[0]));
                assert_eq!(response[..alike], request[..alike]);
            });
            assert_eq!((served.answered, served.dropped), (1, 0));
        }
    }
}

/// A client that trusts only this certificate.
pub(crate) fn tls(certificate: &Certificate, server: &Server) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.chain_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let address = server.addresses()[0];
    let client = ClientConnection::new(Arc::new(config), address.ip().into()).unwrap();
    StreamOwned::new(client, connect(address))
}

#[test]
fn what_was_asked_before_the_end_of_a_tls_session_is_answered() {
    let certificate = Certificate::self_signed().unwrap();
    let slow = Faults { delay: Some(Delay::Fixed(Duration::from_millis(1))), ..Faults::default() };
    for faults in [Faults::default(), slow] {
        let config =
            ResponderConfig { certificate: Some(certificate.clone()), faults, ..listen("https:127.0.0.1:0") };
        let served = with_server(&config, |server| {
            let mut stream = tls(&certificate, server);
            stream.conn.complete_io(&mut stream.sock).unwrap();
            // The requests and the end come together, and no buffer holds the answers.
            stream.conn.writer().write_all("GET /65536 HTTP/1.1\r\n\r\n".repeat(400).as_bytes()).unwrap();
            stream.conn.send_close_notify();
            stream.flush().unwrap();
            assert_eq!(stream.sock.peek(&mut [0]).unwrap(), 1);
            assert_eq!(responses(&mut stream, 401), vec![ok(65_536); 400]);
        });
        assert_eq!((served.answered, served.refused, served.broken_tls), (400, 0, 0));
    }
}

#[test]
fn https_is_answered_and_ended_as_it_should_be() {
    for address in ["https:127.0.0.1:0", "https:[::1]:0"] {
        let certificate = Certificate::self_signed().unwrap();
        let config = ResponderConfig { certificate: Some(certificate.clone()), ..listen(address) };
        let served = with_server(&config, |server| {
            let mut stream = tls(&certificate, server);
            stream.write_all("GET /1000000 HTTP/1.1\r\n\r\n".repeat(5).as_bytes()).unwrap();
            assert_eq!(responses(&mut stream, 5), [ok(1_000_000); 5]);
            write!(stream, "GET /3 HTTP/1.1\r\n\r\n").unwrap();
            assert_eq!(responses(&mut stream, 1), [ok(3)]);
            assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
            let body = "x".repeat(100_000);
            write!(stream, "POST /4 HTTP/1.1\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n{body}")
                .unwrap();
            // An end without close_notify would be an error.
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            assert!(rest.ends_with(b"\r\n\r\nxxxx"));
            // The server answers a close_notify with its own.
            let mut stream = tls(&certificate, server);
            write!(stream, "GET /5 HTTP/1.1\r\n\r\n").unwrap();
            stream.conn.send_close_notify();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            assert!(all.ends_with(b"\r\n\r\nxxxxx"));
        });
        assert_eq!((served.connections, served.answered, served.broken_tls), (2, 8, 0));
    }
}

#[test]
fn a_client_without_tls_gets_an_alert_and_is_counted() {
    let certificate = Certificate::self_signed().unwrap();
    let config = ResponderConfig { certificate: Some(certificate.clone()), ..listen("https:127.0.0.1:0") };
    let served = with_server(&config, |server| {
        let mut plain = connect(server.addresses()[0]);
        write!(plain, "GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut alert = Vec::new();
        plain.read_to_end(&mut alert).unwrap();
        // The content type of an alert (RFC 8446, section 5.1).
        assert_eq!(alert.first(), Some(&21));
        let mut stranger = tls(&Certificate::self_signed().unwrap(), server);
        assert!(stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").and_then(|()| stranger.flush()).is_err());
        drop(stranger);
        let mut stream = tls(&certificate, server);
        write!(stream, "GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(responses(&mut stream, 1), [ok(100)]);
    });
    assert_eq!((served.connections, served.answered, served.refused), (3, 1, 0));
    assert!((1..=2).contains(&served.broken_tls), "{served:?}");
}

#[test]
fn certificates_come_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let chain = file("chain.pem", &made.cert.pem());
    let key = file("key.pem", &made.signing_key.serialize_pem());
    let certificate = Certificate::from_files(&chain, &key).unwrap();
    let config = ResponderConfig { certificate: Some(certificate.clone()), ..listen("https:127.0.0.1:0") };
    with_server(&config, |server| {
        let mut stream = tls(&certificate, server);
        write!(stream, "GET / HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(responses(&mut stream, 1), [ok(100)]);
    });
    let other = rcgen::KeyPair::generate().unwrap();
    let other = file("other.pem", &other.serialize_pem());
    let none = dir.path().join("none.pem");
    for (chain, key, says) in [
        (&chain, &other, "other.pem with the certificate"),
        (&chain, &none, "read a key from"),
        (&none, &key, "read a certificate from"),
        (&key, &key, "read a certificate from"),
        (&chain, &chain, "read a key from"),
    ] {
        let error = Certificate::from_files(chain, key).expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
    }
}
