//! Logins, as the kernel's audit counts them: each that goes through PAM (`pam_loginuid`: ssh, a console, a display
//! manager) gets the next number, and every process that comes of it has that, under `sudo` too
//! (`audit_set_loginuid` in kernel/auditsc.c; `/proc/PID/sessionid`).

use std::fs;

/// A login. The later is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Login(pub u32);

/// Of a process that came of no login (`AUDIT_SID_UNSET`).
const UNSET: u32 = u32::MAX;

impl Login {
    /// The one that this process came of. `None`: of none, as a service or what runs in a container, or the kernel does
    /// not count them (`CONFIG_AUDIT`).
    pub fn own() -> Option<Login> {
        Login::of("self")
    }

    /// The newest one of which there is a process.
    pub fn newest() -> Option<Login> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        // What is no process has no such file, and one that has just ended is not there any more.
        entries.filter_map(|entry| Login::of(entry.file_name().to_str()?)).max()
    }

    fn of(process: &str) -> Option<Login> {
        let number = fs::read_to_string(format!("/proc/{process}/sessionid")).ok()?.trim().parse().ok()?;
        (number != UNSET).then_some(Login(number))
    }
}
