//! The lines between the hands of a client and of a server.

use std::io::{self, Write};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::protocol::{Answer, Said, Task};
use crate::LabError;
use crate::remote::Failed;

/// How long a question to the server's hand may take.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// A cluster's nodes hear of a new Service, name or policy some time later.
pub(super) const READY: Duration = Duration::from_secs(30);

/// The way to the server's hand, which leads over the other side.
pub(super) struct Talk<'a> {
    pub(super) heard: &'a Receiver<String>,
    pub(super) output: &'a mut dyn Write,
}

impl Talk<'_> {
    pub(super) fn say(&mut self, said: &Said) -> io::Result<()> {
        let line = serde_json::to_string(said)?;
        writeln!(self.output, "{line}")?;
        self.output.flush()
    }

    /// Has the server's hand do something.
    pub(super) fn ask(&mut self, task: Task) -> Result<Answer, LabError> {
        let lost =
            |why: String| LabError::Machine { machine: "the server's pod".to_owned(), why, remedy: None };
        self.say(&Said::Ask(task)).map_err(|error| lost(error.to_string()))?;
        let line = self.heard.recv_timeout(ANSWER_MAX).map_err(|error| lost(error.to_string()))?;
        match serde_json::from_str(&line).map_err(|error| lost(error.to_string()))? {
            Answer::Failed(Failed { why, remedy, .. }) => {
                Err(LabError::Machine { machine: "the server's pod".to_owned(), why, remedy })
            }
            answer => Ok(answer),
        }
    }
}
