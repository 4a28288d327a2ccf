//! Lease sources, which know the prefixes of each node's pods. One module each.

pub mod etcd;
pub mod file;
pub mod kubernetes;

use tokio::sync::watch;

use crate::lease::{Announcement, Snapshot};

/// A lease source. It runs as a task of its own until its receivers are gone, and tries again whatever fails: a node
/// whose source is away keeps what it has.
pub trait LeaseSource {
    /// Starts it. What the node announces may change while it runs (another address), and is then written again;
    /// `None`: it announces nothing yet, since it has not read the network's configuration.
    fn start(self, own: watch::Receiver<Option<Announcement>>) -> watch::Receiver<Snapshot>;
}
