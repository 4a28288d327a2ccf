//! Every fault of the responder, as seen at the socket. Only lower bounds of times are asserted.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use load::response::Response;
use load::serve::{
    Certificate, Delay, Faults, Freeze, Injected, Mixture, Raw, ResponderConfig, Served, Trickle,
};

use crate::responder::{connect, ok, responses, with_server};
use crate::transports::tls;

const MS: Duration = Duration::from_millis(1);

fn with_faults(faults: Faults, ask: impl FnOnce(SocketAddr)) -> Served {
    with_server(
        &ResponderConfig { faults, ..ResponderConfig::default() },
        |server| ask(server.addresses()[0]),
    )
}

/// Sends one request on a new connection, and reads to the end.
fn asked(address: SocketAddr, request: &str) -> (Vec<u8>, io::Result<usize>) {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer);
    (answer, end)
}

fn fixed(delay: Duration) -> Faults {
    Faults { delay: Some(Delay::Fixed(delay)), ..Faults::default() }
}

/// Delays half of the answers for longer than any test, and the others not at all.
fn now_or_never() -> Faults {
    let mixture = Mixture::new(vec![(0.5, Duration::ZERO), (0.5, 3_600_000 * MS)]).unwrap();
    Faults { delay: Some(Delay::Mixture(mixture)), ..Faults::default() }
}

#[test]
fn no_answer_comes_before_its_delay() {
    let served = with_faults(fixed(50 * MS), |address| {
        let mut stream = connect(address);
        for _ in 0..3 {
            let started = Instant::now();
            write!(stream, "GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\n").unwrap();
            assert_eq!(responses(&mut stream, 2), [ok(1), ok(2)]);
            assert!(started.elapsed() >= 50 * MS);
        }
    });
    assert_eq!((served.answered, served.injected), (6, Injected { delays: 6, ..Injected::default() }));
}

#[test]
fn a_delay_holds_up_no_other_connection() {
    with_faults(now_or_never(), |address| {
        let mut streams: Vec<TcpStream> = (0..200).map(|_| connect(address)).collect();
        for stream in &mut streams {
            write!(stream, "GET / HTTP/1.1\r\n\r\n").unwrap();
            stream.set_nonblocking(true).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut answered = 0;
        // Seven standard deviations below half of them.
        while answered < 50 {
            assert!(Instant::now() < deadline, "{answered} answers");
            for stream in &mut streams {
                answered += u32::from(stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0));
            }
            std::thread::sleep(MS);
        }
    });
}

#[test]
fn delayed_answers_keep_their_order_however_many_there_are() {
    let mixture = Mixture::new(vec![(0.9, Duration::ZERO), (0.1, MS)]).unwrap();
    let faults = Faults { delay: Some(Delay::Mixture(mixture)), ..Faults::default() };
    let served = with_faults(faults, |address| {
        let mut stream = connect(address);
        let many: String =
            (0..10_000).map(|index| format!("GET /{} HTTP/1.1\r\n\r\n", index % 1000)).collect();
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(many.as_bytes()).unwrap());
        let expected: Vec<Response> = (0..10_000).map(|index| ok(index % 1000)).collect();
        assert!(responses(&mut stream, 10_000) == expected);
        writing.join().unwrap();
    });
    assert!(served.injected.delays.abs_diff(1000) < 200, "{served:?}");
}

#[test]
fn more_than_may_wait_is_read_when_there_is_room() {
    // Twice as many answers as may wait on a connection.
    let served = with_faults(fixed(100 * MS), |address| {
        let mut stream = connect(address);
        stream.write_all("GET /0 HTTP/1.1\r\n\r\n".repeat(10_000).as_bytes()).unwrap();
        assert!(responses(&mut stream, 10_000) == vec![ok(0); 10_000]);
    });
    assert_eq!(served.answered, 10_000);
}

