//! What can go wrong with addresses.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::{Holder, Key, KeyError};

/// Why addresses could not be reserved, released or listed.
#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    /// A file of the store could not be handled.
    #[error("{attempted} {path}: {why}")]
    File {
        /// A verb: "create", "lock", "read", …
        attempted: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason: no space left, a read-only file system, …
        why: io::Error,
    },
    /// The file of an address could not be made. Nothing stays reserved for this call.
    #[error("reserve {address} for {key}: {attempted} {path}: {why}")]
    Reserve {
        /// The address that was to be reserved.
        address: IpAddr,
        /// The container and interface that were to have it.
        key: Key,
        /// A verb: "write", "sync", …
        attempted: &'static str,
        /// The path of the file that could not be made.
        path: PathBuf,
        /// The error that the operating system returned.
        why: io::Error,
    },
    /// The name of a network of which no directory can be made.
    #[error(
        "open the addresses of network {network:?}: a name begins with a letter or digit and goes on with those, \"_\", \
         \".\" and \"-\""
    )]
    BadNetwork {
        /// The name as it was given.
        network: String,
    },
    /// The name of a container or an interface.
    #[error(transparent)]
    BadKey(#[from] KeyError),
    /// The key has addresses, and an ADD without a DEL before it is an error.
    #[error("reserve an address for {key}: it has {} already", list(addresses))]
    HasAlready {
        /// The container and interface that ask.
        key: Key,
        /// The addresses that it has.
        addresses: Vec<IpAddr>,
    },
    /// Every address of a range set is taken. CNI has a code for it, 11 ("try again later"). Nothing stays reserved for
    /// this call.
    #[error("reserve an address for {key}: none is left in range set {set} ({ranges})")]
    NoneLeft {
        /// The container and interface that ask.
        key: Key,
        /// The index of the range set, from 0.
        set: usize,
        /// Its ranges: `10.1.0.1-10.1.0.254, 10.2.0.1-10.2.0.254`.
        ranges: String,
    },
    /// An asked-for address belongs to another.
    #[error("reserve {address} for {key}: {holder} has it")]
    Taken {
        /// The address that was asked for.
        address: IpAddr,
        /// The container and interface that ask.
        key: Key,
        /// The container and interface that have it.
        holder: Holder,
    },
    /// An asked-for address is in no range.
    #[error("reserve {address} for {key}: it is in no range of {ranges}")]
    NotInRange {
        /// The address that was asked for.
        address: IpAddr,
        /// The container and interface that ask.
        key: Key,
        /// All ranges of all sets.
        ranges: String,
    },
    /// An asked-for address is a gateway, which no pod may have.
    #[error("reserve {address} for {key}: it is a gateway")]
    Gateway {
        /// The address that was asked for.
        address: IpAddr,
        /// The container and interface that ask.
        key: Key,
    },
    /// Two addresses of one set were asked for, and a pod gets one from each.
    #[error(
        "reserve {address} for {key}: {first} is asked for as well, and a pod gets one address of range set {set}"
    )]
    SecondOfSet {
        /// The second address that was asked for.
        address: IpAddr,
        /// The first address that was asked for.
        first: IpAddr,
        /// The container and interface that ask.
        key: Key,
        /// The index of the range set, from 0.
        set: usize,
    },
    /// Something could not be released. All else that was to be released is.
    #[error("release {} of {} addresses: {}", failures.len(), failures.len() + released.len(), join(failures))]
    Unreleased {
        /// What was released nevertheless.
        released: Vec<(IpAddr, Holder)>,
        /// One for each file that could not be read or removed.
        failures: Vec<IpamError>,
    },
}

impl IpamError {
    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            IpamError::HasAlready { .. } => Some("release them first (DEL)"),
            IpamError::NoneLeft { .. } => {
                Some("a larger range, or `gc`, which releases what no container has")
            }
            IpamError::Taken { .. } => Some("ask for another address, or release it (DEL, or `gc`)"),
            IpamError::File { why, .. } | IpamError::Reserve { why, .. } => of_system(why),
            IpamError::Unreleased { failures, .. } => failures.first().and_then(IpamError::remedy),
            IpamError::BadNetwork { .. }
            | IpamError::BadKey(_)
            | IpamError::NotInRange { .. }
            | IpamError::Gateway { .. }
            | IpamError::SecondOfSet { .. } => None,
        }
    }

    /// True if nothing can be written there.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, IpamError::File { why, .. } if why.kind() == io::ErrorKind::ReadOnlyFilesystem)
    }

    /// An error maker for a file: `fs::read(&path).map_err(IpamError::file("read", &path))`.
    pub(crate) fn file<E: Into<io::Error>>(
        attempted: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> IpamError {
        let path = path.to_owned();
        move |why| IpamError::File { attempted, path, why: why.into() }
    }

    /// The same error with the address and its key, if it is one of a file.
    pub(crate) fn reserving(self, address: IpAddr, key: &Key) -> IpamError {
        match self {
            IpamError::File { attempted, path, why } => {
                IpamError::Reserve { address, key: key.clone(), attempted, path, why }
            }
            other => other,
        }
    }
}

fn of_system(why: &io::Error) -> Option<&'static str> {
    match why.kind() {
        io::ErrorKind::StorageFull => Some("make room on that file system"),
        io::ErrorKind::ReadOnlyFilesystem => {
            Some("another data directory, on a file system that can be written")
        }
        io::ErrorKind::PermissionDenied => Some("run as root, as container runtimes run their plugins"),
        _ => None,
    }
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn join(failures: &[IpamError]) -> String {
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
