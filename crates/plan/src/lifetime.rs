//! What ends the effect of a step, beside undo.

use linux::NetnsName;

/// What takes the effect of a step with it when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime<'s> {
    /// The step makes its namespace.
    Own,
    /// The namespace of the step.
    Netns,
    /// That, and this other namespace: the effect reaches into both.
    Both(&'s NetnsName),
    /// Nothing but the machine. The effect is found through the namespace of the step.
    Machine,
    /// A mount or a control group, which are in no network namespace: the effect is found without one.
    Outside,
}
