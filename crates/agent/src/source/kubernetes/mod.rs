//! Kubernetes as a lease source: the nodes' prefixes are in `Node.spec.podCIDRs`, and how a node is reached is in its
//! annotations, those of flannel, so that the nodes of one cluster can be flannel's and ours.
//!
//! Several tasks share the work. One lists the nodes and watches them, two more do so with Services and their endpoints
//! if they are asked for, one writes this node's annotations, and the last keeps what is known and says it.

mod annotations;
mod announce;
mod api;
mod change;
mod cluster_view;
mod follow;
mod kind;
mod listing;
mod node;
mod service;
mod services;
mod trouble_log;
mod tunnel;
mod way;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::select;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

pub use annotations::PREFIX;

use self::annotations::Names;
use self::announce::{Announcer, WantedStatus};
use self::api::Api;
use self::change::Change;
use self::cluster_view::ClusterView;
use self::follow::{Event, Follower};
use self::kind::Object;
use self::node::{Kept, Node};
use self::service::{EndpointSlice, KeptService, KeptSlice, Service};
use self::services::KnownServices;
use self::trouble_log::{Subject, TroubleLog};
use super::LeaseSource;
use crate::lease::{Announcement, Snapshot};
use crate::reason_log::ReasonLog;

/// From the first change to the snapshot that has it, so that many changes at once are one.
const BURST: Duration = Duration::from_millis(20);
/// How often the file of the network is read if nothing else happens.
const READING: Duration = Duration::from_secs(30);
/// Events that may wait; then the watch waits.
const EVENTS_MAX: usize = 128;

/// The leases of a cluster's nodes, as its API server has them.
///
/// It needs the rights of `deploy/agent/rbac.yaml`: to list and watch nodes, and to patch the status of nodes. With
/// Services it needs those of `deploy/services/rbac.yaml` too: to list and watch Services and EndpointSlices.
#[derive(Debug, Clone)]
pub struct KubernetesSource {
    /// This node's name in the cluster.
    pub node: String,
    /// How to reach the API server, and as whom; `None`: as a pod does, with what the kubelet gives it.
    pub kubeconfig: Option<PathBuf>,
    /// The file with the configuration of the network (`net-conf.json`).
    pub network: PathBuf,
    /// What the names of the annotations begin with, usually [`PREFIX`].
    pub annotation_prefix: String,
    /// Whether to report to Kubernetes that the node's network is there (`NetworkUnavailable` is false) when the node
    /// is announced. Clouds without routes for pods keep pods away from a node until this is reported.
    pub set_condition: bool,
    /// Whether to say where calls of the cluster's Services are to be led.
    pub services: bool,
}

/// Deletes a namespace with all that is in it, as whom the kubelet makes a pod. Tried again for a minute: a pod that
/// has just begun may not reach the API server yet.
///
/// # Errors
/// What the API server answers, in words; that there is no such namespace any more is none.
pub async fn delete_namespace(name: &str) -> Result<(), String> {
    let until = Instant::now() + DELETING_MAX;
    loop {
        let deleted = match Api::connect(None).await {
            Ok(api) => api.delete_namespace(name).await,
            Err(failure) => Err(failure),
        };
        match deleted {
            Ok(()) => return Ok(()),
            Err(_) if Instant::now() < until => tokio::time::sleep(AGAIN).await,
            Err(failure) => return Err(failure.into_words()),
        }
    }
}

/// How long the deletion of a namespace is tried, and between two tries.
const DELETING_MAX: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(1);

impl LeaseSource for KubernetesSource {
    /// Starts it.
    ///
    /// Until the nodes were listed for the first time, `unreachable` says so. The node announces itself as soon as it
    /// has prefixes and an address. Overwrites by an administrator (`public-ip-overwrite`) win.
    ///
    /// # Panics
    /// Outside of tokio's runtime.
    fn start(self, own: watch::Receiver<Option<Announcement>>) -> watch::Receiver<Snapshot> {
        let view = ClusterView::new(&self.node, self.services);
        let (snapshots, receiver) = watch::channel(view.snapshot(Instant::now()));
        let names = Names::new(&self.annotation_prefix);
        let keeper = Keeper {
            wanted: watch::channel(None).0,
            source: self,
            names,
            own,
            view,
            snapshots,
            troubles: TroubleLog::default(),
        };
        tokio::spawn(keeper.run());
        receiver
    }
}

