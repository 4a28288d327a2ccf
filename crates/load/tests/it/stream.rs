//! Streams and downloads on real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use linux::cpu::Scheduling;
use linux::{CpuSet, Netns};
use load::download::{Download, download};
use load::serve::ResponderConfig;
use load::stream::{Carries, Delivered, Flow, Receiver, Sender};
use load::{Ask, Expect, HttpRequest, LoadError, Target, stream};

use crate::responder::with_server;
use crate::servers::serve;

fn flow(carries: Carries) -> Flow {
    Flow {
        carries,
        warmup: Duration::from_millis(20),
        duration: Duration::from_millis(200),
        quiet: Duration::from_millis(200),
        sender_cpus: CpuSet::default(),
        receiver_cpus: CpuSet::default(),
    }
}

/// A stream in a new namespace, and how often it called `edge`.
fn streamed(carries: Carries, flows: usize, any: SocketAddr) -> Option<(Delivered, u32)> {
    let Ok(netns) = Netns::anonymous() else {
        testkit::skip("a network namespace cannot be made");
        return None;
    };
    let timeout = Duration::from_secs(5);
    let (receiver, sender) = netns
        .run(|| match carries {
            Carries::Segments { .. } => {
                let receiver = Receiver::segments(any).unwrap();
                let sender = Sender::segments(receiver.address().unwrap(), flows, timeout).unwrap();
                (receiver, sender)
            }
            Carries::Datagrams { .. } => {
                let receiver = Receiver::datagrams(any, 1).unwrap();
                let sender = Sender::datagrams(receiver.address().unwrap(), flows).unwrap();
                (receiver, sender)
            }
        })
        .unwrap();
    // The threads run outside. A socket stays in the namespace where it was made.
    let mut edges = 0;
    Some((stream::run(sender, receiver, &flow(carries), &mut || edges += 1).unwrap(), edges))
}

#[test]
fn every_byte_of_tcp_arrives() {
    for (any, flows) in [("127.0.0.1:0", 1), ("[::1]:0", 3)] {
        let carries = Carries::Segments { write_bytes: 30_000 };
        let Some((delivered, edges)) = streamed(carries, flows, any.parse().unwrap()) else { return };
        assert_eq!((delivered.total_bytes.0, edges), (delivered.total_bytes.1, 2));
        assert!(delivered.bytes > 0 && delivered.bytes <= delivered.total_bytes.1, "{delivered:?}");
        assert_eq!((delivered.threads.len(), delivered.packets.sent), (flows, 0));
        assert!(delivered.bits_per_s() > 0.0);
    }
}

#[test]
fn datagrams_are_counted_by_what_they_say() {
    let carries = Carries::Datagrams { packet_bytes: 100, rate_per_s: Some(2000.0) };
    for (any, flows) in [("127.0.0.1:0", 1), ("[::1]:0", 4)] {
        let Some((delivered, edges)) = streamed(carries, flows, any.parse().unwrap()) else { return };
        let packets = delivered.packets;
        // 200 ms at 2000 a second. At each edge, one may be counted on the other side.
        assert!((395..=405).contains(&packets.intended), "{packets:?}");
        assert!(packets.sent <= packets.intended, "{packets:?}");
        // Loopback loses none as long as the buffer holds what arrives while the receiver has no CPU time. At
        // this rate it holds a tenth of a second.
        assert!(packets.received > 0 && packets.received <= packets.sent, "{packets:?}");
        assert_eq!((packets.reordered, edges), (0, 2));
        assert_eq!(delivered.bytes, 100 * packets.in_time);
        assert!(delivered.total_bytes.1 <= delivered.total_bytes.0);
    }
}

#[test]
fn senders_that_share_a_cpu_do_not_spin_against_each_other() {
    let Ok(netns) = Netns::anonymous() else { return testkit::skip("a network namespace cannot be made") };
    let one: CpuSet = linux::cpu::allowed().unwrap().iter().take(1).collect();
    // Each instant is nearer than what a sender with a CPU of its own spins for.
    let carries = Carries::Datagrams { packet_bytes: 100, rate_per_s: Some(100_000.0) };
    let (receiver, sender) = netns
        .run(|| {
            let receiver = Receiver::datagrams("127.0.0.1:0".parse().unwrap(), 1).unwrap();
            let sender = Sender::datagrams(receiver.address().unwrap(), 2).unwrap();
            (receiver, sender)
        })
        .unwrap();
    let flow = Flow { sender_cpus: one, ..flow(carries) };
    let delivered = stream::run(sender, receiver, &flow, &mut || ()).unwrap();
    for thread in &delivered.threads {
        assert_eq!(thread.spun_ns, 0, "{thread:?}");
        assert!(thread.in_schedule.wall_ns > 0, "{thread:?}");
    }
}

