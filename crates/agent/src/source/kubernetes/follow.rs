//! A task that lists all objects of a kind and watches them: it goes on where it was after whatever fails.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::mem;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use kube::api::WatchEvent;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::api::{Api, Failure};
use super::kind::{Kind, Object};
use super::listing::{Known, Listing};
use super::node;
use super::service::{KeptService, KeptSlice};
use crate::backoff::Backoff;
use crate::reason_log::ReasonLog;

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
    /// Whether a call about a kind, by its name, was answered; if not, at which address.
    Answered(&'static str, Result<(), SocketAddr>),
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
    /// What is kept of one, or why it cannot be read: it is left out then, and named in the log.
    pub(super) keep: Keep<R, K>,
    /// How it is said.
    pub(super) event: fn(News<K>) -> Event,
    pub(super) events: mpsc::Sender<Event>,
    /// What was said of those that cannot be read.
    pub(super) unread: ReasonLog,
}

/// How far a follower is.
struct Progress<K> {
    /// The version up to which all is said; none: the list is to be made.
    version: Option<String>,
    /// What the list is to have, if there was one before.
    known: Option<Known>,
    /// The list that is being made.
    listing: Listing<K>,
}

/// What is kept of an object, if anything.
pub(super) type Keep<R, K> = Box<dyn Fn(Object<R>) -> Result<Option<K>, String> + Send + Sync>;

impl<R: Kind, K> Follower<R, K> {
    /// Runs until no listener is left.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::default();
        let mut progress = Progress::default();
        while !self.events.is_closed() {
            let begun = Instant::now();
            let mut after = Duration::ZERO;
            match self.attempt(&mut progress).await {
                // A watch that lasted is no failure: another one follows at once, however often that happens.
                Ok(()) if begun.elapsed() >= LASTED => backoff = Backoff::default(),
                Ok(()) => {}
                Err(failure) => {
                    self.say_answered(&failure).await;
                    after = failure.after();
                    progress.note(&failure);
                    if !matches!(failure, Failure::Expired) {
                        self.say(News::Unreachable(failure.into_words())).await;
                    }
                }
            }
            sleep(after + backoff.next()).await;
        }
    }

    /// Lists if it must, and watches until the watch ends, as each does after some minutes.
    async fn attempt(&mut self, progress: &mut Progress<K>) -> Result<(), Failure> {
        let api = Api::connect(self.kubeconfig.as_deref()).await?;
        let is_resumed = progress.version.is_some();
        let from = match progress.version.take() {
            Some(version) => version,
            None => self.list(&api, progress).await?,
        };
        let from = progress.version.insert(from);
        let mut watch = pin!(api.watch::<R>(from).await?);
        // One that goes on where another ended may be answered with a version that is forgotten, and only then.
        let mut is_accepted = !is_resumed;
        if is_accepted {
            self.say_watched().await;
        }
        loop {
            let patience = if is_accepted { R::SILENCE_MAX } else { REFUSAL };
            let event = match timeout(patience, watch.try_next()).await {
                Ok(Ok(Some(WatchEvent::Error(status)))) => {
                    return Err(api.failure(kube::Error::Api(status)));
                }
                Ok(Ok(Some(event))) => Some(event),
                Ok(Err(error @ (kube::Error::SerdeError(_) | kube::Error::Api(_)))) => {
                    return Err(api.failure_in_watch(error));
                }
                Err(_) if !is_accepted => None,
                // Silence ends it, too. An error of the connection is not one of the API server: the next attempt
                // shows which it is.
                Ok(Ok(None) | Err(_)) | Err(_) => return Ok(()),
            };
            if !is_accepted {
                self.say_watched().await;
                is_accepted = true;
            }
            if let Some(event) = event {
                self.take(event, from).await;
            }
        }
    }

    /// Says what an event of a watch is about, and goes on after its version.
    async fn take(&mut self, event: WatchEvent<Object<R>>, version: &mut String) {
        *version = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let (name, at) = (object.name.clone(), object.version.clone());
                let (kept, why) = read((self.keep)(object));
                self.unread.say_of_many(R::NAME, &BTreeMap::from([(name.as_str(), why)]));
                self.say(match kept {
                    Some(kept) => News::One(name, kept),
                    None => News::Gone(name),
                })
                .await;
                at
            }
            WatchEvent::Deleted(object) => {
                let subject = format!("{} {}", R::NAME, object.name);
                self.unread.retain(|what| what != subject);
                self.say(News::Gone(object.name)).await;
                object.version
            }
            WatchEvent::Bookmark(bookmark) => bookmark.metadata.resource_version,
            WatchEvent::Error(_) => return,
        };
    }

    /// Says all of them, and returns the version of the list.
    async fn list(&mut self, api: &Api, progress: &mut Progress<K>) -> Result<String, Failure> {
        let Progress { known, listing, .. } = progress;
        loop {
            let page = api.list::<R>(listing.next::<R>(known.as_ref())).await?;
            let Some(version) = listing.take(page, &self.keep) else { continue };
            let Listing { all, unread, objects, .. } = mem::take(listing);
            *known = Some(Known { version: version.clone(), objects, is_doubted: false });
            self.say_unread(&all, &unread);
            self.say(News::All(all)).await;
            return Ok(version);
        }
    }

    /// Says which of a list cannot be read.
    fn say_unread(&mut self, all: &[(String, K)], unread: &BTreeMap<String, String>) {
        let well = all.iter().map(|(name, _)| (name.as_str(), None));
        let unread = unread.iter().map(|(name, why)| (name.as_str(), Some(why.clone())));
        let whys: BTreeMap<&str, Option<String>> = well.chain(unread).collect();
        self.unread.say_of_many(R::NAME, &whys);
        let begin = format!("{} ", R::NAME);
        self.unread.retain(|what| what.strip_prefix(&begin).is_some_and(|name| whys.contains_key(name)));
    }

    async fn say_watched(&self) {
        self.say(News::Watched).await;
        let _ = self.events.send(Event::Answered(R::NAME, Ok(()))).await;
    }

    /// Says whether an API server has answered a call that failed. Where none could be made, nothing is known of that.
    async fn say_answered(&self, failure: &Failure) {
        let answered = match failure {
            Failure::Unasked(_) | Failure::Silent(_, None) => return,
            Failure::Silent(_, Some(at)) | Failure::Unfinished(_, Some(at)) => Err(*at),
            Failure::Expired
            | Failure::Unfinished(_, None)
            | Failure::Refused(_)
            | Failure::Busy(..)
            | Failure::Behind(..)
            | Failure::Garbled(_) => Ok(()),
        };
        let _ = self.events.send(Event::Answered(R::NAME, answered)).await;
    }

    /// That no listener is left is seen at the next attempt.
    async fn say(&self, news: News<K>) {
        let _ = self.events.send((self.event)(news)).await;
    }
}

