//! Where a step acts.

use std::fmt;

use linux::{Netns, NetnsName, NetnsPath, NetnsRef};
use serde::{Deserialize, Serialize};

/// A network namespace, as a plan refers to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The namespace in which hostgap itself was started.
    Host,
    /// A named namespace under `/run/netns`.
    Netns(NetnsName),
    /// The namespace of a path, which another program has made: that of a process, or of a container runtime. The path
    /// may lead elsewhere later; undo goes by the namespace's cookie.
    Path(NetnsPath),
}

impl Place {
    /// The name of a named namespace.
    pub fn name(&self) -> Option<&NetnsName> {
        match self {
            Place::Netns(name) => Some(name),
            Place::Host | Place::Path(_) => None,
        }
    }

    /// Opens its namespace.
    ///
    /// # Errors
    /// There is none, or it may not be opened.
    pub fn open(&self) -> Result<Netns, linux::Error> {
        match self {
            Place::Host => Netns::current(),
            Place::Netns(name) => Netns::open(name),
            Place::Path(path) => Netns::open_path(path),
        }
    }

    /// How its namespace is found; `None` for the host's.
    pub fn netns(&self) -> Option<NetnsRef> {
        match self {
            Place::Host => None,
            Place::Netns(name) => Some(name.clone().into()),
            Place::Path(path) => Some(path.clone().into()),
        }
    }
}

impl From<NetnsRef> for Place {
    fn from(netns: NetnsRef) -> Place {
        match netns {
            NetnsRef::Name(name) => Place::Netns(name),
            NetnsRef::Path(path) => Place::Path(path),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("the host's namespace"),
            Place::Netns(name) => write!(f, "namespace {name}"),
            Place::Path(path) => write!(f, "namespace {path}"),
        }
    }
}
