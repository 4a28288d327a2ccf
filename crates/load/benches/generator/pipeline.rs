//! Saturation with several requests open on each connection.

use std::net::SocketAddr;

use crate::cpu_pair::CpuPair;
use crate::saturation::{Contender, ours};
use crate::{CONNECTIONS, Failure, ROUNDS, SLICE, floor};

const DEPTH: usize = 16;

pub(crate) fn compare(cpus: &CpuPair, address: SocketAddr) -> Result<(), Failure> {
    println!("\n{CONNECTIONS} connections, {DEPTH} requests open on each, our responder, {ROUNDS} rounds");
    let mut floor = Contender::new("bare epoll loop");
    let mut own = Contender::new("hostgap load");
    for _ in 0..ROUNDS {
        floor.push(cpus.on_client(|| floor::saturate(address, CONNECTIONS, DEPTH, SLICE))?);
        own.push(ours(cpus, address, DEPTH)?);
    }
    println!("  requests/s");
    floor.rate.print("", &own.rate);
    own.rate.print("", &own.rate);
    println!("  client CPU for a million requests");
    floor.cpu.print("s", &own.cpu);
    own.cpu.print("s", &own.cpu);
    Ok(())
}