/// The task that keeps what is known, and says it.
struct Keeper {
    source: KubernetesSource,
    names: Names,
    own: watch::Receiver<Option<Announcement>>,
    view: ClusterView,
    /// What is to be written on this node, for the task that writes.
    wanted: watch::Sender<Option<WantedStatus>>,
    snapshots: watch::Sender<Snapshot>,
    troubles: TroubleLog,
}

impl Keeper {
    async fn run(mut self) {
        let (sender, mut events) = mpsc::channel(EVENTS_MAX);
        // The other tasks end with this one.
        let mut tasks = JoinSet::new();
        let (kubeconfig, node) = (self.source.kubeconfig.clone(), self.source.node.clone());
        let announcer =
            Announcer { kubeconfig, node, wanted: self.wanted.subscribe(), events: sender.clone() };
        tasks.spawn(announcer.run());
        self.follow(&mut tasks, &sender);
        drop(sender);

        let mut due = Instant::now();
        let mut may_change = true;
        loop {
            due = self.view.next_turn(Instant::now()).map_or(due, |turn| due.min(turn));
            let change = select! {
                () = self.snapshots.closed() => return,
                Some(event) = events.recv() => self.view.take(event, Instant::now()),
                // They end only if they panic. Then nothing new would come, and the receivers see that
                // the sender is gone.
                _ = tasks.join_next() => return,
                changed = self.own.changed(), if may_change => {
                    // Without a sender what it said last is announced for good.
                    may_change = changed.is_ok();
                    Change::Own
                }
                () = sleep_until(due) => {
                    self.read_network().await;
                    self.publish();
                    due = Instant::now() + READING;
                    Change::Nothing
                }
            };
            if matches!(change, Change::Own | Change::All) {
                self.announce(change);
            }
            if change != Change::Nothing {
                due = due.min(Instant::now() + BURST);
            }
        }
    }

    /// Starts the tasks that list and watch.
    fn follow(&self, tasks: &mut JoinSet<()>, events: &mpsc::Sender<Event>) {
        let KubernetesSource { kubeconfig, node, services, .. } = self.source.clone();
        let (own, names) = (node.clone(), self.names.clone());
        let nodes = Follower {
            kubeconfig: kubeconfig.clone(),
            keep: Box::new(move |node: Object<Node>| {
                Ok(Some(Kept::of(node, &own, &names)).filter(|kept| *kept != Kept::Silent))
            }),
            event: Event::Nodes,
            events: events.clone(),
            unread: ReasonLog::default(),
        };
        tasks.spawn(nodes.run());
        if !services {
            return;
        }
        let of_services = Follower::<Service, KeptService> {
            kubeconfig: kubeconfig.clone(),
            keep: Box::new(|service| Ok(KeptService::of(service.fields?))),
            event: Event::Services,
            events: events.clone(),
            unread: ReasonLog::default(),
        };
        tasks.spawn(of_services.run());
        let of_slices = Follower::<EndpointSlice, KeptSlice> {
            kubeconfig,
            keep: Box::new(move |slice| Ok(KeptSlice::of(slice.fields?, &node))),
            event: Event::Slices,
            events: events.clone(),
            unread: ReasonLog::default(),
        };
        tasks.spawn(of_slices.run());
    }

    /// Says what is to be written on this node. The same is said again only after a list: what was written before it
    /// was made may not have been kept.
    fn announce(&mut self, change: Change) {
        let wanted = self.wanted();
        self.wanted.send_if_modified(|before| {
            let is_new = change == Change::All || *before != wanted;
            *before = wanted;
            is_new
        });
    }

    /// What is to be written; nothing if all of it is there, or if the node cannot be reached yet.
    fn wanted(&mut self) -> Option<WantedStatus> {
        let announcement = self.own.borrow_and_update().clone()?;
        let own = self.view.own.as_ref()?;
        let has_pods = own.pods.as_ref().is_ok_and(|pods| !pods.families().is_empty());
        if !has_pods || announcement.public.families().is_empty() {
            return None;
        }
        let (changes, wrong) = annotations::changes(&self.names, &announcement, &own.annotations);
        self.troubles.about(Subject::Overwrite, wrong.as_deref());
        let is_available = self.source.set_condition && !own.is_available;
        (!changes.is_empty() || is_available).then_some(WantedStatus { changes, is_available })
    }

