//! The files that a cluster's programs read: scripts, tokens, and configurations.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::names::DNS;
use crate::{IMAGE, NODES, Programs, run};

/// The file with the `PATH` on which a cluster's programs are.
pub(crate) const PATH: &str = "path";
/// The user with all rights.
const ADMIN: (&str, &str, &str) = ("admin", "admin", "system:masters");
/// Users of the API server beside the nodes, and a group in which they are.
const USERS: [(&str, &str, &str); 4] = [
    ADMIN,
    ("kube-controller-manager", "system:kube-controller-manager", ""),
    ("kube-scheduler", "system:kube-scheduler", ""),
    ("kube-proxy", "system:kube-proxy", ""),
];

/// Writes them all into an empty folder.
pub(crate) fn write(folder: &Path, group: &str, programs: &Programs) -> Result<()> {
    put(folder, "control.sh", include_str!("control.sh"))?;
    put(folder, "node.sh", include_str!("node.sh"))?;
    put(folder, "containerd.toml", &containerd())?;
    put(folder, PATH, programs.path())?;
    let nodes = NODES.map(|node| (node.name, format!("system:node:{}", node.name), "system:nodes"));
    let nodes = nodes.iter().map(|(file, user, group)| (*file, user.as_str(), *group));
    write_for_api(folder, programs, USERS.into_iter().chain(nodes))?;
    for node in NODES {
        put(folder, &format!("{}.kubelet.yaml", node.name), &kubelet(group, node.name).to_string())?;
    }
    Ok(())
}

/// Writes into an empty folder what a control plane without nodes reads.
pub(crate) fn write_for_control_plane(folder: &Path, programs: &Programs) -> Result<()> {
    put(folder, "control-plane.sh", include_str!("control-plane.sh"))?;
    write_for_api(folder, programs, [ADMIN])
}

/// Writes a kubeconfig for the account of a token, and returns its path.
pub(crate) fn write_kubeconfig(folder: &Path, name: &str, token: &str) -> Result<PathBuf> {
    let file = format!("{name}.kubeconfig");
    put(folder, &file, &kubeconfig(folder, token).to_string())?;
    Ok(folder.join(file))
}

/// What etcd and the API server read: a key, and tokens of users, each a file, a name and a group.
fn write_for_api<'a>(
    folder: &Path,
    programs: &Programs,
    users: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
) -> Result<()> {
    put(folder, "api.sh", include_str!("api.sh"))?;
    let mut key = Command::new("openssl");
    key.args(["genrsa", "-out"]).arg(folder.join("accounts.key")).arg("2048");
    run(key.env("PATH", programs.path()))?;
    let mut tokens = String::new();
    for (file, user, of) in users {
        let token = token()?;
        tokens += &format!("{token},{user},{user},{of}\n");
        write_kubeconfig(folder, file, &token)?;
    }
    put(folder, "tokens.csv", &tokens)
}

/// Tokens are among them: they are for this user alone.
fn put(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let write = |mut file: File| std::io::Write::write_all(&mut file, text.as_bytes());
    file.and_then(write).with_context(|| format!("could not write {}", path.display()))
}

fn token() -> Result<String> {
    let mut bytes = [0; 16];
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    random.context("could not read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// JSON, which is YAML too.
fn kubeconfig(folder: &Path, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "cluster",
        "clusters": [{ "name": "cluster", "cluster": {
            "server": "https://192.0.2.1:6443",
            // The API server makes a key and signs it itself.
            "certificate-authority": folder.join("pki/apiserver.crt"),
        } }],
        "users": [{ "name": "user", "user": { "token": token } }],
        "contexts": [{ "name": "cluster", "context": { "cluster": "cluster", "user": "user" } }],
    })
}

fn kubelet(group: &str, node: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        // Only the cluster reaches it.
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs", "cgroupRoot": format!("/{group}/{node}"), "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDNS": [DNS], "clusterDomain": "cluster.local",
        // What is not allowed to it on a machine that lacks capabilities, it goes without.
        "featureGates": { "KubeletInUserNamespace": true },
        "maxOpenFiles": 20000,
        // A full disk of the machine is no reason to evict pods.
        "evictionHard": { "imagefs.available": "0%", "memory.available": "0%", "nodefs.available": "0%",
            "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%" },
        "imageGCHighThresholdPercent": 100,
    })
}

fn containerd() -> String {
    format!(
        r#"version = 2
[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{IMAGE}"
disable_apparmor = true
# Not every machine lets root lower the score.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"#
    )
}
