//! Compares the generator with others, and with the minimal generator, on this machine.
//!
//! `cargo bench -p load`; three to five minutes. One client CPU, one server CPU, loopback, 50 connections.
//! The generators take turns of a second each, because the machine drifts more slowly than that. The results
//! are the ratios within a round, and their median. Where the kernel permits it, all of them and the servers
//! run under `SCHED_FIFO`; otherwise the ratios would reflect the work of other programs. The benchmark
//! asserts no figures: they are for readers, and differ by machine and hour.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]

mod constant;
mod cpu_pair;
mod figures;
mod floor;
mod freeze;
mod memory;
mod nginx;
mod peers;
mod pipeline;
mod saturation;

use std::error::Error;
use std::time::Duration;

use cpu_pair::CpuPair;

const CONNECTIONS: usize = 50;
const ROUNDS: usize = 7;
const SLICE: Duration = Duration::from_secs(1);

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(address) = memory::role(&arguments) {
        return memory::print_peak_memory(&address);
    }
    // Cargo runs this program with the tests too, and then without this argument.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let Some(cpus) = CpuPair::find()? else {
        println!("skipped: client and server need a CPU each, and this machine has one");
        return Ok(());
    };
    cpus.with_responder(|address| {
        saturation::compare(&cpus, address)?;
        pipeline::compare(&cpus, address)
    })?;
    nginx::with_nginx(&cpus, |address| {
        constant::compare(&cpus, address)?;
        nginx::compare(&cpus, address)
    })?;
    freeze::compare()?;
    cpus.with_responder(|address| memory::compare(&cpus, address))
}
