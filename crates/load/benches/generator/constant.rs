//! The median response time at a rate far below saturation, and how well the rate is kept.

use std::net::SocketAddr;

use load::{Run, Schedule, Wait};

use crate::cpu_pair::CpuPair;
use crate::figures::Series;
use crate::floor::{self, Idle};
use crate::{CONNECTIONS, Failure, ROUNDS, SLICE};

const RATE_PER_S: u64 = 36_000;

/// Two baselines: one sleeps until there is work, the other polls without a pause. The latter notices an
/// answer as early as a program can, and takes a whole CPU.
pub(crate) fn compare(cpus: &CpuPair, address: SocketAddr) -> Result<(), Failure> {
    println!("\n{RATE_PER_S}/s, {CONNECTIONS} connections, nginx, {ROUNDS} rounds");
    let mut floors = [
        (Idle::Sleep, Series::new("bare epoll loop, sleeping")),
        (Idle::Poll, Series::new("bare epoll loop, polling")),
    ];
    let mut waits = [
        (Wait::Hybrid, Series::new("hostgap load, hybrid")),
        (Wait::Sleep, Series::new("hostgap load, sleep")),
    ];
    let mut errors = Series::new("hostgap load, hybrid");
    for _ in 0..ROUNDS {
        for (idle, series) in &mut floors {
            let idle = *idle;
            series.push(cpus.on_client(|| floor::constant(address, CONNECTIONS, SLICE, RATE_PER_S, idle))?);
        }
        for (wait, series) in &mut waits {
            let schedule = Schedule::Constant { rate_per_s: RATE_PER_S as f64 };
            let run = Run { wait: *wait, ..Run::new(schedule, SLICE) };
            let outcome = cpus.ours(address, "/100", 1, &run)?;
            series.push(outcome.response.value_at_quantile(0.5) as f64 / 1000.0);
            if *wait == Wait::Hybrid {
                let unsent = outcome.intended - outcome.sent_in_schedule;
                errors.push(unsent as f64 / outcome.intended as f64 * 100.0);
            }
        }
    }
    println!("  p50 of received − intended");
    let [(_, hybrid), _] = &waits;
    floors.iter().for_each(|(_, series)| series.print("µs", hybrid));
    waits.iter().for_each(|(_, series)| series.print("µs", hybrid));
    println!("  requests of the schedule that were not sent in it");
    errors.print_alone("%");
    Ok(())
}
