//! The task: connects, reads, watches, reports, and begins again after any failure. `hold` looks after the node's own
//! lease meanwhile.

mod hold;

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use datapath::Prefixes;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::choice::Own;
use super::client::{Client, Moment, Watch, WatchReport};
use super::view::View;
use super::{EtcdSource, Failure, wire};
use crate::backoff::Backoff;
use crate::lease::{Announcement, Snapshot};

/// How long changes are gathered before they are reported. When a thousand nodes start at once, each change alone would
/// be a snapshot of a thousand.
const GATHER: Duration = Duration::from_millis(20);
/// How long after a lost race the lease is looked at again.
const AFTER_RACE: Duration = Duration::from_millis(100);

/// Runs until no receiver of snapshots is left. The node's lease stays in the store: the node may come back.
pub(super) async fn run(
    source: EtcdSource,
    announced: watch::Receiver<Option<Announcement>>,
    snapshots: watch::Sender<Snapshot>,
) {
    let root = source.prefix.trim_end_matches('/');
    let mut task = Task {
        config_key: format!("{root}/config"),
        below: format!("{root}/subnets/").into_bytes(),
        previous: source.previous.clone(),
        source,
        announced,
        snapshots: &snapshots,
        network: None,
        view: View::default(),
        next_revision: None,
        seen: None,
        own: None,
        may_claim: true,
        held: Prefixes::default(),
        races: 0,
        look_at: None,
        renew_at: None,
        trouble: None,
        warned: None,
    };
    tokio::select! {
        () = snapshots.closed() => {}
        never = task.keep_trying() => match never {},
    }
}

struct Task<'a> {
    source: EtcdSource,
    announced: watch::Receiver<Option<Announcement>>,
    snapshots: &'a watch::Sender<Snapshot>,
    config_key: String,
    /// What the keys of leases begin with.
    below: Vec<u8>,
    /// The configuration as it was last there.
    network: Option<Value>,
    view: View,
    /// The first revision of which the view may lack changes of leases; none if they have to be read as a whole.
    next_revision: Option<i64>,
    /// The latest moment of the store of which we know.
    seen: Option<Moment>,
    own: Option<Own>,
    /// No lease was held yet: one with the node's key may be what the node had before it got another address. Later it
    /// is another machine's, which has a copy of the key.
    may_claim: bool,
    /// The prefixes of the node's pods, also while the key that says so is gone.
    held: Prefixes,
    /// Those to be taken if they are free.
    previous: Prefixes,
    races: u32,
    /// When to look after the node's own lease and to report what has changed.
    look_at: Option<Instant>,
    renew_at: Option<Instant>,
    /// Why the store cannot be used.
    trouble: Option<String>,
    /// What was logged last of the node's own lease, which is looked at much more often than it changes.
    warned: Option<String>,
}

