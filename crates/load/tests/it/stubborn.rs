//! Servers that answer in pieces, hang up, send garbage or do not answer, and what is counted of each.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use load::response::Malformed;
use load::{Address, Client, ConnectionError, Expect, LoadError, Pool, Run, Target, WhenBusy};
use rustix::net::sockopt;

use crate::servers::{OK, at, client, run, serve, target};

#[test]
fn an_answer_byte_by_byte_is_an_answer() {
    let address = serve(|request| OK.chunks(1).all(|byte| request.answer(byte)));
    let outcome = run(&mut [client(address, 4)], &at(100.0, 500));
    assert_eq!((outcome.answered, outcome.faults.count()), (50, 0));
}

#[test]
fn a_chunked_answer_is_an_answer() {
    let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\n\r\n";
    let address = serve(move |request| request.answer(&answer[..50]) && request.answer(&answer[50..]));
    let outcome = run(&mut [client(address, 4)], &at(500.0, 200));
    assert_eq!((outcome.answered, outcome.faults.count()), (100, 0));
}

#[test]
fn a_body_larger_than_any_buffer_is_an_answer() {
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_vec();
    answer.resize(answer.len() + 1_000_000, b'\n');
    let address = serve(move |request| request.answer(&answer));
    let target = Target::get(address, "test", "/", Expect { status: 200, body_bytes: Some(1_000_000) });
    let client = Client::connect(&target, 2, Duration::from_secs(5)).unwrap();
    let outcome = run(&mut [client], &at(50.0, 200));
    assert_eq!((outcome.answered, outcome.faults.count()), (10, 0));
}

#[test]
fn a_connection_that_closes_after_each_answer_is_made_anew() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    let address = serve(move |request| request.answer_and_close(answer));
    let mut clients = [client(address, 4)];
    let outcome = run(&mut clients, &at(200.0, 500));
    assert_eq!((outcome.answered, outcome.faults.count()), (100, 0));
    assert!(outcome.reconnects >= 96, "{}", outcome.reconnects);
    // The next run reopens what the last answers closed.
    let outcome = run(&mut clients, &at(200.0, 100));
    assert_eq!((outcome.answered, outcome.faults.count()), (20, 0));
}

#[test]
fn the_end_of_the_connection_can_end_an_answer() {
    let address = serve(|request| request.answer_and_close(b"HTTP/1.1 200 OK\r\n\r\nhello"));
    let outcome = run(&mut [client(address, 4)], &at(200.0, 200));
    assert_eq!((outcome.answered, outcome.faults.count()), (40, 0));
}

#[test]
fn a_reset_is_counted_and_its_request_is_missed() {
    let address = serve(|request| {
        if request.on_connection < 2 {
            return request.answer(OK);
        }
        sockopt::set_socket_linger(request.stream, Some(Duration::ZERO)).unwrap();
        false
    });
    let outcome = run(&mut [client(address, 4)], &at(500.0, 500));
    assert!(outcome.faults.count() >= 4);
    assert_eq!(outcome.missed.count(), outcome.faults.count());
    assert_eq!(outcome.first_fault.unwrap().fault, ConnectionError::System(104));
    assert!(outcome.answered >= 8 && outcome.reconnects >= 4);
}

#[test]
fn a_server_that_hangs_up_without_an_answer_is_counted() {
    let address = serve(|request| request.answer_and_close(b"HTTP/1.1 200 OK\r\nContent-Le"));
    let outcome = run(&mut [client(address, 2)], &at(100.0, 200));
    assert_eq!((outcome.missed.count(), outcome.faults.count()), (20, 20));
    assert_eq!(outcome.first_fault.unwrap().fault, ConnectionError::Malformed(Malformed::Truncated));

    let address = serve(|_| false);
    let outcome = run(&mut [client(address, 2)], &at(100.0, 200));
    assert_eq!((outcome.missed.count(), outcome.faults.count()), (20, 20));
    assert_eq!(outcome.first_fault.unwrap().fault, ConnectionError::Closed);
}

#[test]
fn garbage_is_a_broken_connection() {
    let address = serve(|request| request.answer(b"220 mail.example ESMTP\r\n"));
    let outcome = run(&mut [client(address, 2)], &at(100.0, 200));
    assert_eq!((outcome.answered, outcome.missed.count()), (0, 20));
    assert_eq!(outcome.first_fault.unwrap().fault, ConnectionError::Malformed(Malformed::StatusLine));
}

