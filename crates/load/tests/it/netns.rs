//! A client stays in the namespace in which it was made.

use std::thread;
use std::time::Duration;

use linux::Netns;
use load::{Client, LoadError};

use crate::servers::{at, client, run, serve, target};

#[test]
fn connections_are_made_anew_where_the_first_ones_were_made() {
    let Ok(netns) = Netns::anonymous() else {
        testkit::skip("a network namespace cannot be made");
        return;
    };
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    let (address, mut inside) = netns
        .run(|| {
            let address = serve(move |request| request.answer_and_close(answer));
            (address, client(address, 2))
        })
        .unwrap();
    let outcome = run(std::slice::from_mut(&mut inside), &at(100.0, 300));
    assert_eq!((outcome.answered, outcome.faults.count()), (30, 0));
    assert!(outcome.reconnects >= 28);
    // The next run reopens closed connections in that namespace too, from any thread.
    let outcome = thread::spawn(move || run(&mut [inside], &at(100.0, 100))).join().unwrap();
    assert_eq!((outcome.answered, outcome.faults.count()), (10, 0));
    // The server cannot be reached from outside.
    let outside = Client::connect(&target(address), 1, Duration::from_secs(1));
    assert!(matches!(outside, Err(LoadError::Connect { .. })));
}
