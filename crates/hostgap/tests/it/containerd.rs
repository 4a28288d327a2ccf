//! The installed plugin under a real containerd: containers that talk to each other, errors that reach whoever runs
//! them, and nothing that stays. The programs are those of `HOSTGAP_CONTAINERD`, a part of `PATH`.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use crate::sandbox::{HOSTGAP, Sandbox, check, sandbox, stderr, stdout, text, until};

/// A node with a wire in namespaces of its own, on which containerd runs.
struct Node {
    /// `unshare`, whose child is the first process of a PID namespace: with it ends whatever runs there.
    keeper: Child,
    /// That process ends when this is closed, even if the test dies.
    lifeline: Option<ChildStdin>,
    path: String,
    sandbox: Sandbox,
}

/// A container in the foreground of its `ctr`.
struct Container {
    ctr: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

const SOCKET: &str = "/run/containerd.sock";

/// Directories that stand in for those of the machine, a wire, and the daemon. When the test is over, or dead, all
/// processes end and their control groups go.
const SCRIPT: &str = "
    mount -t tmpfs none /var/lib
    mount -t tmpfs none /opt
    mkdir /run/etc /run/work
    mount -t overlay none -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work /etc
    mkdir -p /etc/cni
    mount -t tmpfs none /etc/cni
    mkdir -p /etc/cni/net.d /opt/cni/bin /run/hostgap-bpf
    mount -t bpf none /run/hostgap-bpf
    ip link set lo up
    ip link add wire0 type veth peer name wire1
    ip addr add 192.0.2.1/24 dev wire0
    ip link set wire0 up
    ip link set wire1 up
    ip route add default via 192.0.2.2
    containerd --config $1/containerd.toml >$1/containerd.log 2>&1 &
    echo ready
    cat
    kill -KILL -1
    for group in $(find /sys/fs/cgroup -depth -type d \\( -path \"*/$2\" -o -path \"*/$2/*\" \\)); do
        for try in $(seq 100); do rmdir $group && break; sleep 0.05; done
    done";

/// Containers of this process are in control groups below one of its own. The machine has them, and no namespace takes
/// them away.
fn group() -> String {
    format!("hgt-containerd-{}", std::process::id())
}

impl Node {
    /// `None`, and a skip that is counted, if the environment does not say where containerd is.
    fn new() -> Option<Node> {
        let Ok(programs) = std::env::var("HOSTGAP_CONTAINERD") else {
            testkit::skip("HOSTGAP_CONTAINERD does not say where containerd is: scripts/fetch-containerd");
            return None;
        };
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
        let sandbox = sandbox();
        let out = sandbox.out().display();
        let config = format!(
            "version = 2\nroot = \"{out}/root\"\nstate = \"/run/containerd\"\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = \"{SOCKET}\"\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{out}/opt\"\n"
        );
        fs::write(sandbox.out().join("containerd.toml"), config).unwrap();
        let mut keeper = sandbox
            .command("unshare")
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-ec", SCRIPT, "sh"])
            .arg(sandbox.out())
            .arg(group())
            .env("PATH", &path)
            .stdin(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let lifeline = keeper.stdin.take();
        let node = Node { keeper, lifeline, path, sandbox };
        until("containerd answers", || node.ctr(&["version"]).output().unwrap().status.success());
        let root = node.root();
        for directory in ["bin", "dev", "etc", "proc", "sys", "www"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        let busybox = text(node.command("sh").args(["-c", "command -v busybox"]));
        fs::copy(busybox.trim(), root.join("bin/busybox")).unwrap();
        fs::write(root.join("www/index.html"), "served from a container\n").unwrap();
        Some(node)
    }

    /// The root of the containers' file system, which they only read.
    fn root(&self) -> PathBuf {
        self.sandbox.out().join("fs")
    }

    /// A program on the node.
    fn command(&self, program: &str) -> Command {
        let ns = |name: &str| format!("/proc/{}/ns/{name}", self.keeper.id());
        let mut command = self.sandbox.command("nsenter");
        command
            .arg(format!("--mount={}", ns("mnt")))
            .arg(format!("--net={}", ns("net")))
            .arg(format!("--pid={}", ns("pid_for_children")))
            .arg(program)
            .env("PATH", &self.path);
        command
    }

    fn ctr(&self, args: &[&str]) -> Command {
        let mut command = self.command("ctr");
        command.args(["--address", SOCKET]).args(args);
        command
    }

    /// A container with a network, by the configuration that is installed.
    fn container(&self, id: &str, script: &str) -> Command {
        let mut command = self.ctr(&["run", "--rm", "--cni", "--cgroup"]);
        command.arg(format!("/{}/{id}", group())).arg("--rootfs").arg(self.root()).arg(id).args([
            "/bin/busybox",
            "sh",
            "-c",
            script,
        ]);
        command
    }

    fn start(&self, id: &str, script: &str) -> Container {
        let mut ctr = self.container(id, script).spawn().unwrap();
        let lines = BufReader::new(ctr.stdout.take().unwrap()).lines();
        Container { ctr, lines }
    }

    fn hostgap(&self, args: &[&str]) -> Output {
        self.command(HOSTGAP).args(args).output().unwrap()
    }

    /// What a network may leave on the node: links, addresses, routes, rules, and files of addresses that are in use.
    fn state(&self) -> String {
        let script = "ip -br link; ip -br addr; ip route; ip -6 route; nft list ruleset;
            find /var/lib -type f -regex '.*/[0-9a-f.:]+'";
        text(self.command("sh").args(["-ec", script]))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let _ = self.keeper.wait();
        let left = text(Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-name", &group()]));
        assert!(std::thread::panicking() || left.is_empty(), "{left}");
    }
}

impl Container {
    fn line(&mut self) -> String {
        let Some(line) = self.lines.next() else {
            let mut message = String::new();
            std::io::Read::read_to_string(self.ctr.stderr.as_mut().unwrap(), &mut message).unwrap();
            panic!("the container ended: {message}");
        };
        line.unwrap()
    }
}

#[test]
fn containers_serve_and_ask_and_leave_nothing() {
    let Some(node) = Node::new() else { return };
    for attach in ["ptp", "bridge", "ebpf", "macvlan"] {
        // Of the wire's own subnet where containers are on the wire.
        let subnet = if attach == "macvlan" { "192.0.2.128/25" } else { "10.244.1.0/24" };
        let args = ["cni", "install", "--attach", attach, "--name", "pods", "--subnet", subnet];
        check(&node.hostgap(&args), 0, "");
        let before = node.state();
        let serve = "ip -o -4 addr show eth0; exec /bin/busybox httpd -f -p 80 -h /www";
        let mut server = node.start("server", serve);
        let address = server.line();
        let address = address.split_whitespace().nth(3).unwrap().split('/').next().unwrap();
        // Until it listens, it refuses.
        let ask = format!(
            "for try in $(seq 600); do \
             printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} 80 && exit; sleep 0.1; done; exit 1"
        );
        let output = node.container("client", &ask).output().unwrap();
        assert!(
            stdout(&output).contains("served from a container"),
            "{attach}: {} {}",
            stdout(&output),
            stderr(&output)
        );
        assert!(output.status.success(), "{attach}: {}", stderr(&output));
        // The namespace of a killed container is gone when containerd calls DEL.
        text(&mut node.ctr(&["task", "kill", "--signal", "SIGKILL", "server"]));
        assert_eq!(server.ctr.wait().unwrap().code(), Some(137), "{attach}");
        check(&node.hostgap(&["cni", "uninstall"]), 0, "");
        assert_eq!(node.state(), before, "{attach}");
    }
}

#[test]
fn whoever_runs_a_container_reads_what_is_wrong() {
    let Some(node) = Node::new() else { return };
    let args = ["cni", "install", "--attach", "ptp", "--name", "pods", "--subnet", "10.244.1.0/29"];
    check(&node.hostgap(&args), 0, "");
    let list = node
        .command("cat")
        .arg("/etc/cni/net.d/10-pods.conflist")
        .output()
        .map(|output| stdout(&output))
        .unwrap();
    let cases = [
        ("\"attach\": \"ptp\"", "\"attach\": \"pttp\"", "did you mean \"ptp\""),
        ("\"subnet\"", "\"subnett\"", "unknown field `subnett`, expected one of `subnet`"),
        ("10.244.1.0/29", "10.244.1.0/31", "10.244.1.0/31"),
    ];
    for (number, (right, wrong, says)) in cases.into_iter().enumerate() {
        assert!(list.contains(right), "{right} is not in {list}");
        let conf = list.replace(right, wrong);
        text(node.command("sh").args([
            "-c",
            "printf %s \"$1\" >/etc/cni/net.d/10-pods.conflist",
            "sh",
            &conf,
        ]));
        // Some versions of containerd keep a container that could not start.
        let output = node.container(&format!("wrong{number}"), "true").output().unwrap();
        let message = stderr(&output);
        assert!(
            !output.status.success() && message.contains("plugin type=\"hostgap\" failed (add): "),
            "{message}"
        );
        assert!(message.contains(says), "{says:?} is not in {message}");
    }
}