#[test]
fn two_answers_to_one_request_are_a_broken_connection() {
    let address = serve(|request| request.answer(&OK.repeat(2)));
    let outcome = run(&mut [client(address, 2)], &at(100.0, 200));
    assert!(outcome.answered >= 2);
    assert!(outcome.faults.count() >= 2);
    assert_eq!(outcome.first_fault.unwrap().fault, ConnectionError::Unasked);
}

#[test]
fn no_answer_is_missed_with_its_age() {
    let address = serve(|_| true);
    let drain = Duration::from_millis(300);
    let outcome = run(&mut [client(address, 3)], &Run { drain, ..at(100.0, 200) });
    // Three are in flight, and the others never found a connection. The first was intended 500 ms before the
    // end, the last 310 ms.
    assert_eq!((outcome.sent, outcome.answered, outcome.missed.count()), (3, 0, 20));
    assert_eq!((outcome.missed.unanswered, outcome.missed.stuck, outcome.missed.unsent), (3, 3, 17));
    assert!(outcome.missed.ages.max() >= 499_000_000);
    assert!(outcome.missed.ages.min() >= 309_000_000);
    assert_eq!(outcome.faults.count(), 0);
}

#[test]
fn other_answers_than_expected_are_counted_apart() {
    let address = serve(|request| {
        request.answer(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops")
    });
    let outcome = run(&mut [client(address, 2)], &at(100.0, 200));
    assert_eq!((outcome.answered, outcome.unexpected.status, outcome.missed.count()), (0, 20, 0));
    assert_eq!(outcome.unexpected.first, Some((500, 4)));

    let address = serve(|request| match request.number % 2 {
        0 => request.answer(OK),
        _ => request.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!"),
    });
    let outcome = run(&mut [client(address, 2)], &at(100.0, 200));
    assert_eq!((outcome.answered, outcome.unexpected.length), (10, 10));
}

#[test]
fn a_late_answer_does_not_leak_into_the_next_run() {
    let (over, is_over) = mpsc::channel();
    let (read, is_read) = mpsc::channel();
    let (is_over, read) = (Mutex::new(is_over), Mutex::new(read));
    let address = serve(move |request| {
        if request.number > 0 {
            return request.answer(OK);
        }
        read.lock().unwrap().send(()).unwrap();
        is_over.lock().unwrap().recv().unwrap();
        request.answer(b"HTTP/1.1 503 Late\r\nContent-Length: 0\r\n\r\n")
    });
    let mut clients = [client(address, 1)];
    let outcome = run(&mut clients, &Run { drain: Duration::from_millis(50), ..at(100.0, 10) });
    assert_eq!((outcome.sent, outcome.missed.count()), (1, 1));
    // A server that has slept until now would take a request of the next run for the first.
    is_read.recv().unwrap();
    over.send(()).unwrap();
    let outcome = run(&mut clients, &at(100.0, 500));
    assert_eq!((outcome.answered, outcome.unexpected.count(), outcome.faults.count()), (50, 0, 0));
}

#[test]
fn a_server_that_goes_away_and_comes_back_is_found_again() {
    let open: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(true)));
    let address = serve(move |request| {
        if request.number == 20 {
            // For a while the server ends every connection at once.
            open.store(false, Ordering::Relaxed);
            thread::spawn(|| {
                thread::sleep(Duration::from_millis(200));
                open.store(true, Ordering::Relaxed);
            });
        }
        open.load(Ordering::Relaxed) && request.answer(OK)
    });
    let outcome = run(&mut [client(address, 2)], &at(200.0, 1000));
    assert!(outcome.faults.count() >= 2);
    assert!(outcome.answered >= 100, "{}", outcome.answered);
    assert_eq!(outcome.missed.count() + outcome.answered, 200);
}

/// A Unix socket whose queue holds one connection, and a target for it.
fn narrow(dir: &Path) -> (OwnedFd, Target) {
    let path = dir.join("socket");
    let kind = rustix::net::SocketType::STREAM;
    let listener = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).unwrap();
    rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let target = target(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    (listener, Target { address: Address::Unix(path), ..target })
}

