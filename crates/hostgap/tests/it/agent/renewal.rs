//! An agent of another build begins on a node whose pods stand: the programs that their packets meet become its
//! own, while they talk.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bpf::forward::Program;
use bpf::{forward, guard, pins};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use linux::features::{self, Feature};
use testkit::{Dump, dump, require_root, skip};

use super::pods::address;
use super::programs::EBPF;
use super::{Nodes, Running, WIRE, answered_all, serve, text, until};

/// What a network has pinned: which programs, and the map that has their format.
struct Pinned {
    programs: &'static [Program],
    format: (&'static str, u32),
    /// What the agent and the command call them.
    called: [&'static str; 2],
}

const FORWARDING: Pinned = Pinned {
    programs: Program::FORWARD,
    format: ("format", forward::FORMAT),
    called: ["the programs that forward packets of pods", "the programs"],
};
const GUARD: Pinned = Pinned {
    programs: &[Program::Guard],
    format: ("guard_format", guard::FORMAT),
    called: ["the programs that check what pods send", "the guard"],
};

impl Pinned {
    /// The kernel's numbers of the programs.
    fn ids(&self, folder: &Path) -> BTreeMap<&'static str, String> {
        let id = |program: &Program| (program.name(), id_of(&program.pin(folder)));
        self.programs.iter().map(id).collect()
    }

    /// Leaves programs as another build would: one of them is of others.
    fn make_of_another_build(&self, folder: &Path, other: &Path) {
        let last = self.programs.last().unwrap();
        let [from, of] = match last {
            Program::Guard => [other.join("from_wire"), folder.join("guard")],
            _ => [other.join("guard"), last.pin(folder)],
        };
        fs::hard_link(&from, other.join("moving")).unwrap();
        fs::rename(other.join("moving"), of).unwrap();
    }

    fn write_format(&self, folder: &Path, number: u32) {
        let format = MapHandle::from_pinned_path(folder.join(self.format.0)).unwrap();
        format.update(&[0; 4], &number.to_ne_bytes(), MapFlags::ANY).unwrap();
    }
}

fn id_of(pin: &Path) -> String {
    let program = libbpf_rs::Program::fd_from_pinned_path(pin).unwrap();
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).unwrap();
    info.lines().find_map(|line| line.strip_prefix("prog_id:")).unwrap().trim().to_owned()
}

/// Two nodes with agents and a pod each, of which one serves.
struct Scene {
    nodes: Nodes,
    agents: Vec<Running>,
    /// The name of the programs on either node.
    node: String,
    pinned: Pinned,
    args: Vec<&'static str>,
    url: String,
    before: [Dump; 2],
    _server: Running,
}

impl Scene {
    fn new(attach: &[&'static str], pinned: Pinned) -> Scene {
        let nodes = Nodes::new("vxlan");
        for node in ["a", "b"] {
            pins::make(&nodes.pins(node)).unwrap();
        }
        let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
        let agents: Vec<Running> =
            ["a", "b"].iter().map(|node| nodes.start_with(node, "log", attach)).collect();
        nodes.until_reached("a", "b", &agents[0]);
        nodes.until_reached("b", "a", &agents[1]);
        let pods = [("a", "pod-a", &agents[0]), ("b", "pod-b", &agents[1])].map(|(node, pod, agent)| {
            nodes.world.add(pod);
            address(&nodes.call("ADD", node, pod, &nodes.configuration(node, agent)))
        });
        let at = format!("{}:8080", pods[1]);
        let folders = fs::read_dir(nodes.pins("a")).unwrap().map(|entry| entry.unwrap());
        let names = folders.map(|folder| folder.file_name().into_string().unwrap());
        let node = names.into_iter().find(|name| name.starts_with("host-")).unwrap();
        let _server = serve(nodes.in_pod("pod-b", &["serve", "--listen", &at]));
        let url = format!("http://{at}/");
        Scene { nodes, agents, node, pinned, args: attach.to_vec(), url, before, _server }
    }

    fn folder(&self, node: &str) -> PathBuf {
        self.nodes.pins(node).join(&self.node)
    }

    fn ids(&self, node: &str) -> BTreeMap<&'static str, String> {
        self.pinned.ids(&self.folder(node))
    }

