//! A task that lists all objects of a kind and watches them: it goes on where it was after whatever fails.

use std::fmt::Debug;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::api::WatchEvent;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::api::{Api, Failure};
use super::kind::Kind;
use super::node;
use super::service::{KeptService, KeptSlice};
use crate::backoff::Backoff;

/// A watch that ends after so long was well.
const LASTED: Duration = Duration::from_secs(10);
/// Within so long a watch that cannot go on where another ended is refused, after it was accepted in form.
const REFUSAL: Duration = Duration::from_secs(1);

/// What a watch, or the node's own announcement, has brought.
#[derive(Debug)]
pub(super) enum Event {
    Nodes(News<node::Kept>),
    Services(News<KeptService>),
    Slices(News<KeptSlice>),
    /// Whether what this node announces could be written, and if not, why.
    Announced(Result<(), String>),
}

/// What is new of a kind of objects, by their names.
#[derive(Debug)]
pub(super) enum News<K> {
    /// All of them: what is not among them is gone.
    All(Vec<(String, K)>),
    /// One that is new or has changed.
    One(String, K),
    /// One that was deleted, or of which nothing is kept any more.
    Gone(String),
    /// The watch stands, and nothing is missed from now on.
    Watched,
    /// They are not, and why.
    Unreachable(String),
}

/// Lists and watches objects of a kind.
pub(super) struct Follower<R, K> {
    pub(super) kubeconfig: Option<PathBuf>,
    /// What is kept of one.
    pub(super) keep: Box<dyn Fn(R) -> Option<K> + Send + Sync>,
    /// How it is said.
    pub(super) event: fn(News<K>) -> Event,
    pub(super) events: mpsc::Sender<Event>,
}

impl<R: Kind, K> Follower<R, K> {
    /// Runs until no listener is left.
    pub(super) async fn run(self) {
        let mut backoff = Backoff::default();
        // The version up to which all is said; none: the list is to be made.
        let mut version = None;
        while !self.events.is_closed() {
            let begun = Instant::now();
            match self.attempt(&mut version).await {
                // A watch that lasted is no failure: another one follows at once, however often that happens.
                Ok(()) if begun.elapsed() >= LASTED => backoff = Backoff::default(),
                Ok(()) => {}
                Err(Failure::Expired) => version = None,
                Err(Failure::Unreachable(why)) => self.say(News::Unreachable(why)).await,
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
        let mut watch = pin!(api.watch::<R>(from).await?);
        // One that goes on where another ended may be answered with a version that is forgotten, and only then.
        let mut is_accepted = !is_resumed;
        if is_accepted {
            self.say(News::Watched).await;
        }
        loop {
            let patience = if is_accepted { R::SILENCE_MAX } else { REFUSAL };
            let event = match timeout(patience, watch.try_next()).await {
                Ok(Ok(Some(WatchEvent::Error(status)))) => {
                    return Err(api.failure(kube::Error::Api(status)));
                }
                Ok(Ok(Some(event))) => Some(event),
                Err(_) if !is_accepted => None,
                // Silence ends it, too. An error of the connection is not one of the API server: the next attempt
                // shows which it is.
                Ok(Ok(None) | Err(_)) | Err(_) => return Ok(()),
            };
            if !is_accepted {
                self.say(News::Watched).await;
                is_accepted = true;
            }
            if let Some(event) = event {
                self.take(event, from).await;
            }
        }
    }

    /// Says what an event of a watch is about, and goes on after its version.
    async fn take(&self, event: WatchEvent<R>, version: &mut String) {
        *version = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let (name, at) = (object.name(), object.version().to_owned());
                self.say(match (self.keep)(object) {
                    Some(kept) => News::One(name, kept),
                    None => News::Gone(name),
                })
                .await;
                at
            }
            WatchEvent::Deleted(object) => {
                self.say(News::Gone(object.name())).await;
                object.version().to_owned()
            }
            WatchEvent::Bookmark(bookmark) => bookmark.metadata.resource_version,
            WatchEvent::Error(_) => return,
        };
    }

    /// Says all of them, and returns the version of the list.
    async fn list(&self, api: &Api) -> Result<String, Failure> {
        let mut all = Vec::new();
        let mut token = String::new();
        loop {
            let page = api.list::<R>(&token).await?;
            // A page at a time: what is kept of an object is a small part of it.
            let kept = page.items.into_iter().filter_map(|object| {
                let name = object.name();
                Some((name, (self.keep)(object)?))
            });
            all.extend(kept);
            token = page.metadata.next;
            if token.is_empty() {
                self.say(News::All(all)).await;
                return Ok(page.metadata.resource_version);
            }
        }
    }

    /// That no listener is left is seen at the next attempt.
    async fn say(&self, news: News<K>) {
        let _ = self.events.send((self.event)(news)).await;
    }
}
