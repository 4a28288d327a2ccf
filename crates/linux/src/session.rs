//! A process that outlives its parent: the leader of its own session.

use std::io::Write;

use crate::Result;
use crate::error::Attempt;

/// Moves this process into a new session without a terminal, so that it survives the end of the old one (a closed
/// login, Ctrl-C). It also leaves its current directory, and asks the kernel to kill other processes first when memory
/// runs out. That last step needs root; without it, it is skipped without an error.
///
/// `EPERM` if the process already leads a process group, as a shell's jobs do.
pub fn lead() -> Result<()> {
    rustix::process::setsid().attempt(|| "begin a session")?;
    std::env::set_current_dir("/").attempt(|| "go to /")?;
    // -1000 is never (`OOM_SCORE_ADJ_MIN` in linux/oom.h).
    let adjust = std::fs::OpenOptions::new().write(true).open("/proc/self/oom_score_adj");
    let _ = adjust.and_then(|mut file| file.write_all(b"-1000"));
    Ok(())
}
