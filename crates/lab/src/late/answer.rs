//! An answered request of a slice that is examined for late answers.

/// An answered request. Instants are nanoseconds of [`linux::clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnsweredRequest {
    /// When it should have been sent.
    pub(crate) intended_ns: u64,
    /// When it was sent.
    pub(crate) sent_ns: u64,
    /// When its answer was read.
    pub(crate) received_ns: u64,
    /// Since when its connection had been free.
    pub(crate) free_ns: u64,
    /// The client's port of its connection; 0: not known.
    pub(crate) port: u16,
    /// The CPU of the generator's thread.
    pub(crate) cpu: u16,
}

impl AnsweredRequest {
    pub(crate) fn response_ns(&self) -> u64 {
        self.received_ns.saturating_sub(self.intended_ns)
    }
}
