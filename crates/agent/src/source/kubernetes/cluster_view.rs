//! What the API server has last reported of the cluster, from which snapshots are made.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::time::Instant;

use super::change::Change;
use super::follow::{Event, News};
use super::node::{Kept, OwnNode};
use super::services::KnownServices;
use super::way::WayToServer;
use crate::lease::{Lease, Snapshot};

/// What the API server has last reported: this node, the other nodes, Services, and what could not be read.
#[derive(Debug)]
pub(super) struct ClusterView {
    /// The name of this node's object in the API.
    name: String,
    /// The configuration of the network that was read last, and why a newer one could not be read.
    pub(super) network: (Option<Value>, Option<String>),
    /// This node; none if the API server has none of its name.
    pub(super) own: Option<OwnNode>,
    others: BTreeMap<String, Result<Lease, String>>,
    /// Whether the nodes have been listed once.
    is_listed: bool,
    /// Why they cannot be watched.
    pub(super) unreachable: Option<String>,
    /// Why what this node announces cannot be written.
    pub(super) unannounced: Option<String>,
    /// The cluster's Services, if they are asked for.
    pub(super) services: Option<KnownServices>,
    way: WayToServer,
}

impl ClusterView {
    /// A view in which nothing is reported yet; Services are in it if they are to be watched.
    pub(super) fn new(name: &str, with_services: bool) -> ClusterView {
        ClusterView {
            name: name.to_owned(),
            network: (None, None),
            own: None,
            others: BTreeMap::new(),
            is_listed: false,
            unreachable: None,
            unannounced: None,
            services: with_services.then(KnownServices::default),
            way: WayToServer::default(),
        }
    }

    /// Takes over what an event reports, and returns what that changes of the snapshot.
    pub(super) fn take(&mut self, event: Event, now: Instant) -> Change {
        match event {
            Event::Nodes(news) => self.take_nodes(news),
            Event::Services(news) => {
                self.services.as_mut().map_or(Change::Nothing, |services| services.take_services(news))
            }
            Event::Slices(news) => {
                self.services.as_mut().map_or(Change::Nothing, |services| services.take_slices(news))
            }
            Event::Answered(kind, answered) => self.way.note(kind, answered, now),
            Event::Announced(written) => replaced(&mut self.unannounced, written.err()),
        }
    }

    fn take_nodes(&mut self, news: News<Kept>) -> Change {
        match news {
            News::All(nodes) => {
                (self.own, self.is_listed) = (None, true);
                self.others.clear();
                for (name, kept) in nodes {
                    self.keep(name, kept);
                }
                Change::All
            }
            News::One(name, kept) => self.keep(name, kept),
            News::Gone(name) if name == self.name => own_if(replaced(&mut self.own, None)),
            News::Gone(name) => self.forget(&name),
            News::Watched => replaced(&mut self.unreachable, None),
            News::Unreachable(why) => replaced(&mut self.unreachable, Some(why)),
        }
    }

    /// The snapshot of all this. Before the first list it is not whole, and says so.
    pub(super) fn snapshot(&self, now: Instant) -> Snapshot {
        let own = self.own.as_ref().and_then(|own| own.pods.clone().ok());
        let unlisted = (!self.is_listed).then_some("they were not listed yet");
        let nodes = self.unreachable.as_deref().or(unlisted);
        let nodes = nodes.map(|why| format!("the nodes are not watched: {why}"));
        let announcement = self.unannounced.as_ref().map(|why| format!("this node is not announced: {why}"));
        let network = self.network.1.as_ref().map(|why| format!("the network's configuration: {why}"));
        let services = self.services.as_ref().and_then(KnownServices::unreachable);
        let services = services.map(|why| format!("the Services are not watched: {why}"));
        let troubles: Vec<String> = [nodes, announcement, network, services].into_iter().flatten().collect();
        Snapshot {
            network: self.network.0.clone(),
            own: own.unwrap_or_default(),
            own_missing: self.unassigned(),
            others: self.others.clone(),
            services: self.services.as_ref().and_then(KnownServices::led),
            unled: self.way.unled(now).filter(|_| self.services.is_some()),
            unreachable: (!troubles.is_empty()).then(|| troubles.join("; ")),
        }
    }

    /// When a snapshot becomes another one by itself.
    pub(super) fn next_turn(&self, now: Instant) -> Option<Instant> {
        self.way.next_turn(now)
    }

