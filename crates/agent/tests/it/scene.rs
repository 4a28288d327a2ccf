//! An etcd and nodes that ask it. The nodes' tasks are in etcd's network namespace.

use std::time::Duration;

use agent::lease::{Announcement, Lease, Snapshot, TunnelData, VxlanEnd};
use agent::source::LeaseSource;
use agent::source::etcd::EtcdSource;
use datapath::{Addresses, Prefixes};
use linux::{Mac, PublicKey};
use serde_json::{Value, json};
use testkit::Etcd;
use tokio::sync::watch;

pub(crate) const ROOT: &str = Etcd::ROOT;
pub(crate) const ENDPOINT: &str = Etcd::ENDPOINT;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A node as its agent would run it.
pub(crate) struct Node {
    pub(crate) announce: watch::Sender<Option<Announcement>>,
    pub(crate) seen: watch::Receiver<Snapshot>,
}

/// Runs a test beside an etcd that has a configuration, on a thread in its namespace.
pub(crate) fn with_etcd(config: &Value, test: impl AsyncFnOnce(&mut Etcd)) {
    with_bare_etcd(&[], async |etcd| {
        etcd.put("config", &config.to_string());
        test(etcd).await;
    });
}

/// Runs a test beside an empty etcd with more arguments.
pub(crate) fn with_bare_etcd(arguments: &[String], test: impl AsyncFnOnce(&mut Etcd)) {
    if !testkit::require_root() {
        return;
    }
    let Some(mut etcd) = Etcd::new(arguments) else { return };
    let netns = etcd.netns().try_clone().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    netns
        .run(|| {
            etcd.start();
            runtime.block_on(test(&mut etcd));
        })
        .unwrap();
}

/// Fails only after a long time.
pub(crate) async fn patiently<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it takes too long")
}

impl Node {
    pub(crate) fn start(node: Announcement) -> Node {
        Node::start_as(EtcdSource::at(vec![ENDPOINT.to_owned()]), node)
    }

    pub(crate) fn start_as(source: EtcdSource, node: Announcement) -> Node {
        let (announce, own) = watch::channel(Some(node));
        Node { announce, seen: source.start(own) }
    }

    /// Waits until it sees something.
    pub(crate) async fn until(&mut self, sees: impl FnMut(&Snapshot) -> bool) -> Snapshot {
        let seen = tokio::time::timeout(PATIENCE, self.seen.wait_for(sees)).await;
        let seen = seen.map(|seen| seen.unwrap().clone());
        seen.unwrap_or_else(|_| panic!("what is waited for is not seen, but {:#?}", *self.seen.borrow()))
    }

    /// Its own prefixes, as soon as it has them.
    pub(crate) async fn own(&mut self) -> String {
        self.until(|seen| seen.own != Prefixes::default()).await.own.to_string()
    }

    /// What another node has, as soon as it is seen under a name.
    pub(crate) async fn other(&mut self, name: &str) -> Result<Lease, String> {
        self.until(|seen| seen.others.contains_key(name)).await.others[name].clone()
    }
}

/// What a node says of itself, whose address ends in a number.
pub(crate) fn node(last: u8) -> Announcement {
    Announcement {
        public: Addresses { v4: Some([192, 168, 0, last].into()), v6: None },
        backend: "vxlan".to_owned(),
        data: Some(TunnelData::Vxlan(VxlanEnd { vni: Some(1), mac: Mac::from_id(9, last.into()) })),
        data_v6: None,
    }
}

/// The same, with encrypted tunnels.
pub(crate) fn keyed(last: u8, key: PublicKey) -> Announcement {
    Announcement { backend: "wireguard".to_owned(), data: Some(TunnelData::WireGuard(key)), ..node(last) }
}

/// The value of a lease of such a node, as flannel would write it.
pub(crate) fn value(last: u8) -> String {
    let mac = Mac::from_id(9, last.into());
    format!(
        r#"{{"PublicIP":"192.168.0.{last}","PublicIPv6":null,"BackendType":"vxlan","BackendData":{{"VNI":1,"VtepMAC":"{mac}"}}}}"#
    )
}

/// The name that prefixes have in etcd.
pub(crate) fn name(pods: &str) -> String {
    pods.replace('/', "-").replace(", ", "&")
}

pub(crate) fn config() -> Value {
    json!({ "Network": "10.5.0.0/16", "Backend": { "Type": "vxlan" } })
}
