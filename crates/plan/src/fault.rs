//! Faults on request: apply and undo are made to fail, or to stop dead, at a chosen point.
//!
//! The real code runs in front of and behind the fault; nothing is simulated. Tests go through every point there is,
//! and a rehearsal of an interrupted run on a user's machine can do the same.

/// Where a run fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// No fault is injected: the usual run.
    #[default]
    None,
    /// Step `n` (from 0, in one call of apply) fails after its intent was written and before anything is changed.
    BeforeStep(usize),
    /// Step `n` fails after the change and before it is read back.
    AfterStep(usize),
    /// A shared step fails after its claim was written and before it is done.
    InClaim,
    /// Netfilter does not say what connections it tracks.
    InTracking,
    /// Nothing at all happens any more once the journal has this many lines, the header among them; as if the
    /// process was killed there.
    DeadAfterLine(usize),
}

impl Fault {
    pub(crate) fn hits_before(self, step: usize) -> bool {
        self == Fault::BeforeStep(step)
    }

    pub(crate) fn hits_after(self, step: usize) -> bool {
        self == Fault::AfterStep(step)
    }

    pub(crate) fn is_dead_at(self, lines: usize) -> bool {
        matches!(self, Fault::DeadAfterLine(last) if lines >= last)
    }
}
