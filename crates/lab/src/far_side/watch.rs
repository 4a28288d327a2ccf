//! The process that outlives the one that works, and undoes what that has left if it was killed.

use std::io::Read;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::{Home, LabError};

/// The watching process, whose input ends with this value or with this process. It goes when nothing is left.
pub(crate) struct Watching {
    _input: ChildStdin,
}

impl Watching {
    /// Starts it, out of reach of what ends this process.
    pub(crate) fn start(own: &Path) -> Result<Watching, LabError> {
        let mut command = Command::new(own);
        command.args(["remote", "--watch", &std::process::id().to_string()]);
        // It must not keep the connection open that this process answers by.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(LabError::file("start", own))?;
        let input = child.stdin.take().expect("asked for above");
        Ok(Watching { _input: input })
    }
}

/// Waits for the end of the process `pid`, which has the other end of the input, then removes what it has left.
///
/// # Errors
/// What is left cannot be listed or removed.
pub fn watch(home: &Home, pid: u32, input: &mut dyn Read) -> Result<(), LabError> {
    linux::session::lead()?;
    // Nothing is said there; an error is an end, too.
    let _ = std::io::copy(input, &mut std::io::sink());
    let left = || Ok::<_, LabError>(home.remains()?.iter().any(|remains| remains.pid == pid));
    // A child that it had just begun to start may hold its lock for a moment longer.
    for _ in 0..TRIES {
        if !left()? {
            break;
        }
        home.clean()?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// With the pause between them, a minute in all.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);
