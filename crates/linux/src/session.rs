//! A process that outlives who started it: the leader of a session of its own.

use std::io::Write;

use crate::Result;
use crate::error::Attempt;

/// Puts this process into a session of its own, without a terminal, so that what ends the one in which it was started
/// (a closed login, Ctrl-C) does not end it. It also leaves the directory it was started in, and asks the kernel to take
/// others first when memory runs out, which needs root; that it may not is no error.
///
/// `EPERM` if it leads a process group already, as a shell's jobs do.
pub fn lead() -> Result<()> {
    rustix::process::setsid().attempt(|| "begin a session")?;
    std::env::set_current_dir("/").attempt(|| "go to /")?;
    // -1000 is never (`OOM_SCORE_ADJ_MIN` in linux/oom.h).
    let adjust = std::fs::OpenOptions::new().write(true).open("/proc/self/oom_score_adj");
    let _ = adjust.and_then(|mut file| file.write_all(b"-1000"));
    Ok(())
}