    /// Reads the file of the network. It is small, and its text shows more reliably than its time
    /// whether it has changed.
    async fn read_network(&mut self) {
        match network(&self.source.network).await {
            Ok(network) => self.view.network = (Some(network), None),
            Err(why) => self.view.network.1 = Some(why),
        }
    }

    fn publish(&mut self) {
        if self.wanted.borrow().is_none() {
            // It failed, and is no longer wanted.
            self.view.unannounced = None;
        }
        let ClusterView { unreachable, unannounced, network, .. } = &self.view;
        self.troubles.about(Subject::Nodes, unreachable.as_deref());
        self.troubles.about(Subject::Announcement, unannounced.as_deref());
        self.troubles.about(Subject::Network, network.1.as_deref());
        self.troubles.about(Subject::Prefixes, self.view.unassigned().as_deref());
        let services = self.view.services.as_ref().and_then(KnownServices::trouble);
        self.troubles.about(Subject::Services, services);
        let snapshot = self.view.snapshot(Instant::now());
        self.snapshots.send_if_modified(|before| {
            let is_new = *before != snapshot;
            *before = snapshot;
            is_new
        });
    }
}

/// The configuration of the network in a file.
async fn network(path: &Path) -> Result<Value, String> {
    let text = tokio::fs::read(path).await.map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use datapath::{Addresses, Prefixes};
    use ipnet::IpNet;

    use super::annotations::Annotations;
    use super::follow::News;
    use super::node::OwnNode;
    use super::*;

    fn keeper() -> Keeper {
        let own = Announcement {
            public: Addresses { v4: Some([192, 0, 2, 1].into()), v6: None },
            backend: "host-gw".to_owned(),
            data: None,
            data_v6: None,
        };
        Keeper {
            source: KubernetesSource {
                node: "own".to_owned(),
                kubeconfig: None,
                network: PathBuf::new(),
                annotation_prefix: PREFIX.to_owned(),
                set_condition: false,
                services: false,
            },
            names: Names::new(PREFIX),
            own: watch::channel(Some(own)).1,
            view: ClusterView::new("own", false),
            wanted: watch::channel(None).0,
            snapshots: watch::channel(Snapshot::default()).0,
            troubles: TroubleLog::default(),
        }
    }

    /// The node was seen with annotations.
    fn see(keeper: &mut Keeper, annotations: &[(&str, &str)], in_a_list: bool) {
        let name = |(name, text): &(&str, &str)| (format!("{PREFIX}/{name}"), (*text).to_owned());
        let annotations: Annotations = annotations.iter().map(name).collect();
        let pods: Prefixes = ["10.1.0.0/24".parse::<IpNet>().unwrap()].into_iter().collect();
        let kept = Kept::Own(OwnNode { pods: Ok(pods), annotations, is_available: false });
        let event = match in_a_list {
            true => Event::Nodes(News::All(vec![("own".to_owned(), kept)])),
            false => Event::Nodes(News::One("own".to_owned(), kept)),
        };
        let change = keeper.view.take(event, Instant::now());
        keeper.announce(change);
    }

    #[test]
    fn what_is_being_written_is_not_written_again() {
        let mut keeper = keeper();
        let mut wanted = keeper.wanted.subscribe();
        let mut is_new = || {
            let is_new = wanted.has_changed().unwrap();
            wanted.mark_unchanged();
            is_new
        };
        let there = [
            ("kube-subnet-manager", "true"),
            ("backend-type", "host-gw"),
            ("backend-data", "null"),
            ("public-ip", "192.0.2.1"),
        ];
        see(&mut keeper, &[], false);
        assert!(is_new());
        // Another change of the node comes before that one does.
        see(&mut keeper, &[("another", "1")], false);
        assert!(!is_new());
        // A list may be older than the change or not have it at all.
        see(&mut keeper, &[("another", "1")], true);
        assert!(is_new());
        see(&mut keeper, &there, false);
        assert_eq!(*keeper.wanted.borrow(), None);
        assert!(is_new());
        // Somebody removes one.
        see(&mut keeper, &there[1..], false);
        assert!(is_new());
        assert_eq!(keeper.wanted.borrow().as_ref().unwrap().changes.len(), 1);
    }
}
