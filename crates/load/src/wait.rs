//! How a thread waits for the next instant.
//!
//! Measured on a virtual machine of two CPUs, 10 000 instants a second: a timed `epoll_pwait2` is 54.9 µs late with the
//! default timer slack and 4.7 µs late with a slack of 1 ns, at 5 % of a CPU. Spinning on the clock is 0.05 µs late,
//! and takes a whole CPU. Sleeping until 15 µs before the instant and spinning through the rest is 0.07 µs late at
//! 15 % of a CPU, which is why that is the default. Millisecond timers, which most generators use, are 1000 µs late
//! and turn a constant rate into a burst each millisecond.

use linux::cpu::Scheduling;

use crate::LoadError;

/// How a thread waits for the next instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// Sleeps until shortly before it and spins through the rest. Where spinning could not help it sleeps: on a
    /// machine of one CPU, where it would keep the server from answering; and under `SCHED_FIFO` at a rate at which
    /// it would never sleep, because the kernel stops a real-time thread that does not for 50 ms in each second.
    #[default]
    Hybrid,
    /// Sleeps: some microseconds late, and the least CPU.
    Sleep,
    /// Never sleeps. Only on a CPU that nobody else needs; refused under `SCHED_FIFO`.
    Spin,
}

/// The last part of a wait, which hybrid waiting spins through: three times what a sleep is late.
pub(crate) const SPIN_NS: u64 = 15_000;

impl Wait {
    /// What can be done under the circumstances.
    ///
    /// # Errors
    /// If spinning was asked for by name and would do harm.
    pub(crate) fn fit(self, place: Place) -> Result<Wait, LoadError> {
        let realtime = matches!(place.scheduling, Scheduling::Fifo(_));
        match self {
            Wait::Sleep => Ok(Wait::Sleep),
            Wait::Spin if realtime => Err(LoadError::Spin(
                "the kernel stops a real-time thread that never sleeps for 50 ms in each second",
            )),
            Wait::Spin if place.cpus_online < 2 => {
                Err(LoadError::Spin("this machine has one CPU, and the server needs it"))
            }
            Wait::Spin => Ok(Wait::Spin),
            Wait::Hybrid if place.cpus_online < 2 => Ok(Wait::Sleep),
            Wait::Hybrid if realtime && place.period_ns < 2 * SPIN_NS => Ok(Wait::Sleep),
            Wait::Hybrid => Ok(Wait::Hybrid),
        }
    }

    /// For how long to sleep, if something is to be sent at an instant and something else may have to be done at
    /// another. Zero: do not sleep.
    pub(crate) fn timeout_ns(self, now_ns: u64, send_ns: Option<u64>, other_ns: u64) -> u64 {
        let margin_ns = match self {
            Wait::Spin => return 0,
            Wait::Hybrid => SPIN_NS,
            Wait::Sleep => 0,
        };
        let send_ns = send_ns.map_or(u64::MAX, |send_ns| send_ns.saturating_sub(margin_ns));
        send_ns.min(other_ns).saturating_sub(now_ns)
    }
}

/// Where a thread waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) scheduling: Scheduling,
    pub(crate) cpus_online: usize,
    /// Between two requests of one thread; `u64::MAX` when there is no schedule.
    pub(crate) period_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: Place = Place { scheduling: Scheduling::Normal, cpus_online: 2, period_ns: 10_000 };
    const REALTIME: Place = Place { scheduling: Scheduling::Fifo(40), cpus_online: 2, period_ns: 50_000 };

    #[test]
    fn nobody_spins_where_it_stops_the_load() {
        assert_eq!(Wait::Hybrid.fit(NORMAL).unwrap(), Wait::Hybrid);
        assert_eq!(Wait::Hybrid.fit(Place { cpus_online: 1, ..NORMAL }).unwrap(), Wait::Sleep);
        assert_eq!(Wait::Hybrid.fit(REALTIME).unwrap(), Wait::Hybrid);
        assert_eq!(Wait::Hybrid.fit(Place { period_ns: 20_000, ..REALTIME }).unwrap(), Wait::Sleep);
        assert_eq!(Wait::Spin.fit(NORMAL).unwrap(), Wait::Spin);
        assert!(Wait::Spin.fit(REALTIME).is_err());
        assert!(Wait::Spin.fit(Place { cpus_online: 1, ..NORMAL }).is_err());
    }

    #[test]
    fn a_wait_ends_before_what_comes_first() {
        assert_eq!(Wait::Sleep.timeout_ns(1000, Some(51_000), u64::MAX), 50_000);
        assert_eq!(Wait::Hybrid.timeout_ns(1000, Some(51_000), u64::MAX), 35_000);
        assert_eq!(Wait::Hybrid.timeout_ns(40_000, Some(51_000), u64::MAX), 0);
        assert_eq!(Wait::Hybrid.timeout_ns(1000, Some(51_000), 3000), 2000);
        assert_eq!(Wait::Hybrid.timeout_ns(1000, None, 9000), 8000);
        assert_eq!(Wait::Spin.timeout_ns(1000, None, u64::MAX), 0);
    }
}
