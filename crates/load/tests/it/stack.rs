//! The responder on a stack of our own: the same answers as on the kernel's, whatever comes.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use linux::{IfName, Netns};
use load::serve::{Idle, Listen, Raw, ResponderConfig, ServeError, Served, Server, StackConfig};
use testkit::{Wire, require_root};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
/// The port of the stack, and that of a responder on sockets beside it.
const PORT: u16 = 80;
const BESIDE: u16 = 81;
/// Longer than an answer takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Calls from one end of a wire while a responder serves at the other.
fn with_stack<T>(
    config: impl Fn(ResponderConfig) -> ResponderConfig,
    calls: impl FnOnce(&Netns) -> T,
) -> Option<(T, Served)> {
    if !require_root() {
        return None;
    }
    let wire = Wire::up();
    let mut listen = vec![Listen::Http((Ipv4Addr::UNSPECIFIED, PORT).into())];
    listen.extend(linux::features::has_ipv6().then(|| Listen::Http((Ipv6Addr::UNSPECIFIED, PORT).into())));
    let link = IfName::new("b0").unwrap();
    let stack = Some(StackConfig::AfXdp { link, receive_cpu: None });
    let config = config(ResponderConfig { listen, stack, ..ResponderConfig::default() });
    let server = wire.far.run(|| Server::bind(&config)).unwrap().unwrap();
    Some(while_serving(&server, || calls(&wire.near)))
}

/// Does something while a responder runs, which ends also where that panics.
pub(crate) fn while_serving<T>(server: &Server, work: impl FnOnce() -> T) -> (T, Served) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.run(&stop));
        let result = {
            let _stop = Stop(&stop);
            work()
        };
        (result, serving.join().unwrap().unwrap())
    })
}

