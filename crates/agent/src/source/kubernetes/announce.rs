//! The task that writes what this node announces.

use std::future::pending;
use std::path::PathBuf;

use tokio::select;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::annotations::Changes;
use super::api::{Api, Failure};
use super::follow::Event;
use crate::backoff::Backoff;

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedStatus {
    pub(super) changes: Changes,
    /// Whether to report to Kubernetes that the node's network is there.
    pub(super) is_available: bool,
}

/// Writes each value once. A value stays until the watch has shown that it was written, and no second call is made
/// meanwhile.
#[derive(Debug)]
pub(super) struct Announcer {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) node: String,
    pub(super) wanted: watch::Receiver<Option<WantedStatus>>,
    pub(super) events: mpsc::Sender<Event>,
}

impl Announcer {
    /// Runs until no wish can come any more.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let mut wait = None;
            if let Some(wanted) = wanted {
                let written = self.write(&wanted).await;
                if let Err(failure) = &written {
                    wait = Some(failure.after() + backoff.next());
                }
                let written = written.map_err(Failure::into_words);
                // Without a listener there is nothing left to announce.
                let _ = self.events.send(Event::Announced(written)).await;
            }
            let again = async {
                match wait {
                    Some(wait) => sleep(wait).await,
                    None => pending().await,
                }
            };
            select! {
                changed = self.wanted.changed() => if changed.is_err() { return },
                () = again => {}
            }
        }
    }

    async fn write(&self, wanted: &WantedStatus) -> Result<(), Failure> {
        let api = Api::connect(self.kubeconfig.as_deref()).await?;
        api.patch(&self.node, &wanted.changes, wanted.is_available).await
    }
}