#[test]
fn as_many_datagrams_go_as_can() {
    let carries = Carries::Datagrams { packet_bytes: 64, rate_per_s: None };
    let Some((delivered, _)) = streamed(carries, 2, "127.0.0.1:0".parse().unwrap()) else { return };
    let packets = delivered.packets;
    assert!(packets.sent > 1000 && packets.received <= packets.sent && packets.intended >= packets.sent);
    assert!(packets.in_time > 0 && packets.gap_max_ns > 0, "{packets:?}");
}

#[test]
fn streams_that_cannot_be_are_errors() {
    let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let shape = |carries, udp: bool| {
        let (receiver, sender) = if udp {
            let receiver = Receiver::datagrams(listen, 1).unwrap();
            let to = receiver.address().unwrap();
            (receiver, Sender::datagrams(to, 1).unwrap())
        } else {
            let receiver = Receiver::segments(listen).unwrap();
            let to = receiver.address().unwrap();
            (receiver, Sender::segments(to, 1, Duration::from_secs(5)).unwrap())
        };
        stream::run(sender, receiver, &flow(carries), &mut || {})
    };
    let datagrams = |packet_bytes| Carries::Datagrams { packet_bytes, rate_per_s: None };
    for (carries, udp) in [
        (datagrams(15), true),
        (datagrams(65_508), true),
        (Carries::Segments { write_bytes: 0 }, false),
        (Carries::Segments { write_bytes: 1 }, true),
        (datagrams(64), false),
    ] {
        assert!(matches!(shape(carries, udp), Err(LoadError::Shape(_))), "{carries:?}");
    }
    let refused = Sender::segments("127.0.0.1:1".parse().unwrap(), 1, Duration::from_secs(1));
    assert!(matches!(refused, Err(LoadError::Connect { .. })));
}

fn object(address: SocketAddr, bytes: u32, closes: bool) -> Target {
    let fields = if closes { vec![("Connection".to_owned(), "close".to_owned())] } else { vec![] };
    let expect = Expect { status: 200, body_bytes: Some(bytes.into()) };
    let ask = Ask::Http(vec![HttpRequest { fields, ..HttpRequest::get("a", &format!("/{bytes}"), expect) }]);
    Target { ask, ..Target::get(address, "a", "/", expect) }
}

fn order(clients: usize, objects: u32, limit: Duration) -> Download {
    Download { clients, objects, limit, threads: vec![], scheduling: Scheduling::Normal }
}

#[test]
fn each_client_fetches_all_its_objects() {
    let here = Netns::current().unwrap();
    for closes in [true, false] {
        let served = with_server(&ResponderConfig::default(), |server| {
            let target = object(server.addresses()[0], 700_000, closes);
            let downloaded = download(&target, &order(3, 4, Duration::from_secs(60)), &here).unwrap();
            assert_eq!((downloaded.objects, downloaded.bytes), (12, 12 * 700_000));
            assert_eq!(downloaded.times.len(), 12);
            assert!(downloaded.times_ns >= downloaded.times.max() && downloaded.bits_per_s() > 0.0);
            // No object takes longer than all of them together.
            assert!(downloaded.times.min() <= downloaded.wall().as_nanos() as u64);
        });
        assert_eq!((served.connections, served.answered), (12, 12));
    }
}

#[test]
fn a_download_that_fails_says_how_far_it_came() {
    let here = Netns::current().unwrap();
    let failed = |address, limit| {
        let error = download(&object(address, 5, true), &order(1, 3, limit), &here).unwrap_err();
        assert!(matches!(error, LoadError::Download { wanted: 3, .. }), "{error}");
        error.to_string()
    };
    let cut = serve(|request| request.answer_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"));
    assert!(failed(cut, Duration::from_secs(20)).ends_with("0 are there: the response is cut off"));
    let refuses = serve(|request| request.answer(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"));
    assert!(failed(refuses, Duration::from_secs(20)).contains("status 404 and 0 bytes"));
    let one = serve(|request| {
        if request.number == 0 {
            return request.answer_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
        std::thread::sleep(Duration::from_secs(60));
        false
    });
    assert!(failed(one, Duration::from_millis(300)).ends_with("1 are there: there was no time left"));
    let closed = "127.0.0.1:1".parse().unwrap();
    assert!(failed(closed, Duration::from_secs(20)).contains("refused"));
}