#[test]
fn a_unix_socket_with_a_full_queue_is_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let (listener, target) = narrow(dir.path());
    let error = Client::connect(&target, 8, Duration::from_millis(100)).unwrap_err();
    let LoadError::ConnectTimeout { connected, wanted, .. } = error else { panic!("{error}") };
    assert_eq!((connected, wanted), (1, 8));
    // Once the connections are accepted, all of them can be made, and remade after a close.
    let listener = UnixListener::from(listener);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
                if stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
                    stream.write_all(answer).unwrap();
                }
            });
        }
    });
    let mut clients = [Client::connect(&target, 8, Duration::from_secs(20)).unwrap()];
    let outcome = run(&mut clients, &at(500.0, 200));
    assert_eq!((outcome.answered, outcome.faults.count()), (100, 0), "{outcome:?}");
}

#[test]
fn a_request_waits_for_its_place_in_a_full_queue() {
    let dir = tempfile::tempdir().unwrap();
    let (listener, target) = narrow(dir.path());
    let listener = UnixListener::from(listener);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // The queue holds one connection, so those that are begun meanwhile find it full.
            thread::sleep(Duration::from_millis(10));
            if stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
                // The request may have been given up.
                _ = stream.write_all(OK);
            }
        }
    });
    let pool = Pool { fresh: true, ..Pool::of(8, Duration::from_secs(20)) };
    let mut clients = [Client::open(&target, pool).unwrap()];
    let outcome = run(&mut clients, &at(200.0, 250));
    assert_eq!((outcome.answered, outcome.missed.count(), outcome.faults.count()), (50, 0, 0), "{outcome:?}");
    // A request that waits longer than it may is missed, with all of its wait.
    let timeout = Some(Duration::from_millis(100));
    let outcome = run(&mut clients, &Run { timeout, ..at(200.0, 500) });
    assert_eq!(outcome.missed.lost, 0, "{outcome:?}");
    assert!(outcome.missed.expired == 0 || outcome.missed.ages.min() >= 99_000_000, "{outcome:?}");
}

/// Such a request has a connection promised to it.
#[test]
fn a_connection_that_is_added_waits_for_its_place_in_a_full_queue() {
    let dir = tempfile::tempdir().unwrap();
    let (listener, target) = narrow(dir.path());
    let listener = UnixListener::from(listener);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::sleep(Duration::from_millis(5));
            thread::spawn(move || {
                while stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
                    thread::sleep(Duration::from_millis(50));
                    if stream.write_all(OK).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let pool = Pool { connections_max: 8, ..Pool::of(1, Duration::from_secs(20)) };
    let mut clients = [Client::open(&target, pool).unwrap()];
    let outcome = run(&mut clients, &Run { when_busy: WhenBusy::Grow, ..at(500.0, 100) });
    assert_eq!((outcome.answered, outcome.faults.count()), (50, 0), "{outcome:?}");
}

#[test]
fn a_connection_that_ends_while_others_are_made_is_made_anew() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (dropped, are_dropped) = mpsc::channel();
    thread::spawn(move || {
        drop([(); 3].map(|()| listener.accept().unwrap()));
        // From now on the kernel accepts one connection by itself. It tries the others again a second later.
        rustix::net::listen(&listener, 0).unwrap();
        dropped.send(()).unwrap();
        thread::sleep(Duration::from_millis(200));
        drop(listener.accept().unwrap());
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                while stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
                    stream.write_all(OK).unwrap();
                }
            });
        }
    });
    let mut clients = [Client::connect(&target(address), 3, Duration::from_secs(20)).unwrap()];
    are_dropped.recv().unwrap();
    let outcome = run(&mut clients, &at(100.0, 200));
    assert_eq!((outcome.answered, outcome.faults.count()), (20, 0), "{outcome:?}");
}

#[test]
fn a_refused_connection_is_an_error() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = Client::connect(&target(address), 2, Duration::from_secs(1)).unwrap_err();
    let LoadError::Connect { why, .. } = error else { panic!("{error}") };
    assert_eq!(why.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_connection_that_does_not_come_about_is_an_error() {
    let listener = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        Some(rustix::net::ipproto::TCP),
    )
    .unwrap();
    rustix::net::bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    // With a backlog of zero the kernel accepts one connection and makes the others wait.
    rustix::net::listen(&listener, 0).unwrap();
    let address = SocketAddr::try_from(rustix::net::getsockname(&listener).unwrap()).unwrap();
    let error = Client::connect(&target(address), 8, Duration::from_millis(300)).unwrap_err();
    let LoadError::ConnectTimeout { connected, wanted, .. } = error else { panic!("{error}") };
    assert_eq!(wanted, 8);
    assert!((1..8).contains(&connected), "{connected}");
}
