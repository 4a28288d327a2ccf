//! Options for CNI plugins, which several commands have.

use lab::PluginDirs;
use record::Candidate;

/// The directories in which plugins are looked for.
#[derive(Debug, clap::Args)]
pub(crate) struct PluginArgs {
    /// Directories of CNI plugins, joined by colons.
    #[arg(long = "cni-bin", value_name = "DIRS", env = "CNI_PATH", default_value = PluginDirs::USUAL)]
    dirs: String,
}

/// What `--help` says of the option for a file.
pub(crate) const HELP: &str = "\
A CNI configuration whose plugins connect the pods to their nodes (.conflist, or .conf with one plugin; cniVersion 0.3.0 to \
1.1.0). It serves both nodes. In its texts
  ${POD_CIDR} ${POD_CIDR6}  the prefixes of the node's pods: 10.244.1.0/24, …
  ${POD_GATEWAY}            the first IPv4 address in it
  ${NODE}                   1 for the client's node, 2 for the server's
  ${WIRE} ${MTU}            the node's link to the other node, and its MTU
\"subnet\": \"usePodCidr\" (usePodCidrIPv6) is the same as ${POD_CIDR} (${POD_CIDR6}).
\
Plugins run in the nodes' namespaces and write only into directories of the candidate. docs/cni.md has more, \
scenarios/cni/ some to begin with.";

impl PluginArgs {
    pub(crate) fn dirs(&self) -> PluginDirs {
        PluginDirs::parse(&self.dirs)
    }
}

/// The candidate of a file that was named on the command line.
pub(crate) fn candidate(file: &str) -> Candidate {
    Candidate { cni: Some(file.to_owned()), required: true, ..Candidate::default() }
}