    /// Programs of another kind than the network's, in a folder of the node's bpffs.
    fn other(&self, node: &str) -> PathBuf {
        let folder = self.nodes.pins(node).join("other");
        if !folder.exists() {
            fs::create_dir(&folder).unwrap();
            match self.pinned.programs {
                [Program::Guard] => {
                    let config = forward::NodeConfig {
                        wire: 1,
                        mtu: 1500,
                        gateway: [169, 254, 1, 1].into(),
                        gateway_mac: linux::Mac([2, 0, 0, 0, 0, 1]),
                        pods: Vec::new(),
                        cluster: Vec::new(),
                        tunnel: None,
                        route_seconds: 1,
                    };
                    forward::load(&folder, &config).map(drop)
                }
                _ => guard::load(&folder),
            }
            .unwrap();
        }
        folder
    }

    /// Another agent in the place of a node's. What it has said when the node is in the network.
    #[track_caller]
    fn exchange(&mut self, at: usize, log: &str) -> String {
        let (node, other) = [("a", "b"), ("b", "a")][at];
        self.agents[at].kill();
        self.agents[at] = self.nodes.start_with(node, log, &self.args);
        self.nodes.until_reached(node, other, &self.agents[at]);
        let said = || fs::read_to_string(&self.agents[at].log).unwrap();
        until("the node is in the network", &self.agents[at], || {
            said().contains("the node is in the network")
        });
        said()
    }

