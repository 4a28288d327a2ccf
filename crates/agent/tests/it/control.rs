//! A control plane whose nodes no kubelet runs, and a source that follows it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use agent::lease::{Announcement, Snapshot};
use agent::source::LeaseSource;
use agent::source::kubernetes::{KubernetesSource, PREFIX};
use cluster::{ControlPlane, Programs};
use linux::{Netns, NetnsPath};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};

use crate::log::Log;

/// For what a server or the source does by itself some time later.
const PATIENCE: Duration = Duration::from_secs(300);
/// The rights of the agent, as they are installed.
const RBAC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/agent/rbac.yaml");

/// Those that Services need beside.
const RBAC_SERVICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/services/rbac.yaml");

/// The port of an API server that the source does not know.
pub(crate) const ELSEWHERE: u16 = ControlPlane::PORT + 1;

pub(crate) struct Scene {
    pub(crate) plane: ControlPlane,
    dir: TempDir,
}

impl Scene {
    /// A control plane where the agent has its rights. `None`, and a skip that is counted, if it cannot run here.
    pub(crate) fn new() -> Option<Scene> {
        let scene = Scene::without_rights()?;
        scene.give_rights();
        Some(scene)
    }

    pub(crate) fn without_rights() -> Option<Scene> {
        if !testkit::require_root() {
            return None;
        }
        let absent = |script| Err(anyhow::anyhow!("a control plane needs what {script} prints"));
        let programs = match Programs::of_control_plane(absent) {
            Ok(programs) => programs,
            Err(error) => {
                testkit::skip(&error.to_string());
                return None;
            }
        };
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("plane");
        std::fs::create_dir(&folder).unwrap();
        let plane = ControlPlane::start(programs, &folder).unwrap();
        let scene = Scene { plane, dir };
        scene.set_network(&json!({ "Network": "10.0.0.0/8" }));
        Some(scene)
    }

    pub(crate) fn give_rights(&self) {
        self.kubectl(&["apply", "--filename", RBAC]);
    }

    pub(crate) fn give_rights_for_services(&self) {
        self.kubectl(&["apply", "--filename", RBAC_SERVICES]);
    }

    pub(crate) fn set_network(&self, network: &Value) {
        std::fs::write(self.network(), network.to_string()).unwrap();
    }

    /// Where the files of the test are.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// The file with the configuration of the network.
    pub(crate) fn network(&self) -> PathBuf {
        self.dir.path().join("net-conf.json")
    }

