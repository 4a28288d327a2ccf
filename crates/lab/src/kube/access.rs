//! How a cluster is reached, and where its pods have this program from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::kubectl::Kubectl;
use super::pull_secret::PullSecret;
use crate::OwnProgram;

/// How a cluster is reached, and where its pods have this program from.
#[derive(Debug, Clone)]
pub struct ClusterAccess {
    /// How the cluster is reached.
    pub kubectl: Kubectl,
    /// A namespace that is there; `None`: one is made and deleted.
    pub namespace: Option<String>,
    /// The nodes by name; empty: those that take pods.
    pub nodes: Vec<String>,
    /// An image with this program.
    pub image: String,
    /// The Secret with which nodes pull the image, where its registry asks for one.
    pub pull_secret: Option<PullSecret>,
    /// An image with a shell, into whose pods this program is copied instead.
    pub copy: Option<String>,
    /// This program, which is copied into pods whose image has a shell alone.
    pub own: OwnProgram,
    /// Set from outside to end what goes on, after the running trial.
    pub stop: Arc<AtomicBool>,
}

impl ClusterAccess {
    /// The image with which pods start: the one into which the program is copied, or else the one that has it.
    pub(super) fn pod_image(&self) -> &str {
        self.copy.as_deref().unwrap_or(&self.image)
    }

    /// Whether it is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
