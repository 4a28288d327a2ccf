//! What is said in the log: a trouble once when it begins, and once when it is over.

use std::collections::BTreeSet;

/// What there can be trouble with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The list and the watch of nodes.
    Nodes,
    /// Writing what this node announces.
    Announcement,
    /// An address that an administrator wants announced.
    Overwrite,
    /// The file with the configuration of the network.
    Network,
    /// The prefixes of this node's pods.
    Prefixes,
    /// The lists and the watches of Services and their endpoints.
    Services,
}

/// The subjects that have trouble now.
#[derive(Debug, Default)]
pub(super) struct TroubleLog {
    troubled: BTreeSet<Subject>,
}

impl TroubleLog {
    /// Says what has begun or ended. A trouble that goes on for another reason is no new one: while an API server
    /// starts, the reason changes with each attempt.
    pub(super) fn about(&mut self, subject: Subject, trouble: Option<&str>) {
        match trouble {
            Some(why) if self.troubled.insert(subject) => tracing::warn!("{}: {why}", subject.begin()),
            None if self.troubled.remove(&subject) => tracing::info!("{}", subject.end()),
            Some(_) | None => {}
        }
    }
}

impl Subject {
    fn begin(self) -> &'static str {
        match self {
            Subject::Nodes => "the cluster's nodes cannot be watched; what is known of them stays",
            Subject::Announcement => "what this node announces cannot be written",
            Subject::Overwrite => "the node's own address is announced",
            Subject::Network => "the configuration of the network cannot be read",
            Subject::Prefixes => "waiting for the prefixes of this node's pods",
            Subject::Services => "the cluster's Services cannot be watched; what is known of them stays",
        }
    }

    fn end(self) -> &'static str {
        match self {
            Subject::Nodes => "the cluster's nodes are watched again",
            Subject::Announcement => "what this node announces is written",
            Subject::Overwrite => "the address that was asked for is announced",
            Subject::Network => "the configuration of the network is read",
            Subject::Prefixes => "this node's pods have prefixes",
            Subject::Services => "the cluster's Services are watched again",
        }
    }
}
