//! What keeps a program or a configuration from being installed or removed.

use std::io;
use std::path::PathBuf;

use cni::Failure;

/// Why nothing was installed or removed. Where a file could not be written, those before it may have been.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The plugin would refuse the configuration, or the node cannot have such a network.
    #[error("use such a network: {0}")]
    Conf(Failure),
    /// The kernel lacks what the attach needs.
    #[error("run attach {attach} here: {reasons}")]
    Unmet {
        /// The name of the attach.
        attach: &'static str,
        /// What is missing, joined by semicolons.
        reasons: String,
    },
    /// The kernel lacks what the check of containers' addresses needs.
    #[error("check here that containers send from their own addresses: {reasons}")]
    NoAntiSpoofing {
        /// What is missing, joined by semicolons.
        reasons: String,
    },
    /// The name of the file is none that a runtime reads.
    #[error(
        "use {0:?} as a file of the configuration: a name without a path that ends in .conflist is expected"
    )]
    FileName(String),
    /// The check is to be at tcx, which this kernel has not.
    #[error("check at tcx what containers send: this kernel has no tcx, which came with Linux 6.6")]
    NoTcx,
    /// What this kernel has could not be tried.
    #[error(transparent)]
    Unknown(linux::Error),
    /// A configuration that is not ours has the name.
    #[error("replace {}: it is not a configuration of hostgap's plugin", .0.display())]
    ForeignConflist(PathBuf),
    /// Another network of ours has the file.
    #[error("replace {}: it configures network {network}", path.display())]
    OtherNetwork {
        /// The path of the file.
        path: PathBuf,
        /// The network that it configures.
        network: String,
    },
    /// The network is in another file already.
    #[error("configure network {network} again: {} does so", path.display())]
    Configured {
        /// The name of the network.
        network: String,
        /// The file that has it.
        path: PathBuf,
    },
    /// Another program has the plugin's name.
    #[error("replace {}: it is another program", .0.display())]
    ForeignProgram(PathBuf),
    /// What lies where the plugin's program should be is none, or a part of it.
    #[error("copy {}: it is not a whole build of the plugin", .0.display())]
    NotWhole(PathBuf),
    /// What stands on the node cannot be read or taken back.
    #[error("{doing}: {failure}")]
    Node {
        /// What was attempted: "list the attachments of this node".
        doing: &'static str,
        /// The error as the plugin would print it.
        failure: Failure,
    },
    /// A file cannot be read, written or removed.
    #[error("{doing} {}: {why}", path.display())]
    File {
        /// What was attempted: "read".
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        why: io::Error,
    },
}

impl InstallError {
    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            InstallError::Unmet { .. } => {
                Some("`hostgap paths` lists what this machine lacks for each; choose another with --attach")
            }
            InstallError::NoAntiSpoofing { .. } => Some(
                "with --no-anti-spoofing the network has no such check, and a container can pose as another",
            ),
            InstallError::NoTcx => {
                Some("leave --anti-spoofing away: then a filter checks, which every kernel has")
            }
            InstallError::ForeignConflist(_) => {
                Some("choose another name with --file, or move that file away")
            }
            InstallError::OtherNetwork { .. } => Some(
                "choose another name with --file, or remove that network with `hostgap cni uninstall --name NAME`",
            ),
            InstallError::Configured { .. } => {
                Some("give that file with --file, or remove it with `hostgap cni uninstall --name NAME`")
            }
            InstallError::ForeignProgram(_) => {
                Some("move that program away, or choose another directory with --bin-dir")
            }
            InstallError::NotWhole(_) => Some("build it again, or wait until it is written"),
            InstallError::FileName(_) => Some("for example --file 10-pods.conflist"),
            InstallError::Conf(_)
            | InstallError::Unknown(_)
            | InstallError::Node { .. }
            | InstallError::File { .. } => None,
        }
    }

    /// The constructor of [`InstallError::File`] for what failed on a path.
    pub(super) fn file(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> InstallError {
        let path = path.into();
        move |why| InstallError::File { doing, path, why }
    }
}