fn connect(netns: &Netns, to: (IpAddr, u16)) -> TcpStream {
    let to = SocketAddr::from(to);
    let stream = netns.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends bytes in pieces of a size, ends the sending, and reads all that comes.
fn asked(stream: &mut TcpStream, request: &[u8], piece: usize) -> Vec<u8> {
    for piece in request.chunks(piece) {
        stream.write_all(piece).unwrap();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// Without the fields that say when a responder was started, and when it answered.
fn timeless(answer: &[u8]) -> String {
    let text = String::from_utf8(answer.to_vec()).unwrap();
    let is_kept =
        |line: &&str| !["Date:", "Last-Modified:", "ETag:"].iter().any(|field| line.starts_with(field));
    text.split_inclusive("\r\n").filter(is_kept).collect()
}

#[test]
fn both_stacks_give_the_same_answers() {
    let many = |request: &str| request.repeat(40);
    let requests = [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "HEAD /4096 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET /7000 HTTP/1.0\r\n\r\n".to_owned(),
        "POST /1 HTTP/1.1\r\nContent-Length: 11\r\n\r\nhello worldGET /2 HTTP/1.1\r\n\r\n".to_owned(),
        "PUT /3 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"
            .to_owned(),
        "GET /nowhere HTTP/1.1\r\n\r\nGET /8 HTTP/1.1\r\n\r\n".to_owned(),
        "GET /5 HTTP/1.1\r\nConnection: close\r\n\r\nGET /6 HTTP/1.1\r\n\r\n".to_owned(),
        "BREW / HTTP/1.1\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nContent-Length: +3\r\n\r\n".to_owned(),
        many("GET /300 HTTP/1.1\r\nHost: a\r\n\r\n") + "GET / HT",
    ];
    // A connection that is refused ends while its caller still sends.
    let pieces = &requests[..6];
    let seen = with_stack(
        |config| ResponderConfig { idle: Idle::Spin, ..config },
        |netns| {
            let socket = Listen::Http((Ipv4Addr::UNSPECIFIED, BESIDE).into());
            let beside = ResponderConfig { listen: vec![socket], ..ResponderConfig::default() };
            // The kernel's stack is that of the same end of the wire, so what differs is the responder's.
            let server = netns.run(|| Server::bind(&beside)).unwrap().unwrap();
            let compare = |request: &str, piece: usize| {
                let on_kernel = (Ipv4Addr::new(192, 0, 2, 1).into(), BESIDE);
                let [kernel, ours] = [on_kernel, (V4, PORT)]
                    .map(|to| timeless(&asked(&mut connect(netns, to), request.as_bytes(), piece)));
                assert_eq!(ours, kernel, "{request:?} in pieces of {piece}");
                assert!(ours.starts_with("HTTP/1.1 "), "{ours:?}");
            };
            while_serving(&server, || {
                for request in &requests {
                    compare(request, request.len());
                }
                for request in pieces {
                    compare(request, 7);
                }
            });
        },
    );
    let Some(((), served)) = seen else { return };
    assert_eq!(served.connections, (requests.len() + pieces.len()) as u64);
}

/// More connections at once than sockets wait, each with an answer that is longer than any buffer between.
#[test]
fn long_answers_come_whole_to_many_at_once() {
    const CALLERS: usize = 70;
    const BYTES: usize = 1 << 20;
    let seen = with_stack(
        |config| config,
        |netns| {
            let families = if linux::features::has_ipv6() { vec![V4, V6] } else { vec![V4] };
            let callers: Vec<TcpStream> = (0..CALLERS)
                .map(|caller| connect(netns, (families[caller % families.len()], PORT)))
                .collect();
            thread::scope(|scope| {
                for mut stream in callers {
                    scope.spawn(move || {
                        let request = format!("GET /{BYTES} HTTP/1.1\r\nConnection: close\r\n\r\n");
                        let answer = asked(&mut stream, request.as_bytes(), 100);
                        let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
                        assert_eq!(answer.len() - head, BYTES);
                        assert!(answer[head..].iter().all(|byte| *byte == b'x'));
                    });
                }
            });
        },
    );
    let Some(((), served)) = seen else { return };
    assert_eq!((served.connections, served.answered), (CALLERS as u64, CALLERS as u64));
}

/// A receive buffer is a ring. Requests lie across its end, and the connection is alone: nothing else wakes the stack.
#[test]
fn a_request_across_the_end_of_a_buffer_is_answered() {
    const REQUESTS: usize = 400;
    let seen = with_stack(
        |config| ResponderConfig { body_bytes: 1, ..config },
        |netns| {
            let mut stream = connect(netns, (V4, PORT));
            let request = format!("GET / HTTP/1.1\r\nFill: {}\r\n\r\n", "y".repeat(997));
            let mut length = 0;
            for number in 0..REQUESTS {
                stream.write_all(request.as_bytes()).unwrap();
                if number == 0 {
                    let mut buffer = [0; 1000];
                    length = stream.read(&mut buffer).unwrap();
                    continue;
                }
                stream.read_exact(&mut vec![0; length]).unwrap();
            }
        },
    );
    let Some(((), served)) = seen else { return };
    assert_eq!((served.connections, served.answered), (1, REQUESTS as u64));
}

#[test]
fn datagrams_that_the_link_does_not_carry_are_refused() {
    if !require_root() {
        return;
    }
    let wire = Wire::up();
    let mut families = vec![(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 1500 - 28)];
    if linux::features::has_ipv6() {
        families.push((IpAddr::V6(Ipv6Addr::UNSPECIFIED), 1500 - 48));
    }
    for (any, most) in families {
        let bound = |response_bytes| {
            let link = IfName::new("b0").unwrap();
            let config = ResponderConfig {
                listen: vec![Listen::Udp((any, PORT).into())],
                raw: Raw { request_bytes: 64, response_bytes },
                stack: Some(StackConfig::AfXdp { link, receive_cpu: None }),
                ..ResponderConfig::default()
            };
            wire.far.run(|| Server::bind(&config).map(drop)).unwrap()
        };
        for response_bytes in [most + 1, 4000] {
            let refused = bound(response_bytes);
            let Err(ServeError::Config(why)) = refused else { panic!("{response_bytes}: {refused:?}") };
            assert!(why.contains(&format!("at most {most} bytes")), "{why}");
        }
        bound(most).unwrap();
    }
}

#[test]
fn datagrams_are_answered_by_as_many() {
    let seen = with_stack(
        |config| {
            let udp = |listen: &Listen| Listen::Udp(listen.address().unwrap());
            let listen = config.listen.iter().map(udp).collect();
            ResponderConfig { listen, echo: true, idle: Idle::Spin, ..config }
        },
        |netns| {
            let socket = netns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap()).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            for number in 0..600_u64 {
                let mut request = number.to_ne_bytes().to_vec();
                request.resize(8 + (number as usize * 37) % 1400, 0);
                socket.send_to(&request, (V4, PORT)).unwrap();
                let mut answer = [0; 2000];
                let (bytes, from) = socket.recv_from(&mut answer).unwrap();
                assert_eq!((bytes, from.ip()), (request.len(), V4));
                assert_eq!(answer[..8], number.to_ne_bytes());
            }
        },
    );
    let Some(((), served)) = seen else { return };
    assert_eq!((served.answered, served.dropped), (600, 0));
}
