//! A Kubernetes of two nodes on one machine: etcd, the control plane, and on each node a kubelet, a kube-proxy and a
//! containerd of its own. The programs are the real ones.
//!
//! All of it is in one PID namespace, and the nodes are namespaces joined by a bridge. What could outlive the processes
//! are their control groups, which their first process removes at the end.

mod agents;
mod control_plane;
mod e2e;
mod files;
mod image;
mod names;
mod network;
mod probe;
mod programs;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

pub use agents::Agents;
pub use control_plane::ControlPlane;
pub use e2e::passed;
pub use image::{AGENT_IMAGE, IMAGE, write_agent_image};
pub use probe::CalledBy;
pub use programs::Programs;

/// A node of the cluster: a name, and an address of each family.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// Its name, in Kubernetes and of its files.
    pub name: &'static str,
    /// Its address in the network between the nodes, of RFC 5737's for documentation.
    pub ipv4: &'static str,
    /// Likewise of IPv6, of RFC 3849's.
    pub ipv6: &'static str,
}

/// Both nodes. Each has a namespace of its own.
pub const NODES: [Node; 2] = [
    Node { name: "node-1", ipv4: "192.0.2.11", ipv6: "2001:db8::11" },
    Node { name: "node-2", ipv4: "192.0.2.12", ipv6: "2001:db8::12" },
];

/// A cluster that runs. Its folder has its configuration and the logs of all daemons.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    programs: Programs,
    /// The process outside of the PID namespace that waits for its first one.
    keeper: u32,
}

/// A cluster that ends with this value or its process.
#[derive(Debug)]
pub struct OwnedCluster {
    cluster: Cluster,
    keeper: Child,
}

/// The line by which the first process says that all daemons were started.
const STARTED: &str = "started\n";
/// Where a cluster that outlives its command has the pipe by which it is ended.
const LIFELINE: &str = "lifeline";
/// Where it has the number of its keeper.
const KEEPER: &str = "keeper";

impl OwnedCluster {
    /// Starts a cluster in an empty folder. `group` is a name for its control groups that no other has.
    ///
    /// # Errors
    /// A program is missing or ends; what it wrote last is part of the error.
    pub fn start(programs: Programs, folder: &Path, group: &str) -> Result<Self> {
        let mut keeper = keeper(&programs, folder, group)?;
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = keeper.spawn().context("could not start unshare")?;
        let mut line = String::new();
        let stdout = keeper.stdout.take().context("its output was not piped")?;
        BufReader::new(stdout).read_line(&mut line).context("could not read what the cluster says")?;
        let cluster = Cluster { folder: folder.to_owned(), programs, keeper: keeper.id() };
        let owned = Self { cluster, keeper };
        if line != STARTED {
            bail!("the cluster did not start: {}", owned.last_words());
        }
        Ok(owned)
    }
}

