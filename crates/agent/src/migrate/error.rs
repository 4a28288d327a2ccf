//! Why a node cannot be taken over from flannel, or given back.

use std::io;
use std::path::{Path, PathBuf};

use node::install::InstallError;
use plan::{ApplyError, BookError, JournalError, StepError};

/// Why a node cannot be taken over from flannel, or given back.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Two would write the same routes.
    #[error("change the node while flanneld runs, as process {pid}")]
    Runs {
        /// The process id of flanneld.
        pid: u32,
    },
    /// The environment file has no network or no prefix.
    #[error("find flannel's network in {}: it has no FLANNEL_NETWORK or FLANNEL_SUBNET", path.display())]
    NoPrefix {
        /// The path of flannel's environment file.
        path: PathBuf,
    },
    /// A device of another backend, or one with options that the agent does not have.
    #[error(
        "take over flannel's device {link} ({kind}): only host-gw, and vxlan on a link of the node, can be taken over"
    )]
    Backend {
        /// The name of the device.
        link: String,
        /// Its kind of link, by the kernel's name.
        kind: String,
    },
    /// The addresses of pods are kept by the network's name.
    #[error(
        "take over network {network} of {} as {given}: addresses of its pods are kept under its name, and would be given \
         twice",
        path.display()
    )]
    Named {
        /// The path of a configuration of flannel's plugin, for container runtimes.
        path: PathBuf,
        /// The name that the configuration has.
        network: String,
        /// The name that was given.
        given: String,
    },
    /// There is nothing that flannel says of itself.
    #[error("find flannel's network in {}: the agent of the network {network} has written it", path.display())]
    Agents {
        /// The path of flannel's environment file.
        path: PathBuf,
        /// The name of the agent's network.
        network: String,
    },
    /// The agent would refuse the attach with flannel's backend.
    #[error(
        "attach pods by {attach}: what they send leaves by the nodes' own link, and flannel's nodes reach each other by tunnels"
    )]
    OnWire {
        /// The attach that was given.
        attach: String,
    },
    /// Two bridges would have one prefix.
    #[error("attach pods by a bridge beside flannel's, which has the node's prefix already")]
    Bridge,
    /// There is nothing to give back.
    #[error("give network {network} back to flannel: it was not taken over on this node")]
    NotTaken {
        /// The network's name, as in its configuration.
        network: String,
    },
    /// The node was taken over under another name.
    #[error(
        "give network {given} back to flannel: {} is what was kept or written for network {network}",
        path.display()
    )]
    Other {
        /// The path of a file of that network's.
        path: PathBuf,
        /// The name that the file has.
        network: String,
        /// The name that was given.
        given: String,
    },
    /// Containers are attached by our plugin.
    #[error(
        "give network {network} back to flannel while {attached} interfaces of containers are attached by hostgap's plugin"
    )]
    Attached {
        /// The network's name, as in its configuration.
        network: String,
        /// How many interfaces are attached.
        attached: usize,
    },
    /// A step of the plan failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The kernel cannot be looked at.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The network's unit cannot be had.
    #[error(transparent)]
    Book(#[from] BookError),
    /// A journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A call to the kernel failed; its error says which, and on what.
    #[error(transparent)]
    Kernel(#[from] linux::Error),
    /// The files of container runtimes cannot be changed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// A file cannot be read or written.
    #[error("{doing} {}: {why}", path.display())]
    File {
        /// What was attempted: "read".
        doing: &'static str,
        /// The path of the file, which is flannel's or a container runtime's.
        path: PathBuf,
        /// The error that the operating system returned.
        why: io::Error,
    },
}

impl MigrateError {
    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            MigrateError::Runs { .. } => {
                Some("end it first, on this node or everywhere; what it has made goes on without it")
            }
            MigrateError::NoPrefix { .. } | MigrateError::File { doing: "read", .. } => Some(
                "flanneld writes it: has it run here since the machine was started? --subnet-file names another file",
            ),
            MigrateError::Named { .. } => {
                Some("give that name with --network, here and to `hostgap agent run`")
            }
            MigrateError::Agents { .. } => Some(
                "take back what the agent has made with `hostgap agent down`, and start flanneld once, which writes it again",
            ),
            MigrateError::Other { .. } => Some("give that name with --network"),
            MigrateError::OnWire { .. } => Some("choose another --attach: ptp takes every way"),
            MigrateError::Bridge => Some("choose another --attach: pods of both reach each other"),
            MigrateError::Attached { .. } => Some("let these pods go first, as `kubectl drain` does"),
            MigrateError::Apply(ApplyError::Journal(error)) | MigrateError::Journal(error) => error.remedy(),
            MigrateError::Book(error) => error.remedy(),
            MigrateError::Install(error) => error.remedy(),
            _ => None,
        }
    }

    /// The constructor of [`MigrateError::File`] for what failed on a path.
    pub(super) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> MigrateError {
        let path = path.to_owned();
        move |why| MigrateError::File { doing, path, why }
    }
}
