//! The task that lists the nodes and watches them: it goes on where it was after whatever fails.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::api::WatchEvent;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::super::backoff::Backoff;
use super::annotations::Names;
use super::api::{Api, Failure};
use super::node::{Kept, Node};

/// After so long without a word a watch is opened anew, on another connection: the other end of this one may be gone
/// without a sign. Where nodes are few nothing may have happened for so long; then it costs one request.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// Within so long a watch that cannot go on where another ended is refused, after it was accepted in form.
const REFUSAL: Duration = Duration::from_secs(1);

/// What is new.
#[derive(Debug)]
pub(super) enum Event {
    /// All nodes: what is not among them is gone.
    All(Vec<(String, Kept)>),
    /// A node that is new or has changed.
    Node(String, Kept),
    /// A node that was deleted.
    Gone(String),
    /// The nodes are watched.
    Watched,
    /// They are not, and why.
    Unreachable(String),
    /// Whether what this node announces could be written, and if not, why.
    Announced(Result<(), String>),
}

/// Lists and watches.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) node: String,
    pub(super) names: Names,
    pub(super) events: mpsc::Sender<Event>,
}

impl Follower {
    /// Goes on until nobody listens.
    pub(super) async fn run(self) {
        let mut backoff = Backoff::default();
        // The version up to which all is said; none: the list is to be made.
        let mut version = None;
        while !self.events.is_closed() {
            match self.attempt(&mut version).await {
                Ok(()) => {}
                Err(Failure::Expired) => version = None,
                Err(Failure::Unreachable(why)) => self.say(Event::Unreachable(why)).await,
            }
            sleep(backoff.next()).await;
        }
    }

    /// Lists if it must, and watches until the watch ends, as each does after some minutes.
    async fn attempt(&self, version: &mut Option<String>) -> Result<(), Failure> {
        let api = Api::connect(self.kubeconfig.as_deref()).await?;
        let is_resumed = version.is_some();
        let from = match version.take() {
            Some(version) => version,
            None => self.list(&api).await?,
        };
        let from = version.insert(from);
        let mut watch = pin!(api.watch(from).await?);
        // One that goes on where another ended may be answered with a version that is forgotten, and only then.
        let mut is_accepted = !is_resumed;
        if is_accepted {
            self.say(Event::Watched).await;
        }
        loop {
            let patience = if is_accepted { SILENCE_MAX } else { REFUSAL };
            let event = match timeout(patience, watch.try_next()).await {
                Ok(Ok(Some(WatchEvent::Error(status)))) => {
                    return Err(api.failure(kube::Error::Api(status)));
                }
                Ok(Ok(Some(event))) => Some(event),
                Err(_) if !is_accepted => None,
                // Silence ends it, too. An error of the connection is none of the API server: the next attempt tells.
                Ok(Ok(None) | Err(_)) | Err(_) => return Ok(()),
            };
            if !is_accepted {
                self.say(Event::Watched).await;
                is_accepted = true;
            }
            if let Some(event) = event {
                self.take(event, from).await;
            }
        }
    }

    /// Says what an event of a watch is about, and goes on after its version.
    async fn take(&self, event: WatchEvent<Node>, version: &mut String) {
        *version = match event {
            WatchEvent::Added(node) | WatchEvent::Modified(node) => {
                let at = node.metadata.resource_version.clone();
                let (name, kept) = self.kept(node);
                self.say(Event::Node(name, kept)).await;
                at
            }
            WatchEvent::Deleted(node) => {
                self.say(Event::Gone(node.metadata.name)).await;
                node.metadata.resource_version
            }
            WatchEvent::Bookmark(bookmark) => bookmark.metadata.resource_version,
            WatchEvent::Error(_) => return,
        };
    }

    /// Says all nodes, and returns the version of the list.
    async fn list(&self, api: &Api) -> Result<String, Failure> {
        let mut all = Vec::new();
        let mut token = String::new();
        loop {
            let page = api.list(&token).await?;
            // A page at a time: what is kept of a node is a hundredth of it.
            let kept = page.items.into_iter().map(|node| self.kept(node));
            all.extend(kept.filter(|(_, kept)| *kept != Kept::Silent));
            token = page.metadata.next;
            if token.is_empty() {
                self.say(Event::All(all)).await;
                return Ok(page.metadata.resource_version);
            }
        }
    }

    fn kept(&self, node: Node) -> (String, Kept) {
        (node.metadata.name.clone(), Kept::of(node, &self.node, &self.names))
    }

    /// That nobody listens any more is seen at the next attempt.
    async fn say(&self, event: Event) {
        let _ = self.events.send(event).await;
    }
}