    /// Requests from one pod to the other.
    fn load(&self, duration: &str) -> Child {
        let args =
            ["load", &self.url, "--rate", "200", "--duration", duration, "--connections", "4", "--json"];
        self.nodes.in_pod("pod-a", &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// On each node programs of another build, then an agent of this one, and another of this one.
    fn renew(&mut self, round: usize) {
        for (at, node) in ["a", "b"].into_iter().enumerate() {
            let (folder, before) = (self.folder(node), self.ids(node));
            self.pinned.make_of_another_build(&folder, &self.other(node));
            let said = self.exchange(at, &format!("renewing-{round}"));
            let says = format!("{} are this version's now", self.pinned.called[0]);
            assert_eq!(said.matches(&says).count(), 1, "{said}");
            let renewed = self.ids(node);
            for (program, id) in &renewed {
                assert_ne!(before[program], *id, "{program} of {node}: {said}");
            }
            self.assert_met(node, &renewed);
            let said = self.exchange(at, &format!("renewed-{round}"));
            assert!(!said.contains(self.pinned.called[0]), "{said}");
            assert_eq!(self.ids(node), renewed, "an agent of the same build");
        }
    }

    /// Where the kernel has a list of programs at a link, those are the pinned ones.
    fn assert_met(&self, node: &str, ids: &BTreeMap<&'static str, String>) {
        let netns = self.nodes.world.open(node);
        let at_links = netns.run(|| {
            let links = linux::Netlink::open().unwrap().links().unwrap();
            links.iter().flat_map(|link| bpf::program_ids_at(link.index).unwrap()).collect::<Vec<_>>()
        });
        for (hook, id) in at_links.unwrap() {
            assert!(ids.values().any(|known| *known == id.to_string()), "{id} at {hook}: {ids:?}");
        }
    }

    /// Maps of a later version: the agent names their format, and the programs go on.
    fn refuse(&mut self) {
        let (folder, before) = (self.folder("a"), self.ids("a"));
        let (called, (_, format)) = (self.pinned.called[0], self.pinned.format);
        self.pinned.write_format(&folder, format + 1);
        let said = self.exchange(0, "refusing");
        self.pinned.write_format(&folder, format);
        let node = &self.node;
        let says = format!("{called} ({node}): they go on as another version has made them: ");
        assert!(said.contains(&says), "{said}");
        assert!(said.contains(&format!("are of format {}, which another version", format + 1)), "{said}");
        assert_eq!(self.ids("a"), before);
    }

    /// Agents that do not see what is pinned, as those of a DaemonSet without its directories.
    fn pass_by(&mut self) {
        self.pinned.make_of_another_build(&self.folder("a"), &self.other("a"));
        let before = self.ids("a");
        let log = self.nodes.path("a").join("unseeing");
        let mut seeing = self.nodes.agent("a", "run");
        seeing.args(&self.args);
        let mut command = Command::new(seeing.get_program());
        command.args(seeing.get_args().map(|arg| {
            let arg = arg.to_str().unwrap();
            arg.replace("&& exec", "&& umount /run/hostgap-bpf && exec")
        }));
        self.agents[0].kill();
        let file = fs::File::create(&log).unwrap();
        let child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        self.agents[0] = Running { child, log };
        let node = self.node.as_str();
        let says = format!("on the node, `hostgap-cli bpf replace {node}` replaces them");
        let said = || fs::read_to_string(&self.agents[0].log).unwrap();
        until("it says what to do", &self.agents[0], || said().contains(&says));
        assert_eq!(self.ids("a"), before);
        // As it says, and for all networks of the node.
        for args in [&["bpf", "replace", node][..], &["bpf", "replace"]] {
            let before = self.ids("a");
            let output = self.nodes.hostgap("a", args).output().unwrap();
            let says = format!("{} of {node} ", self.pinned.called[1]);
            assert!(output.status.success() && text(&output.stdout).starts_with(&says), "{output:?}");
            let after = self.ids("a");
            assert!(before.iter().all(|(program, id)| after[program] != *id), "{before:?} {after:?}");
        }
        for (args, why) in [
            (&["bpf", "replace", node, "--mtu", "1400"][..], "--wire"),
            (&["bpf", "replace", "other"], "are of no network of the CNI plugin"),
        ] {
            let output = self.nodes.hostgap("a", args).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(text(&output.stderr).contains(why), "{output:?}");
        }
    }
}

fn under_load(attach: &[&'static str], pinned: Pinned) {
    if !require_root() {
        return;
    }
    if let Some(unmet) = features::probe().unwrap().unmet(&[Feature::BpfTc, Feature::Nftables]).first() {
        return skip(&unmet.to_string());
    }
    let mut scene = Scene::new(attach, pinned);
    let mut load = scene.load("5s");
    let mut rounds = 0;
    while load.try_wait().unwrap().is_none() {
        scene.renew(rounds);
        rounds += 1;
    }
    let answered = answered_all(&load.wait_with_output().unwrap());
    assert!(answered > 500 && rounds > 0, "{answered} answers in {rounds} rounds");
    scene.refuse();
    scene.pass_by();
    assert!(answered_all(&scene.load("1s").wait_with_output().unwrap()) > 100);
    end(scene);
}

/// Takes everything back.
fn end(mut scene: Scene) {
    for (at, (node, pod)) in [("a", "pod-a"), ("b", "pod-b")].into_iter().enumerate() {
        let conf = scene.nodes.configuration(node, &scene.agents[at]);
        scene.agents[at].kill();
        scene.nodes.call("DEL", node, pod, &conf);
    }
    scene.nodes.assert_taken_back(&scene.before);
    for node in ["a", "b"] {
        assert!(!scene.folder(node).exists());
    }
}

#[test]
fn programs_that_forward_are_renewed_while_pods_talk() {
    under_load(&EBPF, FORWARDING);
}

#[test]
fn a_guard_is_renewed_while_pods_talk() {
    under_load(&WIRE, GUARD);
}
