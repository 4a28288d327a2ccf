//! Why an agent does not begin, or ends by itself.

use std::io;

use plan::BookError;

use crate::Endpoint;

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The network's unit cannot be had.
    #[error(transparent)]
    Book(#[from] BookError),
    /// The kernel refuses.
    #[error(transparent)]
    Kernel(#[from] linux::Error),
    /// The kernel's notices cannot be waited for.
    #[error("wait for the kernel's notices: {0}")]
    Watch(io::Error),
    /// Nobody can ask the agent how it is.
    #[error("listen on {at}: {why}")]
    Listen {
        /// Where that was asked for.
        at: Endpoint,
        /// The system's reason.
        why: io::Error,
    },
    /// The task of the source is gone.
    #[error("the task that asks the lease source has ended; that is a fault of this program")]
    SourceEnded,
}
