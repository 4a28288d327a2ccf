//! `cargo xtask cluster`: the Kubernetes of the tests, by hand.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cluster::{Agents, CalledBy, Cluster, NODES, Programs};

use crate::native::is_root;
use crate::suites::target;
use crate::{cargo, check, root};

const USAGE: &str = "\
usage: cargo xtask cluster up [ATTACH [BACKEND]]
                                           start it, with the plugin's attach ATTACH (default ptp) and
                                           agents of the backend BACKEND, host-gw or vxlan (default vxlan);
                                           they lead Services where the attach needs it
       cargo xtask cluster kubectl ARG...  speak to its API server
       cargo xtask cluster on NODE COMMAND...
                                           run a command on node-1 or node-2, in the node's namespaces
       cargo xtask cluster e2e ARG...      run Kubernetes' own tests, for example those with
                                           --ginkgo.focus='sig-network.*Conformance'
       cargo xtask cluster probe           let pods call each other by address, Service and name (cyclonus)
       cargo xtask cluster down            end it";

/// Does what the arguments say.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if !is_root()? {
        bail!("a cluster is made of namespaces: run this as root");
    }
    let folder = target()?.join("cluster");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["up"] => up(&folder, "ptp", "vxlan"),
        ["up", attach] => up(&folder, attach, "vxlan"),
        ["up", attach, backend] => up(&folder, attach, backend),
        ["down"] => {
            Cluster::open(&folder)?.end()?;
            std::fs::remove_dir_all(&folder).with_context(|| format!("could not remove {}", folder.display()))
        }
        ["e2e", rest @ ..] => {
            let passed = Cluster::open(&folder)?.e2e(rest)?;
            println!("{passed} passed");
            Ok(())
        }
        ["probe"] => {
            let cluster = Cluster::open(&folder)?;
            for by in CalledBy::ALL {
                println!("by {by}: {} calls answered", cluster.probe(by)?);
            }
            Ok(())
        }
        ["kubectl", rest @ ..] => becomes(Cluster::open(&folder)?.kubectl().args(rest)),
        ["on", name, program, rest @ ..] => {
            let node = NODES.into_iter().find(|node| node.name == *name);
            let node = node.with_context(|| format!("there is no node {name:?}\n\n{USAGE}"))?;
            becomes(Cluster::open(&folder)?.on(node, program).args(rest))
        }
        _ => bail!("{USAGE}"),
    }
}

fn up(folder: &Path, attach: &str, backend: &str) -> Result<()> {
    if Cluster::open(folder).is_ok() {
        bail!("a cluster runs in {}: cargo xtask cluster down ends it", folder.display());
    }
    let programs = programs()?;
    check(cargo().args(["build", "--package", "hostgap"]))?;
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("could not remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
    let cluster = Cluster::start_to_stay(programs, folder, &format!("hgt-cluster-{}", std::process::id()))?;
    println!("the control plane runs; logs are in {}; cargo xtask cluster down ends it", folder.display());
    let hostgap = target()?.join("debug/hostgap");
    // Packets of all others miss kube-proxy's rules.
    let services = !["bridge", "ptp"].contains(&attach);
    cluster.connect_by_agents(Agents { hostgap: &hostgap, attach, backend, services })?;
    cluster.serve_names()?;
    println!("both nodes are ready\n\n{USAGE}");
    Ok(())
}

/// The programs that the environment names, and else those of the scripts that fetch or build them.
fn programs() -> Result<Programs> {
    Programs::from_env(|script| {
        let mut command = Command::new(root().join(script));
        let output =
            command.stderr(Stdio::inherit()).output().with_context(|| format!("could not start {script}"))?;
        if !output.status.success() {
            bail!("{script} ended with {}", output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    })
}

/// Replaces this process. It returns only if that fails.
fn becomes(command: &mut Command) -> Result<()> {
    command.stdin(Stdio::inherit());
    Err(command.exec()).with_context(|| format!("could not start {command:?}"))
}
