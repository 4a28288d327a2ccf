//! What an event is about.

/// What an event was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing that is kept.
    Nothing,
    /// Something of a snapshot.
    Snapshot,
    /// This node's own object.
    Own,
    /// Everything: what was written before may or may not be in it.
    All,
}
