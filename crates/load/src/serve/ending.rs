//! How the responder ends a connection, as the protocol has it or on purpose.

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// As the protocol has it.
    Close,
    /// In the middle, without a word.
    Cut,
    Reset,
}
