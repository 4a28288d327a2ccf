//! Why an agent does not begin, or ends by itself.

use std::io;

use plan::{BookError, JournalError, StepError};

use crate::Endpoint;

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The network's unit cannot be had.
    #[error(transparent)]
    Book(#[from] BookError),
    /// A call to the kernel failed; its error says which, and on what.
    #[error(transparent)]
    Kernel(#[from] linux::Error),
    /// The kernel's notices cannot be waited for.
    #[error("wait for the kernel's notices: {0}")]
    Watch(io::Error),
    /// The agent cannot be asked for its state.
    #[error("listen on {at}: {why}")]
    Listen {
        /// The address or the path of the socket as the command line has it.
        at: Endpoint,
        /// The error that the operating system returned.
        why: io::Error,
    },
    /// The agent before led Services, and this one does not see what leads them: a container may lack the
    /// bpffs. Left alone, calls would be led to the endpoints of today for as long as the machine runs,
    /// whatever this one leads besides.
    #[error("take over the Services that the agent before led: there are no programs {0} in a bpffs here")]
    UnseenServices(String),
    /// Whether Services are led cannot be known.
    #[error("find out whether calls of Services are led: {0}")]
    Services(StepError),
    /// The task of the source is gone.
    #[error("the task that asks the lease source has ended; that is a fault of this program")]
    SourceEnded,
}

impl AgentError {
    /// Whether a full disk is the reason, which others may make room on.
    pub(crate) fn is_for_lack_of_room(&self) -> bool {
        let AgentError::Book(
            BookError::File { why, .. } | BookError::Journal(JournalError::File { why, .. }),
        ) = self
        else {
            return false;
        };
        why.kind() == io::ErrorKind::StorageFull
    }

    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            AgentError::UnseenServices(_) => {
                Some("end all agents of the node, and take back what they have made: hostgap agent down")
            }
            AgentError::Book(error) => error.remedy(),
            AgentError::Kernel(_)
            | AgentError::Watch(_)
            | AgentError::Services(_)
            | AgentError::Listen { .. }
            | AgentError::SourceEnded => None,
        }
    }
}