#[test]
fn a_peer_that_closed_its_half_gets_what_it_asked_for() {
    with_faults(fixed(30 * MS), |address| {
        let mut stream = connect(address);
        write!(stream, "GET /3 HTTP/1.1\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(b"\r\n\r\nxxx"));
        let (answer, _) =
            asked(address, "GET /3 HTTP/1.1\r\nConnection: close\r\n\r\nGET /4 HTTP/1.1\r\n\r\n");
        assert!(answer.ends_with(b"\r\n\r\nxxx"));
    });
}

/// The statuses of many requests on one connection.
fn statuses(errors: f64, seed: u64) -> (Vec<u16>, Served) {
    let mut statuses = Vec::new();
    let served = with_faults(Faults { errors, seed, ..Faults::default() }, |address| {
        let mut stream = connect(address);
        stream.write_all("GET / HTTP/1.1\r\n\r\n".repeat(200).as_bytes()).unwrap();
        let all = responses(&mut stream, 200);
        assert!(all.iter().all(|response| response.keep_alive));
        statuses.extend(all.iter().map(|response| response.status));
    });
    (statuses, served)
}

#[test]
fn errors_are_the_same_for_the_same_seed() {
    let (first, served) = statuses(0.3, 1);
    let errors = first.iter().filter(|status| **status == 503).count() as u64;
    assert!((20..=100).contains(&errors), "{errors}");
    assert_eq!((served.answered, served.refused, served.injected.errors), (200 - errors, errors, errors));
    assert_eq!(statuses(0.3, 1).0, first);
    assert_ne!(statuses(0.3, 2).0, first);
    assert_eq!(statuses(1.0, 1).0, [503; 200]);
}

#[test]
fn a_cut_is_half_an_answer_and_an_end() {
    let request = "GET /1000 HTTP/1.1\r\n\r\n";
    let mut whole = 0;
    with_faults(fixed(Duration::ZERO), |address| {
        whole = asked(address, &request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")).0.len();
    });
    // `close` and `keep-alive` differ in length by five.
    let half = (whole + 5) / 2;
    let served = with_faults(Faults { cuts: 1.0, ..fixed(10 * MS) }, |address| {
        for _ in 0..5 {
            let (answer, end) = asked(address, request);
            assert_eq!((answer.len(), end.unwrap()), (half, half));
        }
    });
    assert_eq!((served.connections, served.injected.cuts), (5, 5));
    let served = with_faults(Faults { resets: 1.0, ..Faults::default() }, |address| {
        let (_, end) = asked(address, request);
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    });
    assert_eq!((served.injected.resets, served.injected.cuts), (1, 0));
}

#[test]
fn an_answer_may_trickle() {
    let trickle = Some(Trickle { bytes: NonZeroU32::new(50).unwrap(), every: 10 * MS });
    let faults = Faults { trickle, ..Faults::default() };
    let certificate = Certificate::self_signed().unwrap();
    let config = ResponderConfig {
        listen: vec!["127.0.0.1:0".parse().unwrap(), "https:127.0.0.1:0".parse().unwrap()],
        certificate: Some(certificate.clone()),
        faults,
        ..ResponderConfig::default()
    };
    with_server(&config, |server| {
        let mut stream = connect(server.addresses()[0]);
        for _ in 0..2 {
            let started = Instant::now();
            write!(stream, "GET /400 HTTP/1.1\r\n\r\n").unwrap();
            assert_eq!(responses(&mut stream, 1), [ok(400)]);
            // 650 bytes make 13 pieces, and only the first is sent without a wait.
            assert!(started.elapsed() >= 120 * MS);
        }
    });
    let listen = vec![config.listen[1].clone()];
    with_server(&ResponderConfig { listen, ..config }, |server| {
        let started = Instant::now();
        let mut stream = tls(&certificate, server);
        write!(stream, "GET /400 HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!(responses(&mut stream, 1), [ok(400)]);
        assert!(started.elapsed() >= 120 * MS);
    });
}

#[test]
fn nothing_is_answered_in_a_freeze() {
    let freeze = Freeze { length: 300 * MS, period: 400 * MS };
    let cpus = linux::cpu::allowed().unwrap();
    let faults = Faults { freeze: Some(freeze), ..Faults::default() };
    let earliest = Instant::now();
    let served = with_server(&ResponderConfig { faults, cpus, ..ResponderConfig::default() }, |server| {
        let mut stream = connect(server.addresses()[0]);
        let mut latest = None;
        // Long enough for two freezes.
        while earliest.elapsed() < 1200 * MS {
            let sent = Instant::now();
            write!(stream, "GET /1 HTTP/1.1\r\n\r\n").unwrap();
            assert_eq!(responses(&mut stream, 1), [ok(1)]);
            let received = Instant::now();
            // The responder started between these two instants.
            let latest = *latest.get_or_insert(received);
            for begins in [400 * MS, 800 * MS] {
                let inside = sent >= latest + begins && received < earliest + begins + freeze.length;
                assert!(!inside, "{:?} to {:?}", sent - earliest, received - earliest);
            }
        }
    });
    assert!(served.injected.freezes >= 1, "{served:?}");
}

#[test]
fn answers_without_a_status_are_no_errors() {
    let raw = Raw { request_bytes: 4, response_bytes: 9 };
    let listen = ["127.0.0.1:0", "tcp:127.0.0.1:0", "udp:127.0.0.1:0"];
    let config = ResponderConfig {
        listen: listen.iter().map(|text| text.parse().unwrap()).collect(),
        raw,
        faults: Faults { errors: 1.0, ..Faults::default() },
        ..ResponderConfig::default()
    };
    let served = with_server(&config, |server| {
        let mut stream = connect(server.addresses()[1]);
        stream.write_all(b"abcdefgh").unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.send_to(b"abcd", server.addresses()[2]).unwrap();
        assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 9);
    });
    assert_eq!((served.answered, served.refused, served.injected), (3, 0, Injected::default()));
}

#[test]
fn raw_protocols_have_faults_too() {
    let raw = Raw { request_bytes: 4, response_bytes: 9 };
    let config = |listen: &str, faults| ResponderConfig {
        listen: vec![listen.parse().unwrap()],
        raw,
        faults,
        ..ResponderConfig::default()
    };
    let cut = |delay| Faults { cuts: 1.0, ..fixed(delay) };
    let served = with_server(&config("tcp:127.0.0.1:0", cut(20 * MS)), |server| {
        let started = Instant::now();
        assert_eq!(asked(server.addresses()[0], "abcd").0.len(), 4);
        assert!(started.elapsed() >= 20 * MS);
    });
    assert_eq!(served.injected, Injected { delays: 1, cuts: 1, ..Injected::default() });
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // Datagrams do not wait for each other: an answer that never comes does not delay the next.
    let served = with_server(&config("udp:127.0.0.1:0", now_or_never()), |server| {
        for number in 0..100_u8 {
            socket.send_to(&[number], server.addresses()[0]).unwrap();
        }
        // Six standard deviations below half of them.
        for _ in 0..20 {
            assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 9);
        }
    });
    assert!(served.answered < 100, "{served:?}");
    let started = Instant::now();
    with_server(&config("udp:127.0.0.1:0", fixed(30 * MS)), |server| {
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        own.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        own.send_to(b"ab", server.addresses()[0]).unwrap();
        let mut answer = [0; 64];
        assert_eq!(own.recv(&mut answer).unwrap(), 9);
        assert!(answer.starts_with(b"ab") && started.elapsed() >= 30 * MS);
    });
    let served = with_server(&config("udp:127.0.0.1:0", cut(Duration::ZERO)), |server| {
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        own.set_read_timeout(Some(200 * MS)).unwrap();
        own.send_to(b"ab", server.addresses()[0]).unwrap();
        assert_eq!(own.recv(&mut [0; 64]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    });
    assert_eq!((served.answered, served.injected.cuts), (0, 1));
}
