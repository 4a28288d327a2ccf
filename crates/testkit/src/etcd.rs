//! An etcd in a network namespace of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use linux::{Netns, NetnsName};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{World, shell, skip};

/// What the keys of flannel's networks begin with.
const ROOT: &str = "/coreos.com/network";
const ENDPOINT: &str = "http://127.0.0.1:2379";
/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Debian's etcd. Its methods panic if it does not answer.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    netns: Netns,
    dir: TempDir,
    arguments: Vec<String>,
    process: Option<Child>,
    // The last to go: it ends what is left in the namespace.
    world: World,
}

#[expect(clippy::missing_panics_doc, reason = "each method panics if etcd is not as the test has made it")]
impl Etcd {
    /// What keys are written below, as flannel's.
    pub const ROOT: &str = ROOT;
    /// Where it listens in its namespace.
    pub const ENDPOINT: &str = ENDPOINT;

    /// One with more arguments, which is not started yet; `None`: this machine has none, and the calling test
    /// is recorded as skipped.
    pub fn new(arguments: &[String]) -> Option<Etcd> {
        let Some(directory) = std::env::var_os("HOSTGAP_ETCD").filter(|directory| !directory.is_empty())
        else {
            skip("it needs etcd; HOSTGAP_ETCD=$(scripts/fetch-etcd) names its directory");
            return None;
        };
        let world = World::new();
        Some(Etcd {
            program: PathBuf::from(directory).join("etcd"),
            netns: world.add("etcd"),
            dir: TempDir::new().expect("a test may make directories"),
            arguments: arguments.to_vec(),
            process: None,
            world,
        })
    }

    /// Its namespace.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// A directory of its own.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What it has on disk.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Joins a namespace to it by a link of its own, the `number`th. Where it is to be found from there, if it
    /// listens at all addresses.
    pub fn join(&self, node: &NetnsName, number: u8) -> String {
        let at = self.world.name("etcd");
        let [its, nodes_own] = [1, 2].map(|host| Ipv4Addr::new(198, 51, 100, 4 * number + host));
        shell(&format!(
            "ip -n {at} link add to-{number} type veth peer name etcd netns {node}
             ip -n {at} address add {its}/30 dev to-{number}; ip -n {node} address add {nodes_own}/30 dev etcd
             ip -n {at} link set to-{number} up; ip -n {node} link set etcd up"
        ));
        format!("http://{its}:2379")
    }

    /// Starts it, on what it had before.
    pub fn start(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(["--listen-client-urls", ENDPOINT, "--advertise-client-urls", ENDPOINT]);
        command.arg("--data-dir").arg(self.data()).args(&self.arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let started = self.netns.run(|| command.spawn()).expect("its namespace is there");
        self.process = Some(started.expect("HOSTGAP_ETCD has the program"));
    }

    /// Kills it, as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it is a child of this process");
            process.wait().expect("it is a child of this process");
        }
    }

    /// Lets it do nothing, as on a disk that hangs, or go on.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.process.as_ref().expect("the test has started it"));
        kill_process(pid, signal).expect("it is a child of this process");
    }

    /// From the next start on, with these arguments.
    pub fn set_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(ToString::to_string).collect();
    }

    /// Asks it through its gateway for JSON, as soon as it answers.
    pub fn ask(&self, path: &str, question: &Value) -> Value {
        let begin = Instant::now();
        loop {
            match self.netns.run(|| ask(path, question)).expect("its namespace is there") {
                Ok(answer) if answer.get("error").is_none() => return answer,
                Ok(answer) => assert!(begin.elapsed() < PATIENCE, "{path} {question}: {answer}"),
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{path}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes a key without an etcd lease.
    pub fn put(&self, key: &str, value: &str) -> i64 {
        let answer = self.ask("/v3/kv/put", &put(key, value));
        revision(&answer)
    }

    /// Deletes a key.
    pub fn delete(&self, key: &str) -> i64 {
        revision(&self.ask("/v3/kv/deleterange", &json!({ "key": coded(key) })))
    }

    /// Writes many keys at one revision.
    pub fn put_all(&self, keys: &[(String, String)]) {
        let puts = keys.iter().map(|(key, value)| json!({ "requestPut": put(key, value) }));
        self.ask("/v3/kv/txn", &json!({ "success": puts.collect::<Vec<_>>() }));
    }

    /// A key as it is there: its value, and the etcd lease that it has.
    pub fn get(&self, key: &str) -> Option<(String, String)> {
        let answer = self.ask("/v3/kv/range", &json!({ "key": coded(key) }));
        let found = answer["kvs"].get(0)?;
        let value = BASE64_STANDARD.decode(found["value"].as_str()?).expect("its gateway says what it has");
        Some((
            String::from_utf8(value).expect("flannel writes text"),
            found["lease"].as_str().unwrap_or("0").to_owned(),
        ))
    }

    /// Forgets all changes before a revision.
    pub fn compact(&self, revision: i64) {
        self.ask("/v3/kv/compaction", &json!({ "revision": revision.to_string(), "physical": true }));
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn put(key: &str, value: &str) -> Value {
    json!({ "key": coded(key), "value": BASE64_STANDARD.encode(value) })
}

/// A key below flannel's, as the gateway wants it.
fn coded(key: &str) -> String {
    BASE64_STANDARD.encode(format!("{ROOT}/{key}"))
}

fn revision(answer: &Value) -> i64 {
    let revision = answer["header"]["revision"].as_str().and_then(|text| text.parse().ok());
    revision.expect("each answer has one")
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
