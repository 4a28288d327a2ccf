//! An etcd and nodes that ask it. The etcd has a network namespace of its own, and so have the nodes' tasks.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent::lease::{Announcement, Lease, Snapshot, TunnelData, VxlanEnd};
use agent::source::LeaseSource;
use agent::source::etcd::EtcdSource;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datapath::{Addresses, Prefixes};
use linux::{Mac, Netns, PublicKey};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::World;
use tokio::sync::watch;

pub(crate) const ROOT: &str = "/coreos.com/network";
pub(crate) const ENDPOINT: &str = "http://127.0.0.1:2379";
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// An etcd of its own.
pub(crate) struct Etcd {
    program: PathBuf,
    netns: Netns,
    pub(crate) dir: TempDir,
    arguments: Vec<String>,
    process: Option<Child>,
    // The last to go: it ends what is left in the namespace.
    pub(crate) world: World,
}

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
    let Some(directory) = std::env::var_os("HOSTGAP_ETCD").filter(|directory| !directory.is_empty()) else {
        return testkit::skip("it needs etcd; HOSTGAP_ETCD=$(scripts/fetch-etcd) names its directory");
    };
    let world = World::new();
    let netns = world.add("etcd");
    let mut etcd = Etcd {
        program: PathBuf::from(directory).join("etcd"),
        netns: netns.try_clone().unwrap(),
        dir: TempDir::new().unwrap(),
        arguments: arguments.to_vec(),
        process: None,
        world,
    };
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

impl Etcd {
    /// Starts it, on what it had before.
    pub(crate) fn start(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(["--listen-client-urls", ENDPOINT, "--advertise-client-urls", ENDPOINT]);
        command.arg("--data-dir").arg(self.data()).args(&self.arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(self.netns.run(|| command.spawn()).unwrap().unwrap());
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Kills it, as a power cut would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Lets it do nothing, as on a disk that hangs, or go on.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.process.as_ref().unwrap());
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// From the next start on, with these arguments.
    pub(crate) fn set_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(ToString::to_string).collect();
    }

    /// Asks it through its gateway for JSON, as soon as it answers.
    pub(crate) fn ask(&self, path: &str, question: &Value) -> Value {
        let begin = Instant::now();
        loop {
            match ask(path, question) {
                Ok(answer) if answer.get("error").is_none() => return answer,
                Ok(answer) => assert!(begin.elapsed() < PATIENCE, "{path} {question}: {answer}"),
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{path}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes a key without an etcd lease.
    pub(crate) fn put(&self, key: &str, value: &str) -> i64 {
        let answer = self.ask("/v3/kv/put", &put(key, value));
        revision(&answer)
    }

    pub(crate) fn delete(&self, key: &str) -> i64 {
        revision(&self.ask("/v3/kv/deleterange", &json!({ "key": coded(key) })))
    }

    /// Writes many keys at one revision.
    pub(crate) fn put_all(&self, keys: &[(String, String)]) {
        let puts = keys.iter().map(|(key, value)| json!({ "requestPut": put(key, value) }));
        self.ask("/v3/kv/txn", &json!({ "success": puts.collect::<Vec<_>>() }));
    }

    /// A key as it is there: its value, and the etcd lease that it has.
    pub(crate) fn get(&self, key: &str) -> Option<(String, String)> {
        let answer = self.ask("/v3/kv/range", &json!({ "key": coded(key) }));
        let found = answer["kvs"].get(0)?;
        let value = BASE64_STANDARD.decode(found["value"].as_str()?).unwrap();
        Some((String::from_utf8(value).unwrap(), found["lease"].as_str().unwrap_or("0").to_owned()))
    }

    /// Forgets all changes before a revision.
    pub(crate) fn compact(&self, revision: i64) {
        self.ask("/v3/kv/compaction", &json!({ "revision": revision.to_string(), "physical": true }));
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
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

fn put(key: &str, value: &str) -> Value {
    json!({ "key": coded(key), "value": BASE64_STANDARD.encode(value) })
}

/// A key below flannel's, as the gateway wants it.
fn coded(key: &str) -> String {
    BASE64_STANDARD.encode(format!("{ROOT}/{key}"))
}

fn revision(answer: &Value) -> i64 {
    answer["header"]["revision"].as_str().unwrap().parse().unwrap()
}

fn ask(path: &str, question: &Value) -> std::io::Result<Value> {
    let mut stream = TcpStream::connect("127.0.0.1:2379")?;
    let question = question.to_string();
    write!(stream, "POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{question}", question.len())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").ok_or(ErrorKind::UnexpectedEof)?.1;
    serde_json::from_str(body).map_err(|error| std::io::Error::other(format!("{error}: {answer}")))
}
