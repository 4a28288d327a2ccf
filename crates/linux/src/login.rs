//! Logins, as the kernel's audit subsystem counts them. Each login through PAM (`pam_loginuid`: ssh, a console, a
//! display manager) gets the next number. All processes of that login inherit it, also under `sudo`
//! (`audit_set_loginuid` in kernel/auditsc.c; `/proc/PID/sessionid`).

use std::fs;

/// A login. The later is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Login(pub u32);

/// Of a process that came of no login (`AUDIT_SID_UNSET`).
const UNSET: u32 = u32::MAX;

impl Login {
    /// The login that this process belongs to. `None` for a service or a process in a container, which belong to no
    /// login, and on a kernel that does not count logins (`CONFIG_AUDIT`).
    pub fn own() -> Option<Login> {
        Login::of("self")
    }

    /// The newest one of which there is a process.
    pub fn newest() -> Option<Login> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        // Other entries of `/proc` have no such file, and a process may end in the meantime.
        entries.filter_map(|entry| Login::of(entry.file_name().to_str()?)).max()
    }

    fn of(process: &str) -> Option<Login> {
        let number = fs::read_to_string(format!("/proc/{process}/sessionid")).ok()?.trim().parse().ok()?;
        (number != UNSET).then_some(Login(number))
    }
}
