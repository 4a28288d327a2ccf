//! How a client's process asks its server's, which is by way of this side of `kubectl exec`.

use std::io::{self, Write};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::protocol::{Answer, PodMessage, Task};
use crate::LabError;
use crate::remote::Failed;

/// How long the server's process may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// A cluster's nodes hear of a new Service, name or policy some time later.
pub(super) const READY: Duration = Duration::from_secs(30);

/// The way from a client's process to its server's, which leads over the side that started both.
pub(super) struct Talk<'a> {
    pub(super) heard: &'a Receiver<String>,
    pub(super) output: &'a mut dyn Write,
}

impl Talk<'_> {
    pub(super) fn say(&mut self, message: &PodMessage) -> io::Result<()> {
        let line = serde_json::to_string(message)?;
        writeln!(self.output, "{line}")?;
        self.output.flush()
    }

    /// Has the server's process do a task.
    ///
    /// # Errors
    /// [`LabError::Machine`]: it does not answer in time, or could not do it.
    pub(super) fn ask(&mut self, task: Task) -> Result<Answer, LabError> {
        let lost = |why: String| LabError::of_machine("the server's pod".to_owned(), why);
        self.say(&PodMessage::Ask(task)).map_err(|error| lost(error.to_string()))?;
        let line = self.heard.recv_timeout(ANSWER_MAX).map_err(|error| lost(error.to_string()))?;
        match serde_json::from_str(&line).map_err(|error| lost(error.to_string()))? {
            Answer::Failed(Failed { why, remedy, fault, .. }) => {
                Err(LabError::Machine { machine: "the server's pod".to_owned(), why, remedy, fault })
            }
            answer => Ok(answer),
        }
    }
}
