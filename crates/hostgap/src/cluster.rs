//! A Kubernetes cluster, as the command line names it, and how pods are made in it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::lab::kube::{ClusterAccess, Kubectl, PullSecret};

use crate::exit::BadInput;
use crate::own_program::own_program;

/// The cluster, and how pods are made in it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The context of kubectl's configuration [default: the current one].
    #[arg(long, value_name = "NAME", requires = "kube")]
    context: Option<String>,
    /// The program that speaks to the cluster, with options of its own.
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "kubectl",
        hide_default_value = true,
        requires = "kube"
    )]
    kubectl: String,
    /// The nodes [default: those that take pods, for doctor all that run Linux]. A race is from the first to the
    /// second, on one with --same-node, or between all with --all-pairs.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", requires = "kube")]
    nodes: Vec<String>,
    /// Use a namespace that is there, instead of one that is made and deleted.
    #[arg(long, value_name = "NAME", requires = "kube")]
    namespace: Option<String>,
    /// The image with this version of hostgap (cargo xtask image makes it).
    #[arg(long, value_name = "IMAGE", default_value = "localhost/hostgap:latest", requires = "kube")]
    image: String,
    /// The Secret with which nodes pull the image from a private registry: NAME in the namespace of --namespace, or
    /// NAMESPACE/NAME, which is copied into the one that is made and goes with it.
    #[arg(long, value_name = "[NAMESPACE/]NAME", requires = "kube")]
    image_pull_secret: Option<String>,
    /// Copy this program into pods of another image, which has a shell (busybox, debian), where no image with
    /// hostgap can be pulled.
    #[arg(long, value_name = "IMAGE", requires = "kube")]
    copy: Option<String>,
}

impl ClusterArgs {
    /// The cluster, for work that `stop` ends.
    pub(crate) fn access(&self, stop: Arc<AtomicBool>) -> anyhow::Result<ClusterAccess> {
        let words: Vec<String> = self.kubectl.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err(BadInput("--kubectl names no program".to_owned()).into());
        }
        let pull_secret = self.image_pull_secret.as_deref().map(|named| {
            let read = PullSecret::read(named, self.namespace.as_deref());
            read.map_err(|why| BadInput(format!("--image-pull-secret {named}: {why}")))
        });
        Ok(ClusterAccess {
            pull_secret: pull_secret.transpose()?,
            kubectl: Kubectl { words, context: self.context.clone() },
            namespace: self.namespace.clone(),
            nodes: self.nodes.clone(),
            image: self.image.clone(),
            copy: self.copy.clone(),
            own: own_program()?,
            stop,
        })
    }
}
