//! Where the plugins are called: a node with a wire, and namespaces for containers, all in a mount namespace.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::Failure;

/// Says to this program, started anew, that it is inside.
const INSIDE: &str = "HOSTGAP_BENCH_INSIDE";
/// The node's link to other nodes, for attaches that need one.
pub(crate) const WIRE: &str = "wire0";

/// Whether this program runs on the node.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Makes the node and `pods` namespaces p0, p1, …, and starts this program on the node. Returns only if it cannot. All
/// ends with the program, since nothing outside the mount namespace names it.
pub(crate) fn enter(pods: usize) -> Result<(), Failure> {
    let script = format!(
        "mount -t tmpfs none /run; mount -t tmpfs none /var/lib; mkdir /run/hostgap-bpf
         mount -t bpf none /run/hostgap-bpf
         ip netns add node; ip -n node link set lo up
         ip -n node link add {WIRE} type veth peer name wire1; ip -n node addr add 192.0.2.1/24 dev {WIRE}
         ip -n node link set {WIRE} up; ip -n node link set wire1 up
         for pod in $(seq 0 {}); do ip netns add p$pod; done
         exec nsenter --net=/run/netns/node \"$@\"",
        pods - 1
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", &script, "sh"]).arg(std::env::current_exe()?).arg("--bench");
    Err(command.env(INSIDE, "1").exec().into())
}
