//! The loop does not allocate: a long run makes as many allocations as a short one.
//!
//! This is a separate binary, because it counts every allocation of the process. It is the crate's only file
//! with `unsafe`.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, but not what they call")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use load::{Client, Expect, Outcome, Run, Schedule, Target};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: all calls go to the system's allocator, which keeps the contract. Counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise about the layout is passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, and so from the system's allocator with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Answers one connection after the other, each `requests_per_connection` times, without an allocation.
fn serve(requests_per_connection: u64, answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            for _ in 0..requests_per_connection {
                // Requests are far smaller than a segment, and arrive one at a time.
                if !stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) || stream.write_all(answer).is_err()
                {
                    break;
                }
            }
        }
    });
    address
}

fn run(client: &mut Client, schedule: Schedule, duration_ms: u64) -> (u64, Outcome) {
    let run = Run { drain: Duration::from_secs(5), ..Run::new(schedule, Duration::from_millis(duration_ms)) };
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let outcome = load::run(std::slice::from_mut(client), &run).unwrap();
    (ALLOCATIONS.load(Ordering::Relaxed) - before, outcome)
}

#[track_caller]
fn check(address: SocketAddr, schedule: Schedule) -> Outcome {
    let expect = Expect { status: 200, body_bytes: Some(5) };
    let target = Target::get(address, "a", "/", expect);
    let mut client = Client::connect(&target, 1, Duration::from_secs(5)).unwrap();
    // The first run may initialise things once.
    run(&mut client, schedule, 10);
    let (short, _) = run(&mut client, schedule, 10);
    let (long, outcome) = run(&mut client, schedule, 500);
    assert!(short > 0, "the start of a run allocates, so the counter does not work");
    assert_eq!(long, short, "{} requests", outcome.sent);
    outcome
}

/// A single test, so that no other test allocates meanwhile.
#[test]
fn a_long_run_allocates_as_often_as_a_short_one() {
    let keep = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let close = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    let outcome = check(serve(u64::MAX, keep), Schedule::Constant { rate_per_s: 2000.0 });
    assert_eq!(outcome.answered, 1000);
    let outcome = check(serve(u64::MAX, keep), Schedule::Saturate);
    assert!(outcome.answered > 100);
    // With connections that are made again, and with some that break.
    let outcome = check(serve(1, close), Schedule::Constant { rate_per_s: 200.0 });
    assert!(outcome.reconnects >= 99);
    let outcome = check(serve(1, b"garbage\r\n"), Schedule::Constant { rate_per_s: 200.0 });
    assert!(outcome.faults.count() >= 10);
}
