//! Leases in etcd, in flannel's form: nodes of both kinds share a network.
//!
//! Below a prefix there is `config`, the network's configuration, and for each node a key below `subnets/` that names
//! its prefixes. Its value says how the node is reached, and an etcd lease removes it a day after the node's last sign
//! of life. A key without an etcd lease is a reservation: it stays, and only the node with its address takes it.
//!
//! Where flannel gives up, this goes on. A node's own key that is deleted is written again. etcd may be away for
//! hours, and a restarted one is asked for what has changed meanwhile, not for everything. What flannel does not look
//! for is reported: keys and values without sense, two nodes with one prefix or one address, and a store that has
//! lost what it had.

mod choice;
mod client;
mod run;
mod view;
mod wire;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use datapath::Prefixes;
use tokio::sync::watch;

use crate::lease::{Announcement, Snapshot};
use crate::source::LeaseSource;

/// Where flannel keeps its network by default.
pub const PREFIX: &str = "/coreos.com/network";
/// How long a lease outlives the last sign of life of its node. flannel has the same.
pub const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// How long before its end a lease is renewed (flannel's `--subnet-lease-renew-margin`).
pub const RENEW_MARGIN: Duration = Duration::from_secs(60 * 60);

/// etcd as a source of leases, in the layout of flannel's keys.
#[derive(Debug, Clone)]
pub struct EtcdSource {
    /// The URLs of etcd's members: `http://127.0.0.1:2379`. One of them is talked to, and the next one if it fails.
    pub endpoints: Vec<String>,
    /// What the keys begin with ([`PREFIX`]).
    pub prefix: String,
    /// For endpoints with `https`.
    pub tls: Tls,
    /// User and password, for an etcd with authentication.
    pub login: Option<Login>,
    /// The prefixes that the node had in an earlier run. It takes them again if they are free, for the sake of pods
    /// that are still there.
    pub previous: Prefixes,
    /// How long the node's lease outlives its last sign of life ([`TTL`]), in whole seconds.
    pub ttl: Duration,
    /// How long before its end the lease is renewed ([`RENEW_MARGIN`]), at most half of its life.
    pub renew_margin: Duration,
}

/// Files in PEM for encrypted connections. They are read at each connection, so they may be replaced at any time.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// The authorities that sign etcd's certificate; none means those of this machine.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key, where etcd wants to see one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd.
#[derive(Clone)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Login {
    pub user: String,
    pub password: String,
}

impl EtcdSource {
    /// The network at flannel's usual prefix, without encryption and login, for a node that had no prefixes before.
    pub fn at(endpoints: Vec<String>) -> EtcdSource {
        EtcdSource {
            endpoints,
            prefix: PREFIX.to_owned(),
            tls: Tls::default(),
            login: None,
            previous: Prefixes::default(),
            ttl: TTL,
            renew_margin: RENEW_MARGIN,
        }
    }
}

impl LeaseSource for EtcdSource {
    fn start(self, own: watch::Receiver<Option<Announcement>>) -> watch::Receiver<Snapshot> {
        let (snapshots, seen) = watch::channel(Snapshot::default());
        tokio::spawn(run::run(self, own, snapshots));
        seen
    }
}

impl fmt::Debug for Login {
    /// Leaves out the password, which would get into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Why the store cannot be used at the moment. All of it is tried again.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no endpoint of etcd is given")]
    NoEndpoint,
    #[error("{} cannot be read: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("etcd at {endpoint} cannot be reached: {why}")]
    Connect { endpoint: String, why: String },
    #[error("etcd at {endpoint} refused {what}: {why}")]
    Refused { endpoint: String, what: &'static str, why: String },
    #[error("etcd at {endpoint} did not answer {what} within {} s", patience.as_secs())]
    Late { endpoint: String, what: &'static str, patience: Duration },
    #[error("the watch of etcd at {endpoint} ended: {why}")]
    WatchEnded { endpoint: String, why: String },
    #[error("there is no configuration of a network at {0} in etcd")]
    NoConfig(String),
    #[error(
        "etcd at {endpoint} is at revision {found}, and was at {seen} before: it has lost changes; what it says is \
         believed after a restart of the agent"
    )]
    Stale { endpoint: String, found: i64, seen: i64 },
    #[error("other nodes took the chosen prefix first, {0} times in a row")]
    Races(u32),
}