    #[track_caller]
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.kubectl_at(ControlPlane::PORT, args)
    }

    #[track_caller]
    pub(crate) fn kubectl_at(&self, port: u16, args: &[&str]) -> String {
        text(self.plane.kubectl(port).args(args))
    }

    /// Posts objects in one call.
    #[track_caller]
    pub(crate) fn create(&self, port: u16, objects: &[Value]) {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        let mut kubectl = self.plane.kubectl(port);
        let mut kubectl = kubectl.args(["create", "--filename", "-"]);
        kubectl = kubectl.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut kubectl = kubectl.spawn().unwrap();
        kubectl.stdin.take().unwrap().write_all(list.to_string().as_bytes()).unwrap();
        assert!(kubectl.wait().unwrap().success());
    }

    /// A node as the API server has it.
    #[track_caller]
    pub(crate) fn node(&self, name: &str) -> Value {
        serde_json::from_str(&self.kubectl(&["get", "node", name, "--output", "json"])).unwrap()
    }

    /// Waits until a node is as it should be.
    #[track_caller]
    pub(crate) fn until_node(&self, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begin = std::time::Instant::now();
        loop {
            let node = self.node(name);
            if is_so(&node) {
                return node;
            }
            assert!(begin.elapsed() < PATIENCE, "node {name} has not become as it should: {node:#}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// How often the status of a node was patched at the present API server.
    pub(crate) fn patches(&self) -> u64 {
        let metrics = self.kubectl(&["get", "--raw", "/metrics"]);
        let is_patch = |line: &&str| {
            line.starts_with("apiserver_request_total{")
                && [r#"resource="nodes""#, r#"subresource="status""#, r#"verb="PATCH""#]
                    .iter()
                    .all(|label| line.contains(label))
        };
        let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        metrics.lines().filter(is_patch).map(count).sum()
    }

    /// A token of the agent's service account.
    #[track_caller]
    pub(crate) fn token(&self) -> String {
        let account = ["create", "token", "--namespace", "kube-system", "--duration", "1h", "hostgap"];
        self.kubectl(&account).trim().to_owned()
    }

    /// A source that is a node, with the rights of the agent's service account.
    pub(crate) fn follow(&self, node: &str, own: Announcement) -> Following {
        self.follow_with(&self.kubeconfig(node), node, own)
    }

    /// The same with a kubeconfig that was made before.
    pub(crate) fn follow_with(&self, kubeconfig: &Path, node: &str, own: Announcement) -> Following {
        let source = source(node, Some(kubeconfig.to_owned()), &self.network());
        Following::start(source, own, &self.plane.network())
    }

    /// A source that knows Services too.
    pub(crate) fn follow_services(&self, node: &str, own: Announcement) -> Following {
        let source = source(node, Some(self.kubeconfig(node)), &self.network());
        Following::start(KubernetesSource { services: true, ..source }, own, &self.plane.network())
    }

    /// A kubeconfig of the agent's service account, in a file of this name.
    pub(crate) fn kubeconfig(&self, name: &str) -> PathBuf {
        self.plane.kubeconfig(name, &self.token()).unwrap()
    }
}

fn source(node: &str, kubeconfig: Option<PathBuf>, network: &Path) -> KubernetesSource {
    KubernetesSource {
        node: node.to_owned(),
        kubeconfig,
        network: network.to_owned(),
        annotation_prefix: PREFIX.to_owned(),
        set_condition: true,
        services: false,
    }
}

/// A source on a thread of its own, in the control plane's network. It ends with this value.
pub(crate) struct Following {
    snapshots: watch::Receiver<Snapshot>,
    history: Arc<Mutex<Vec<Snapshot>>>,
    own: watch::Sender<Option<Announcement>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    waiting: Runtime,
    log: Log,
}

impl Following {
    /// A source without a kubeconfig, in the namespace of this process.
    pub(crate) fn of_pod(node: &str, own: Announcement, network: &Path) -> Following {
        Following::start(source(node, None, network), own, Path::new("/proc/self/ns/net"))
    }

    fn start(source: KubernetesSource, own: Announcement, network: &Path) -> Following {
        let netns = Netns::open_path(&NetnsPath::new(network.to_str().unwrap()).unwrap()).unwrap();
        let (own, receiver) = watch::channel(Some(own));
        let (stop, stopped) = oneshot::channel();
        let (started, snapshots) = std::sync::mpsc::channel();
        let history = Arc::<Mutex<Vec<Snapshot>>>::default();
        let past = Arc::clone(&history);
        let run = move || {
            // Its sockets are made on this thread.
            runtime().block_on(async {
                let mut snapshots = source.start(receiver);
                started.send(snapshots.clone()).unwrap();
                tokio::spawn(async move {
                    while snapshots.changed().await.is_ok() {
                        past.lock().unwrap().push(snapshots.borrow().clone());
                    }
                });
                let _ = stopped.await;
            });
        };
        let log = Log::default();
        let listening = log.clone();
        let run = move || tracing::subscriber::with_default(listening, run);
        let thread = thread::spawn(move || netns.run(run).unwrap());
        let snapshots = snapshots.recv().unwrap();
        Following { snapshots, history, own, stop: Some(stop), thread: Some(thread), waiting: runtime(), log }
    }

    /// Waits until a snapshot is as it should be.
    #[track_caller]
    pub(crate) fn until(&mut self, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let wait = async { tokio::time::timeout(PATIENCE, self.snapshots.wait_for(is_so)).await };
        let came = matches!(self.waiting.block_on(wait), Ok(Ok(_)));
        let last = self.snapshots.borrow().clone();
        assert!(came, "no such snapshot came; the last one is {last:#?}");
        last
    }

    /// Waits until the nodes are watched.
    #[track_caller]
    pub(crate) fn until_whole(&mut self) -> Snapshot {
        self.until(|snapshot| snapshot.unreachable.is_none())
    }

    /// All snapshots so far.
    pub(crate) fn history(&self) -> Vec<Snapshot> {
        self.history.lock().unwrap().clone()
    }

    /// What the source has said in its log.
    pub(crate) fn said(&self) -> Vec<String> {
        self.log.lines()
    }

    pub(crate) fn announce(&self, own: Announcement) {
        self.own.send(Some(own)).unwrap();
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().unwrap().join().is_err() && !thread::panicking() {
            panic!("the source panicked");
        }
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// What a command writes; it must succeed.
#[track_caller]
fn text(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
