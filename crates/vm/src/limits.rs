//! What a guest may use, and what its clocks count.

use std::time::Duration;

use crate::nic::{Join, Nic};

/// What executes a guest's instructions in real time. Instructions are always counted by the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// On the processor itself, by KVM.
    Kvm,
    /// QEMU's software emulation, about ten times slower. Durations measured in such a guest mean little.
    Emulation,
}

/// What a guest may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Wall time from start to power off.
    pub time: Duration,
    /// Wall time without a word on stdout or stderr, after which the guest is taken for hung.
    pub silence: Duration,
    /// Memory, in MiB; files that the guest writes can take at most three quarters of it.
    pub memory_mib: u32,
    /// How many virtual CPUs, and what their clock counts.
    pub timing: Timing,
    /// Bytes on stdout and stderr together, and of the files in `/out`.
    pub output_bytes: u64,
    /// Its network cards, in the order in which it finds them.
    pub nics: Vec<Nic>,
    /// What joins them: a switch, wires of two each, or bridges of the caller's.
    pub join: Join,
}

/// What the guest's clocks count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// The guest's clock follows the host's.
    RealTime {
        /// The number of virtual CPUs.
        cpus: u32,
    },
    /// The guest's clock counts instructions: it has one virtual CPU, and each instruction takes one nanosecond,
    /// whatever load the host has. Time that the guest would sleep is skipped. So a time span is a count of
    /// instructions, plus sleep. It repeats in each run, except for the host's influence on operations that the guest
    /// waits for (mostly files). Caches, locks and waiting processors cost no time here. A second of it takes three or
    /// four seconds of the host's.
    ///
    /// Source: QEMU, docs/devel/tcg-icount.rst.
    Counted,
}

impl Default for Limits {
    /// Five minutes, 2 GiB, two CPUs, 64 MiB of output, no network cards.
    fn default() -> Self {
        Self {
            time: Duration::from_secs(300),
            silence: Duration::MAX,
            memory_mib: 2048,
            timing: Timing::RealTime { cpus: 2 },
            output_bytes: 64 << 20,
            nics: Vec::new(),
            join: Join::Switch,
        }
    }
}
