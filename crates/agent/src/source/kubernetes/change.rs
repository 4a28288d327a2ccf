//! How much of what is known an event changes, which decides what is done then.

/// What an event has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing of what is kept.
    Nothing,
    /// Something of the snapshot, so that a new one is published.
    Snapshot,
    /// This node's own object, so that its annotations are compared again too.
    Own,
    /// Everything: what was written before may or may not be in it.
    All,
}
