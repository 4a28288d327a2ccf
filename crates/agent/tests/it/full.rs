//! Disks that are full: what stands goes on, the log says once what could not be written and why, and when there is
//! room again all is made, without a restart.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agent::Settings;
use agent::source::file::FileSource;
use agent::status::Status;
use node::install::RuntimeDirs;
use testkit::{Talk, dump, require_root, shell};

use crate::changes::with_pods;
use crate::keep::{A, B, VXLAN, is_reached, take_back};
use crate::nodes::{Agent, Nodes, PATIENCE};

const NO_ROOM: &str = "No space left on device";

/// A file system of its own, which can be filled. It ends with this value.
pub(crate) struct Disk(PathBuf);

impl Disk {
    pub(crate) fn at(path: PathBuf) -> Disk {
        fs::create_dir_all(&path).unwrap();
        shell(&format!("mount -t tmpfs -o size=1m none {}", path.display()));
        Disk(path)
    }

    /// Takes all the room there is.
    pub(crate) fn fill(&self) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.0.join("fill")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    pub(crate) fn make_room(&self) {
        fs::remove_file(self.0.join("fill")).unwrap();
    }

    /// The files that are written beside another one to take its place.
    pub(crate) fn half_written(&self) -> String {
        shell(&format!("find {} -name '*.new*'", self.0.display()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Of a test that has failed a process may still be there.
        shell(&format!("umount --lazy {}", self.0.display()));
    }
}

/// The nodes of a network: a and b, whose pods talk, and others that are not there.
fn leases(others: &[(u8, u8)]) -> Vec<(String, String, String)> {
    let own =
        |(name, public, pods): (&str, &str, &str)| (name.to_owned(), public.to_owned(), pods.to_owned());
    let other = |(node, public): &(u8, u8)| {
        let pods = format!("10.244.{node}.0/24 fd00:244:0:{node}::/64");
        (format!("n{node}"), format!("192.0.2.{public} 2001:db8::{public}"), pods)
    };
    [A, B].map(own).into_iter().chain(others.iter().map(other)).collect()
}

fn write_leases(nodes: &Nodes, others: &[(u8, u8)]) {
    let all = leases(others);
    let all = all.iter().map(|(name, public, pods)| (name.as_str(), public.as_str(), pods.as_str()));
    nodes.write_leases(VXLAN, &all.collect::<Vec<_>>());
}

fn until(what: &str, agent: &Agent, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not so: {what}: {:#?}", agent.log.lines());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn begin(nodes: &Nodes, masquerade: bool) -> (Agent, std::sync::mpsc::Receiver<()>) {
    let settings = Settings { masquerade, ..nodes.settings("a") };
    let source = FileSource { path: nodes.leases(), node: "a".to_owned() };
    Agent::begin(nodes.world.open("a"), settings, nodes.home("a"), source)
}

#[test]
fn a_full_run_keeps_what_stands_and_follows_when_there_is_room() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    let disk = Disk::at(nodes.directory.path().join("a"));
    write_leases(&nodes, &[(3, 3), (5, 5)]);
    let (mut a, is_ready) = begin(&nodes, false);
    is_ready.recv_timeout(PATIENCE).unwrap();
    let b = nodes.start("b");
    b.until("a is reached", is_reached("a", "vxlan"));
    let has_route = |node: u8| nodes.at(&format!("ip -n A route show 10.244.{node}.0/24")).contains("dev");
    let [from, to] = ["pod-a", "pod-b"].map(|pod| nodes.world.open(pod));
    let talks = ["10.244.2.5", "fd00:244:0:2::5"].map(|address| Talk::begin_paced(&from, &to, address));

    disk.fill();
    for _ in 0..20 {
        nodes.at("ip -n A route del 10.244.3.0/24");
        until("what a stranger deleted is back", &a, || has_route(3));
    }
    a.check_said_once(NO_ROOM);
    // One goes, whose journal makes room; then one comes, and one has another address.
    write_leases(&nodes, &[(3, 3)]);
    until("who has left is gone", &a, || !has_route(5));
    disk.fill();
    write_leases(&nodes, &[(3, 33), (4, 4)]);
    a.until_said(&["node n4: ", "run/agent/pods/", NO_ROOM]);
    assert!(has_route(3) && !has_route(4));
    talks.iter().for_each(Talk::goes_on);
    a.check_said_once("peer-n4.journal");
    // The next agent begins on the full disk, and cannot write what other programs read.
    a.stop().unwrap();
    let environment = nodes.settings("a").subnet_env;
    let written = fs::read(&environment).unwrap();
    let (a, is_ready) = begin(&nodes, true);
    a.until_said(&["network: write ", "/subnet.env: No space left on device"]);
    for _ in 0..5 {
        nodes.at("ip -n A route del 10.244.3.0/24");
        until("what a stranger deleted is back", &a, || has_route(3));
    }
    assert!(is_ready.try_recv().is_err() && fs::read(&environment).unwrap() == written);
    a.check_said_once(NO_ROOM);

    disk.make_room();
    is_ready.recv_timeout(PATIENCE).unwrap();
    let is_whole = |status: &Status| status.peers.len() == 3 && is_reached("n4", "vxlan")(status);
    let status = a.until("all is made", is_whole);
    assert_eq!(status.undecided, None);
    let entries = nodes.at("bridge -n A fdb show dynamic ; bridge -n A fdb show ");
    assert!(entries.contains("dst 192.0.2.33") && !entries.contains("dst 192.0.2.3 "), "{entries}");
    assert!(fs::read_to_string(&environment).unwrap().contains("FLANNEL_IPMASQ=true"));
    a.until_said(&["network: it is as it should be again"]);
    talks.into_iter().for_each(Talk::end);
    assert_eq!(disk.half_written(), "");
    drop((a, b));
    take_back(&nodes, &before);
}

#[test]
fn an_agent_that_begins_on_a_full_disk_waits_for_room() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    let disk = Disk::at(nodes.directory.path().join("a"));
    disk.fill();
    write_leases(&nodes, &[]);
    let (a, is_ready) = begin(&nodes, false);
    a.until_said(&["a/run/agent", NO_ROOM, "waiting until there is room"]);
    disk.make_room();
    is_ready.recv_timeout(PATIENCE).unwrap();
    assert_eq!(disk.half_written(), "");
    a.check_said_once(NO_ROOM);
}

#[test]
fn a_configuration_for_runtimes_comes_back_when_there_is_room() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    write_leases(&nodes, &[]);
    let at = |name: &str| nodes.directory.path().join(name);
    let disk = Disk::at(at("net.d"));
    let conflist = at("net.d/10-pods.conflist");
    let settings =
        Settings { runtime: Some(RuntimeDirs { bin: at("bin"), conf: at("net.d") }), ..nodes.settings("a") };
    let file = FileSource { path: nodes.leases(), node: "a".to_owned() };
    let a = Agent::start(nodes.world.open("a"), settings, nodes.home("a"), file);
    let text = fs::read_to_string(&conflist).unwrap();
    disk.fill();
    let another = text.replace("ptp", "bridge");
    fs::write(&conflist, &another).unwrap();
    // The agent looks again.
    nodes.at("ip -n A address add 192.0.2.91/32 dev wire");
    a.until_said(&["10-pods.conflist: No space left on device"]);
    assert_eq!(fs::read_to_string(&conflist).unwrap(), another);
    disk.make_room();
    nodes.at("ip -n A address add 192.0.2.92/32 dev wire");
    a.until("it is back", |status| {
        status.undecided.is_none() && status.repairs.iter().any(|one| one.what.contains("conflist"))
    });
    assert_eq!((fs::read_to_string(&conflist).unwrap(), disk.half_written()), (text, String::new()));
    a.check_said_once(NO_ROOM);
}