impl<K> Default for Progress<K> {
    fn default() -> Progress<K> {
        Progress { version: None, known: None, listing: Listing::default() }
    }
}

impl<K> Progress<K> {
    /// What follows from a failure for where to go on.
    fn note(&mut self, failure: &Failure) {
        match failure {
            Failure::Unasked(_) | Failure::Silent(..) | Failure::Busy(..) => {}
            Failure::Refused(_) => self.listing.note_refusal(),
            // What was too much at once would be so again, and all nodes would ask for it: pages are less.
            Failure::Unfinished(..) => {
                if self.version.is_none() {
                    self.known = None;
                }
            }
            // A token is forgotten as a version is. What a watch could not read would come first again, and nothing
            // behind it.
            Failure::Expired | Failure::Garbled(_) => {
                self.listing = Listing::default();
                if let (Some(version), Some(known)) = (self.version.take(), &mut self.known) {
                    (known.version, known.is_doubted) = (version, false);
                }
            }
            // One that lags comes up to it. If it does not, it may be that no API server will ever know it: their store
            // was put back to an earlier state.
            Failure::Behind(..) => {
                self.known = self.known.take().filter(|known| !known.is_doubted);
                self.known.iter_mut().for_each(|known| known.is_doubted = true);
            }
        }
    }
}

/// What is kept of an object, and what is to be said of one that cannot be read.
fn read<K>(kept: Result<Option<K>, String>) -> (Option<K>, Option<String>) {
    match kept {
        Ok(kept) => (kept, None),
        Err(why) => (None, Some(format!("it cannot be read, and is left out: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::source::kubernetes::service::EndpointSlice;

    fn follower() -> (Follower<EndpointSlice, KeptSlice>, mpsc::Receiver<Event>) {
        let (events, said) = mpsc::channel(8);
        let keep: Keep<EndpointSlice, KeptSlice> = Box::new(|slice| Ok(KeptSlice::of(slice.fields?, "own")));
        let unread = ReasonLog::default();
        (Follower { kubeconfig: None, keep, event: Event::Slices, events, unread }, said)
    }

    fn event(kind: &str, version: &str, endpoints: &Value) -> WatchEvent<Object<EndpointSlice>> {
        let event = json!({ "type": kind, "object": {
            "metadata": {
                "name": "web-x", "namespace": "default", "resourceVersion": version,
                "labels": { "kubernetes.io/service-name": "web" },
            },
            "addressType": "IPv4", "endpoints": endpoints,
        } });
        serde_json::from_value(event).unwrap()
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_read_is_left_out_and_the_watch_goes_on_behind_it() {
        let (mut follower, mut said) = follower();
        let mut version = String::new();
        let well = json!([{ "addresses": ["10.244.1.2"] }]);
        let news = [("ADDED", "4", &well), ("MODIFIED", "5", &json!(7)), ("MODIFIED", "6", &well)];
        for (kind, at, endpoints) in news {
            follower.take(event(kind, at, endpoints), &mut version).await;
            assert_eq!(version, at);
            match said.recv().await {
                Some(Event::Slices(News::One(name, _))) if endpoints == &well => {
                    assert_eq!(name, "default/web-x");
                }
                Some(Event::Slices(News::Gone(name))) if endpoints != &well => {
                    assert_eq!(name, "default/web-x");
                }
                other => panic!("{at}: {other:?}"),
            }
        }
    }
}
