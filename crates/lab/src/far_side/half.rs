//! What a machine that is asked has of a candidate, whichever side it is.

use crate::LabError;
use crate::remote::protocol::{RemoteRequest, Reply};

/// Half a topology that stands on this machine.
pub(super) trait StandingHalf: Sized {
    /// Does what it is asked; `None`: it is no request for such a half.
    ///
    /// # Errors
    /// It could not be done.
    fn answer(&mut self, request: &RemoteRequest) -> Result<Option<Reply>, LabError>;

    /// Undoes it. Returns what another program has changed since, which is left as that has it, in words.
    ///
    /// # Errors
    /// Something could not be undone.
    fn take_down(self) -> Result<Vec<String>, LabError>;
}
