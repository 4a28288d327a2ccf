//! Asks a server for 100 bytes at a constant rate for a second, and prints the 99th percentile of the response times.
//!
//! ```sh
//! cargo run --release --package load --example constant_rate 127.0.0.1:8080
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use std::net::SocketAddr;
use std::time::Duration;

use load::{Client, Expect, Run, Schedule, Target};

/// Enough for the rate, and a server that listens accepts them at once.
const CONNECTIONS: usize = 32;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("the address of a server is missing: 127.0.0.1:8080")?;
    let address: SocketAddr = address.parse()?;
    let expect = Expect { status: 200, body_bytes: Some(100) };
    let target = Target::get(address, &address.to_string(), "/100", expect);
    let client = Client::connect(&target, CONNECTIONS, Duration::from_secs(2))?;
    let run = Run::new(Schedule::Constant { rate_per_s: 20_000.0 }, Duration::from_secs(1));
    let outcome = load::run(&mut [client], &run)?;
    println!("p99 {} ns", outcome.response.value_at_quantile(0.99));
    Ok(())
}
