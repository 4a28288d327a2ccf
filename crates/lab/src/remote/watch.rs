//! The process that outlives the one that works, and undoes what that has left if it was killed.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::{Cleaned, Home, LabError};

/// The watching process, whose input ends with this one.
pub(super) struct Watching {
    child: Child,
    input: ChildStdin,
}

impl Watching {
    /// Starts it, out of reach of what ends this process.
    pub(super) fn start(own: &Path) -> Result<Watching, LabError> {
        let mut command = Command::new(own);
        command.args(["remote", "--watch"]);
        // It must not keep the connection open that this process answers by.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(LabError::file("start", own))?;
        let input = child.stdin.take().expect("asked for above");
        Ok(Watching { child, input })
    }

    /// Lets it end: whoever works has undone everything, or said what could not be.
    pub(super) fn end(mut self) {
        drop(self.input);
        // It ends by itself; what it returns says nothing more.
        let _ = self.child.wait();
    }
}

/// Waits for the end of the process that has the other end of the input, then removes what dead races have left.
///
/// # Errors
/// What is left cannot be listed or removed.
pub fn watch(home: &Home, input: &mut dyn Read) -> Result<Vec<Cleaned>, LabError> {
    linux::session::lead()?;
    // Nothing is said there; an error is an end, too.
    let _ = std::io::copy(input, &mut std::io::sink());
    home.clean()
}
