//! How long a CPU may take to wake up: a limit that holds for as long as a process has the device open.
//!
//! Source: Documentation/power/pm_qos_interface.rst.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};

use crate::Result;
use crate::error::Attempt;

const DEVICE: &str = "/dev/cpu_dma_latency";
/// What the kernel reports without a limit, in microseconds (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const UNLIMITED_US: i32 = 2_000_000_000;

/// A limit, which ends with this value.
#[derive(Debug)]
pub struct Hold {
    _device: File,
}

/// Limits the wake-up latency of the CPUs to `limit_us` microseconds. The lowest of all programs' limits applies.
pub fn hold(limit_us: u32) -> Result<Hold> {
    let attempted = || format!("limit the latency of CPUs to {limit_us} µs by {DEVICE}");
    let mut device = OpenOptions::new().write(true).open(DEVICE).attempt(attempted)?;
    let limit = i32::try_from(limit_us).unwrap_or(UNLIMITED_US);
    device.write_all(&limit.to_ne_bytes()).attempt(attempted)?;
    Ok(Hold { _device: device })
}

/// The latency limit that a system reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatencyLimit {
    /// The kernel has no such limit.
    Unknown,
    /// No program has set a limit.
    None,
    /// The limit in force, in microseconds.
    Micros(u32),
}

/// The limit that counts now.
pub fn limit() -> Result<LatencyLimit> {
    let attempted = || format!("read {DEVICE}");
    let mut device = match File::open(DEVICE) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(LatencyLimit::Unknown),
        device => device.attempt(attempted)?,
    };
    let mut bytes = [0; 4];
    device.read_exact(&mut bytes).attempt(attempted)?;
    let value = i32::from_ne_bytes(bytes);
    Ok(if value >= UNLIMITED_US { LatencyLimit::None } else { LatencyLimit::Micros(value.unsigned_abs()) })
}
