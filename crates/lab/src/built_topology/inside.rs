//! Where sockets of a side are opened.

use linux::Cgroup;
use linux::netns::Netns;

use crate::LabError;

/// A namespace and, if the data path wants one, the control group of the processes that open sockets there.
pub(crate) struct Inside(pub(crate) Netns, pub(crate) Option<Cgroup>);

impl Inside {
    /// Opens sockets in there: a socket belongs to the group of the task that opens it.
    pub(crate) fn run<T>(&self, open: impl FnOnce() -> T) -> Result<T, LabError> {
        let inside = || self.0.run(open);
        Ok(match &self.1 {
            Some(cgroup) => cgroup.run(inside)?,
            None => inside(),
        }?)
    }
}