impl Task<'_> {
    async fn keep_trying(&mut self) -> Infallible {
        let mut backoff = Backoff::default();
        // Each node begins with another member.
        let mut turn = draw(self.source.endpoints.len().max(1));
        loop {
            let endpoint = self.source.endpoints.get(turn % self.source.endpoints.len().max(1)).cloned();
            let Err(failure) = self.session(endpoint).await;
            self.report_failure(&failure);
            sleep(backoff.next()).await;
            turn = turn.wrapping_add(1);
        }
    }

    /// One connection, until it fails.
    async fn session(&mut self, endpoint: Option<String>) -> Result<Infallible, Failure> {
        let endpoint = endpoint.ok_or(Failure::NoEndpoint)?;
        let client = Client::connect(&endpoint, &self.source.tls, self.source.login.as_ref()).await?;
        loop {
            let since = self.read(&client, &endpoint).await?;
            if let Err(failure) = self.look(&client).await {
                // Where reading is allowed and writing is not, no watch will report what changes.
                self.next_revision = None;
                return Err(failure);
            }
            let leases = self.next_revision.unwrap_or(since);
            let config = self.config_key.clone().into_bytes();
            let watches = vec![
                wire::WatchCreate { key: config, range_end: Vec::new(), start_revision: since },
                wire::WatchCreate {
                    key: self.below.clone(),
                    range_end: end_of(&self.below),
                    start_revision: leases,
                },
            ];
            let count = watches.len();
            let watch = client.watch(watches).await?;
            self.follow(&client, watch, count).await?;
            tracing::debug!(
                "etcd has compacted changes away that were not reported; reading all leases again"
            );
            self.next_revision = None;
        }
    }

    /// Reads the configuration, and the leases if what has changed of them cannot be asked for. Otherwise a few of them
    /// show whether the store has what it had: one that was wiped, and filled beyond the revision that it had, reports
    /// no deletion. Returns the revision from which on the configuration is to be watched.
    async fn read(&mut self, client: &Client, endpoint: &str) -> Result<i64, Failure> {
        loop {
            let range = |key: Vec<u8>, range_end| wire::Operation {
                range: Some(wire::RangeRequest { key, range_end }),
                ..wire::Operation::default()
            };
            let mut success = vec![range(self.config_key.clone().into_bytes(), Vec::new())];
            let known = self
                .next_revision
                .map(|_| self.view.witnesses(self.own.as_ref().map(|own| own.name.as_str())));
            match &known {
                Some(names) => success.extend(names.iter().map(|name| range(self.key_of(name), Vec::new()))),
                None => success.push(range(self.below.clone(), end_of(&self.below))),
            }
            let read = client.commit(wire::Transaction { compare: Vec::new(), success }).await?;
            if self.is_other_store(read.at, endpoint)? {
                self.seen = None;
                if self.next_revision.take().is_some() {
                    continue;
                }
            }
            let mut found = read.found.into_iter();
            let config = found.next().into_iter().flatten().next();
            let is_so = |name: &String| {
                let entry = found.next().into_iter().flatten().next();
                entry.is_some_and(|entry| self.view.is_so(name, &entry))
            };
            if !known.iter().flatten().all(is_so) {
                tracing::debug!("etcd at {endpoint} no longer has what it had; reading all leases again");
                self.next_revision = None;
                continue;
            }
            match config {
                Some(config) => self.network = Some(network(&config.value)),
                // The one that was read before holds where it was deleted since. A store that never had one is
                // not the one meant.
                None if self.seen.is_some() && self.network.is_some() => {}
                None => return Err(Failure::NoConfig(self.config_key.clone())),
            }
            self.seen = Some(read.at);
            if let Some(leases) = found.next() {
                self.view = View::of(&leases, &self.below);
                self.next_revision = Some(read.at.revision + 1);
            }
            return Ok(read.at.revision + 1);
        }
    }

    fn key_of(&self, name: &str) -> Vec<u8> {
        [&self.below, name.as_bytes()].concat()
    }

    /// Whether the endpoint has another store than before, such as one restored from a backup,
    /// whose revisions begin again.
    ///
    /// # Errors
    /// It is the same, and behind what it was.
    fn is_other_store(&self, at: Moment, endpoint: &str) -> Result<bool, Failure> {
        match self.seen {
            Some(seen) if seen.cluster_id != at.cluster_id => {
                tracing::warn!(
                    "etcd at {endpoint} is another cluster than before; reading all leases from it"
                );
                Ok(true)
            }
            Some(seen) if seen.revision > at.revision => {
                Err(Failure::Stale { endpoint: endpoint.to_owned(), found: at.revision, seen: seen.revision })
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Follows what changes; ends when changes are lost. `absent` is the number of watches that do not stand yet.
    async fn follow(&mut self, client: &Client, mut watch: Watch, mut absent: usize) -> Result<(), Failure> {
        loop {
            let (look_at, renew_at) = (self.look_at, self.renew_at);
            tokio::select! {
                // In this order: a store in which something changes all the time must not delay the rest.
                biased;
                () = until(look_at) => self.look(client).await?,
                () = until(renew_at) => self.look(client).await?,
                () = changed(&mut self.announced) => self.look(client).await?,
                report = watch.next() => match report? {
                    WatchReport::Compacted => return Ok(()),
                    WatchReport::Changed(events) => self.apply(&events),
                    WatchReport::Created => {
                        absent = absent.saturating_sub(1);
                        if absent == 0 {
                            self.stand();
                        }
                    }
                },
            }
        }
    }

    fn apply(&mut self, events: &[wire::Event]) {
        for event in events {
            let Some(kv) = &event.kv else { continue };
            if let Some(seen) = &mut self.seen {
                seen.revision = seen.revision.max(kv.mod_revision);
            }
            if kv.key == self.config_key.as_bytes() {
                match event.kind {
                    0 => self.network = Some(network(&kv.value)),
                    _ => tracing::warn!(
                        "{} was deleted from etcd; the network stays as it was",
                        self.config_key
                    ),
                }
            } else {
                self.view.apply(event, &self.below);
                self.next_revision = self.next_revision.max(Some(kv.mod_revision + 1));
            }
        }
        self.look_within(GATHER);
    }

    /// Looks after the node's own lease, and reports what is known.
    async fn look(&mut self, client: &Client) -> Result<(), Failure> {
        self.look_at = None;
        let looked = self.look_after_own(client).await;
        // Also if that failed: what the others have said is known.
        self.publish();
        looked
    }

    fn look_within(&mut self, wait: Duration) {
        let at = Instant::now() + wait;
        self.look_at = Some(self.look_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// The store can be used.
    fn stand(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!("etcd can be used again");
        }
        self.publish();
    }

    fn report_failure(&mut self, failure: &Failure) {
        let trouble = failure.to_string();
        match self.trouble {
            None => tracing::warn!("{trouble}; what etcd said last stays"),
            Some(_) => tracing::debug!("{trouble}"),
        }
        self.trouble = Some(trouble.clone());
        self.snapshots.send_if_modified(|published| published.unreachable.replace(trouble) != self.trouble);
    }

    fn publish(&self) {
        let own = self.own.as_ref().map(|own| own.name.as_str());
        let public = self.announced.borrow().as_ref().map(|node| node.public).unwrap_or_default();
        let snapshot = Snapshot {
            network: self.network.clone(),
            own: self.held.clone(),
            own_missing: self.warned.clone().filter(|_| self.held.families().is_empty()),
            others: self.view.others(own, public),
            services: None,
            unled: None,
            unreachable: self.trouble.clone(),
        };
        self.snapshots.send_if_modified(|published| {
            let is_other = *published != snapshot;
            *published = snapshot;
            is_other
        });
    }
}

/// The configuration as JSON. A text that is not JSON is passed on as it is, and the code that needs the network
/// says what is wrong.
fn network(value: &[u8]) -> Value {
    serde_json::from_slice(value).unwrap_or_else(|_| String::from_utf8_lossy(value).into())
}

/// The end of the range of all keys that begin so.
fn end_of(begin: &[u8]) -> Vec<u8> {
    let mut end = begin.to_vec();
    if let Some(last) = end.last_mut() {
        // It is a slash.
        *last += 1;
    }
    end
}

/// A number below `below`, another one on each node: the standard library seeds its maps with randomness.
fn draw(below: usize) -> usize {
    let number = RandomState::new().hash_one(below);
    usize::try_from(number % (below as u64)).unwrap_or(0)
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits for another announcement; for ever if there will be none.
async fn changed(announced: &mut watch::Receiver<Option<Announcement>>) {
    if announced.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
