//! Requests per second with every connection always busy, and the CPU time that they cost the client.

use std::net::SocketAddr;

use load::{Run, Schedule, Wait};

use crate::cpu_pair::CpuPair;
use crate::figures::Series;
use crate::peers::Peer;
use crate::{CONNECTIONS, Failure, ROUNDS, SLICE, floor};

/// A contender's result in one slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) per_s: f64,
    /// CPU seconds of the client for a million requests.
    pub(crate) cpu_s: f64,
}

pub(crate) fn compare(cpus: &CpuPair, address: SocketAddr) -> Result<(), Failure> {
    println!("\n{CONNECTIONS} connections, always busy, our responder, one client CPU, {ROUNDS} rounds");
    let mut floor = Contender::new("bare epoll loop");
    let mut ours = Contender::new("hostgap load");
    let mut peers: Vec<(Peer, Contender)> = Vec::new();
    for peer in Peer::ALL {
        match peer.is_installed() {
            true => peers.push((peer, Contender::new(peer.name()))),
            false => println!("  skipped: {} is not installed", peer.name()),
        }
    }
    for _ in 0..ROUNDS {
        floor.push(cpus.on_client(|| floor::saturate(address, CONNECTIONS, 1, SLICE))?);
        ours.push(self::ours(cpus, address, 1)?);
        for (peer, contender) in &mut peers {
            contender.push(cpus.on_client(|| peer.saturate(address, CONNECTIONS, SLICE))?);
        }
    }
    println!("  requests/s");
    floor.rate.print("", &ours.rate);
    ours.rate.print("", &ours.rate);
    peers.iter().for_each(|(_, peer)| peer.rate.print("", &ours.rate));
    println!("  client CPU for a million requests");
    floor.cpu.print("s", &ours.cpu);
    ours.cpu.print("s", &ours.cpu);
    peers.iter().for_each(|(_, peer)| peer.cpu.print("s", &ours.cpu));
    Ok(())
}

/// Runs our own generator for a slice, with `depth` requests open on each connection.
pub(crate) fn ours(cpus: &CpuPair, address: SocketAddr, depth: usize) -> Result<Slice, Failure> {
    let run = Run { wait: Wait::Sleep, ..Run::new(Schedule::Saturate, SLICE) };
    let outcome = cpus.ours(address, "/", depth, &run)?;
    let cpu_ns: u64 = outcome.threads.iter().map(|thread| thread.cpu_ns).sum();
    Ok(Slice { per_s: outcome.answered_per_s(), cpu_s: cpu_ns as f64 / 1e3 / outcome.answered as f64 })
}

/// One of the generators that take turns.
pub(crate) struct Contender {
    pub(crate) rate: Series,
    pub(crate) cpu: Series,
}

impl Contender {
    pub(crate) fn new(name: &'static str) -> Contender {
        Contender { rate: Series::new(name), cpu: Series::new(name) }
    }

    pub(crate) fn push(&mut self, slice: Slice) {
        self.rate.push(slice.per_s);
        self.cpu.push(slice.cpu_s);
    }
}
