//! The source as a pod runs it: the API server and the token are where the kubelet puts them.

use std::fs;
use std::process::Command;

use cluster::ControlPlane;

use crate::control::{Following, Scene};
use crate::kubernetes::{own, peer, with_pods};

/// The environment variable that names the network's configuration to the child.
const NETWORK: &str = "HOSTGAP_TEST_NET_CONF";
/// Where a pod has its account.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";
/// Runs a program with the account of a directory.
const AS_POD: &str =
    "mount -t tmpfs none /run && mkdir -p \"$1\" && mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";

#[test]
fn a_pod_needs_no_kubeconfig() {
    let Some(scene) = Scene::new() else { return };
    let nodes = [with_pods("own", &["10.1.0.0/24"]), peer("a", "10.1.1.0/24", "192.0.2.1")];
    scene.create(ControlPlane::PORT, &nodes);
    let account = scene.folder().join("account");
    fs::create_dir(&account).unwrap();
    fs::write(account.join("token"), scene.token()).unwrap();
    fs::write(account.join("namespace"), "kube-system").unwrap();
    fs::copy(scene.folder().join("plane/pki/apiserver.crt"), account.join("ca.crt")).unwrap();
    let child = Command::new("nsenter")
        .arg(format!("--net={}", scene.plane.network().display()))
        .args(["unshare", "--mount", "sh", "-c", AS_POD])
        .arg(account)
        .arg(ACCOUNT)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "pod::child", "--ignored"])
        .env(NETWORK, scene.network())
        .env("KUBERNETES_SERVICE_HOST", "192.0.2.1")
        .env("KUBERNETES_SERVICE_PORT", ControlPlane::PORT.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "this is the child process of a_pod_needs_no_kubeconfig"]
fn child() {
    let Some(network) = std::env::var_os(NETWORK) else { return };
    let mut following = Following::of_pod("own", own([192, 0, 2, 100]), network.as_ref());
    let snapshot = following.until_whole();
    assert_eq!((snapshot.others.len(), snapshot.own.to_string().as_str()), (1, "10.1.0.0/24"));
}