    /// Why this node's pods have no prefixes; nothing if they have, or if the node was not asked for yet.
    pub(super) fn unassigned(&self) -> Option<String> {
        match &self.own {
            None if !self.is_listed => None,
            None => Some(format!("there is no node {}", self.name)),
            Some(OwnNode { pods: Ok(pods), .. }) if pods.families().is_empty() => {
                Some(format!("node {} has no podCIDR", self.name))
            }
            Some(OwnNode { pods: Ok(_), .. }) => None,
            Some(OwnNode { pods: Err(why), .. }) => Some(format!("node {}: {why}", self.name)),
        }
    }

    fn keep(&mut self, name: String, kept: Kept) -> Change {
        match kept {
            Kept::Own(own) => own_if(replaced(&mut self.own, Some(own))),
            Kept::Peer(lease) if self.others.get(&name) == Some(&lease) => Change::Nothing,
            Kept::Peer(lease) => {
                self.others.insert(name, lease);
                Change::Snapshot
            }
            Kept::Silent => self.forget(&name),
        }
    }

    fn forget(&mut self, name: &str) -> Change {
        self.others.remove(name).map_or(Change::Nothing, |_| Change::Snapshot)
    }
}

/// Puts a value in the place of another.
fn replaced<T: PartialEq>(place: &mut T, value: T) -> Change {
    let change = if *place == value { Change::Nothing } else { Change::Snapshot };
    *place = value;
    change
}

/// A change of a snapshot that is about this node.
fn own_if(change: Change) -> Change {
    if change == Change::Nothing { Change::Nothing } else { Change::Own }
}

#[cfg(test)]
mod tests {
    use datapath::Prefixes;

    use super::*;
    use crate::source::kubernetes::annotations::Annotations;

    fn own(cidr: &str) -> Kept {
        let pods: Prefixes = [cidr.parse::<ipnet::IpNet>().unwrap()].into_iter().collect();
        Kept::Own(OwnNode { pods: Ok(pods), annotations: Annotations::new(), is_available: false })
    }

    fn garbage(why: &str) -> Kept {
        Kept::Peer(Err(why.to_owned()))
    }

    fn all(nodes: Vec<(String, Kept)>) -> Event {
        Event::Nodes(News::All(nodes))
    }

    fn one(name: &str, kept: Kept) -> Event {
        Event::Nodes(News::One(name.to_owned(), kept))
    }

    #[test]
    fn a_list_is_whole() {
        let mut view = ClusterView::new("own", false);
        let node = |name: &str, kept| (name.to_owned(), kept);
        view.take(all(vec![node("own", own("10.0.1.0/24")), node("a", garbage("x"))]), Instant::now());
        assert_eq!(view.snapshot(Instant::now()).own.to_string(), "10.0.1.0/24");
        view.take(all(vec![node("b", garbage("x"))]), Instant::now());
        let snapshot = view.snapshot(Instant::now());
        assert_eq!(snapshot.own, Prefixes::default());
        assert_eq!(snapshot.others.into_keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn what_changes_nothing_is_known() {
        let mut view = ClusterView::new("own", false);
        let node = |kept| one("a", kept);
        let changes = [garbage("x"), garbage("x"), Kept::Silent, Kept::Silent]
            .map(|kept| view.take(node(kept), Instant::now()));
        assert_eq!(changes, [Change::Snapshot, Change::Nothing, Change::Snapshot, Change::Nothing]);
        let node = || one("own", own("10.0.1.0/24"));
        assert_eq!(
            [view.take(node(), Instant::now()), view.take(node(), Instant::now())],
            [Change::Own, Change::Nothing]
        );
        let gone = || Event::Nodes(News::Gone("own".to_owned()));
        assert_eq!(
            [view.take(gone(), Instant::now()), view.take(gone(), Instant::now())],
            [Change::Own, Change::Nothing]
        );
    }

    #[test]
    fn it_is_not_whole_before_the_first_list() {
        let mut view = ClusterView::new("own", false);
        assert!(view.snapshot(Instant::now()).unreachable.is_some());
        assert_eq!(view.unassigned(), None);
        view.take(all(Vec::new()), Instant::now());
        view.take(Event::Nodes(News::Watched), Instant::now());
        assert_eq!(view.snapshot(Instant::now()).unreachable, None);
        assert_eq!(view.unassigned(), Some("there is no node own".to_owned()));
        view.take(Event::Nodes(News::Unreachable("refused".to_owned())), Instant::now());
        assert!(view.snapshot(Instant::now()).unreachable.unwrap().contains("refused"));
    }
}
