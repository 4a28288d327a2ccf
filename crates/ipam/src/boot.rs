//! This run of the kernel: its id, how long it lasts, and when it began.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// The file with the random id of this run of the kernel.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// A file may be this much older than the boot and still count as written after it: the two clocks are not read at the
/// same instant, and the one on the wall is corrected a little all the time.
const BOOT_MARGIN: Duration = Duration::from_secs(10);

/// Where a store learns which run of the kernel this is, and what time it is.
#[derive(Debug, Clone)]
pub struct Boot {
    id_path: PathBuf,
    fixed: Option<Moment>,
}

/// A moment by two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The time since the machine booted (`CLOCK_BOOTTIME`), with the time that it was suspended. No one can set it.
    pub since_boot: Duration,
    /// The clock on the wall, from which files have their times. It jumps when it is set.
    pub wall: SystemTime,
}

impl Boot {
    /// What the kernel says.
    pub fn of_this_machine() -> Boot {
        Boot { id_path: BOOT_ID.into(), fixed: None }
    }

    /// Another boot, in which time stands still: for tests.
    pub fn fixed(id_path: impl Into<PathBuf>, moment: Moment) -> Boot {
        Boot { id_path: id_path.into(), fixed: Some(moment) }
    }

    /// The id of this boot; `None` if it cannot be read, as where `/proc` is not mounted.
    pub(crate) fn id(&self) -> Option<String> {
        Some(fs::read_to_string(&self.id_path).ok()?.trim().to_owned())
    }

    pub(crate) fn now(&self) -> Moment {
        self.fixed.unwrap_or_else(|| {
            let time = clock_gettime(ClockId::Boottime);
            let since_boot = Duration::try_from(time).expect("the time since boot is not negative");
            Moment { since_boot, wall: SystemTime::now() }
        })
    }
}

impl Moment {
    /// Whether something was written before the machine booted. When it booted is computed by the clock on the wall as
    /// it is set now.
    pub(crate) fn is_of_earlier_boot(&self, written: SystemTime) -> bool {
        // Before 1970 nothing was written.
        let boot = self.wall.checked_sub(self.since_boot + BOOT_MARGIN);
        boot.is_some_and(|boot| written < boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_an_id_and_booted_before_now() {
        let boot = Boot::of_this_machine();
        assert_eq!(boot.id().map(|id| id.len()), Some(36));
        let now = boot.now();
        assert!(!now.since_boot.is_zero() && !now.is_of_earlier_boot(now.wall), "{now:?}");
        assert_eq!(Boot::fixed("/nowhere/boot_id", now).id(), None);
    }

    #[test]
    fn what_is_older_than_the_boot_by_more_than_the_margin_is_of_an_earlier_one() {
        let second = Duration::from_secs(1);
        let boot = SystemTime::UNIX_EPOCH + 1000 * second;
        let now = Moment { since_boot: 60 * second, wall: boot + 60 * second };
        assert!(now.is_of_earlier_boot(boot - 11 * second));
        assert!(!now.is_of_earlier_boot(boot - 9 * second));
        let clockless = Moment { since_boot: 60 * second, wall: SystemTime::UNIX_EPOCH };
        assert!(!clockless.is_of_earlier_boot(SystemTime::UNIX_EPOCH));
    }
}