impl std::ops::Deref for OwnedCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Drop for OwnedCluster {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

impl Cluster {
    /// Starts a cluster that stays until [`Cluster::end`].
    ///
    /// # Errors
    /// As for [`OwnedCluster::start`].
    pub fn start_to_stay(programs: Programs, folder: &Path, group: &str) -> Result<Self> {
        let mut command = keeper(&programs, folder, group)?;
        let lifeline = folder.join(LIFELINE);
        run(Command::new("mkfifo").arg(&lifeline))?;
        // Opened for both, it never ends: the first process has an end to write to, too.
        let open =
            fs::OpenOptions::new().read(true).write(true).open(&lifeline).context("open its lifeline")?;
        // What it says goes to files, since no one may read it later.
        let log_path = folder.join("control.log");
        let log = fs::File::create(&log_path).context("create its log")?;
        let errors = fs::File::create(folder.join("errors.log")).context("create its log")?;
        command.stdin(open).stdout(log).stderr(errors).process_group(0);
        let mut keeper = command.spawn().context("could not start unshare")?;
        fs::write(folder.join(KEEPER), keeper.id().to_string()).context("write the number of its keeper")?;
        let cluster = Self { folder: folder.to_owned(), programs, keeper: keeper.id() };
        while fs::read_to_string(&log_path).context("read its log")? != STARTED {
            if keeper.try_wait().context("wait for it")?.is_some() {
                bail!("the cluster did not start: {}", cluster.last_words());
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Ok(cluster)
    }

    /// The cluster that was started to stay in a folder.
    ///
    /// # Errors
    /// None runs there.
    pub fn open(folder: &Path) -> Result<Self> {
        let none = || format!("no cluster runs in {}", folder.display());
        let keeper = fs::read_to_string(folder.join(KEEPER)).with_context(none)?;
        let keeper = keeper.parse().with_context(none)?;
        // Its number may be another process's by now.
        let line = fs::read(format!("/proc/{keeper}/cmdline")).with_context(none)?;
        if !String::from_utf8_lossy(&line).contains(&folder.display().to_string()) {
            bail!(none());
        }
        let programs = Programs::of(fs::read_to_string(folder.join(files::PATH)).with_context(none)?);
        Ok(Self { folder: folder.to_owned(), programs, keeper })
    }

    /// Ends a cluster that was started to stay, and waits until its control groups are gone.
    ///
    /// # Errors
    /// Its lifeline cannot be written to.
    pub fn end(self) -> Result<()> {
        fs::write(self.folder.join(LIFELINE), "end\n").context("could not ask the cluster to end")?;
        while Path::new(&format!("/proc/{}/ns/pid_for_children", self.keeper)).exists() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Ok(())
    }

    /// `kubectl` as an administrator, in the control plane's namespaces.
    pub fn kubectl(&self) -> Command {
        let mut command = self.inside("kubectl");
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command
    }

    /// The file by which an administrator reaches the API server, from a node too.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("admin.kubeconfig")
    }

    /// A program on a node, in its namespaces.
    pub fn on(&self, node: Node, program: &str) -> Command {
        // The number of the node's process is of the cluster's PID namespace.
        let enter = "target=$(cat \"$0\"); exec nsenter --target \"$target\" --mount --net -- \"$@\"";
        let mut command = self.inside("sh");
        command.args(["-c", enter]).arg(self.folder.join(format!("{}.pid", node.name))).arg(program);
        command
    }

    /// The ends of the logs of all daemons.
    pub fn last_words(&self) -> String {
        last_words(&self.folder)
    }

    fn inside(&self, program: &str) -> Command {
        inside(self.keeper, &self.programs, program)
    }
}

/// The command that keeps the cluster's namespaces; its child is their first process.
fn keeper(programs: &Programs, folder: &Path, group: &str) -> Result<Command> {
    files::write(folder, group, programs)?;
    image::write(&image::BUSYBOX, folder, programs)?;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"])
        .arg(folder.join("control.sh"))
        .arg(folder)
        .arg(group)
        .args(NODES.iter().flat_map(|node| [node.name, node.ipv4, node.ipv6]))
        .env("PATH", programs.path());
    Ok(command)
}

/// Runs a command to its end, and returns its output.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("could not start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A program in the namespaces that a keeper's child is the first process of.
fn inside(keeper: u32, programs: &Programs, program: &str) -> Command {
    let namespace = |name: &str| format!("/proc/{}/ns/{name}", keeper);
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--pid={}", namespace("pid_for_children")))
        .arg(format!("--mount={}", namespace("mnt")))
        .arg(format!("--net={}", namespace("net")))
        .arg("--")
        .arg(program)
        .env("PATH", programs.path())
        .stdin(Stdio::null());
    command
}

/// The ends of all logs in a folder.
fn last_words(folder: &Path) -> String {
    let mut logs: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    let end = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!("{}:\n{}\n", path.display(), lines[lines.len().saturating_sub(10)..].join("\n"))
    };
    logs.iter().map(end).collect()
}
