//! The memory of ten thousand connections.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use load::{Client, Expect, Run, Schedule, Target};

use crate::Failure;
use crate::cpu_pair::CpuPair;

const CONNECTIONS: [usize; 3] = [50, 1000, 10_000];

/// The argument that makes this program act as the client only.
const ROLE: &str = "--client-of";

/// Memory is counted per process, so the client runs as a second process of this program.
pub(crate) fn compare(cpus: &CpuPair, address: SocketAddr) -> Result<(), Failure> {
    println!("\nmost memory of a client, resident");
    for connections in CONNECTIONS {
        let output = cpus.on_client(|| {
            let mut client = Command::new(std::env::current_exe()?);
            Ok(client.args([ROLE, &format!("{address}/{connections}")]).output()?)
        })?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match output.status.success() {
            true => println!("  {connections:>6} connections {text:>10}"),
            false => {
                let why = String::from_utf8_lossy(&output.stderr);
                println!("  {connections:>6} connections: {}", why.trim());
            }
        }
    }
    Ok(())
}

/// The value of that argument.
pub(crate) fn role(arguments: &[String]) -> Option<String> {
    let at = arguments.iter().position(|argument| argument == ROLE)?;
    arguments.get(at + 1).cloned()
}

/// Connects, sends a request on each connection, and prints the peak memory of this process.
pub(crate) fn print_peak_memory(what: &str) -> Result<(), Failure> {
    let (address, connections) = what.split_once('/').ok_or("ADDRESS/CONNECTIONS is expected")?;
    let address: SocketAddr = address.parse()?;
    let connections: usize = connections.parse()?;
    let expect = Expect { status: 200, body_bytes: Some(100) };
    let target = Target::get(address, "bench", "/", expect);
    let client = Client::connect(&target, connections, Duration::from_secs(30))?;
    let schedule = Schedule::Constant { rate_per_s: 10_000.0 };
    let outcome = load::run(&mut [client], &Run::new(schedule, Duration::from_secs(2)))?;
    if outcome.answered < connections as u64 {
        return Err(format!("{} of {} requests were answered", outcome.answered, outcome.intended).into());
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the kernel reports no VmHWM")?;
    let kibibytes: f64 = most.trim().trim_end_matches("kB").trim().parse()?;
    println!("{:.1} MB", kibibytes / 1024.0);
    Ok(())
}
