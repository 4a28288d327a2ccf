//! Hundreds of pods on a node, each a unit of one book. Several processes make them at once, while others
//! take them away.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use datapath::{Addresses, DataPath, Family, Limits, NodeSpec, Pod, Protocol, Reach};
use linux::IfName;
use plan::{Book, BookError, Fault, Kernel, Place, Plan, Step, Undone};

use crate::pair::Pair;
use crate::paths::runnable;
use crate::specs::{Shape, published};

const PODS: u16 = 200;
const PROCESSES: u16 = 4;
/// For the child processes: a data path, the prefix of the namespaces' names, a number, the book's directory.
const WORK: &str = "HOSTGAP_TEST_CROWD";
/// How long a process waits for a pod that another one makes before it considers that process dead.
const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two checks for it.
const PAUSE: Duration = Duration::from_millis(5);

#[test]
fn behind_published_ports() {
    comes_and_goes("docker");
}

#[test]
fn in_the_maps_of_programs() {
    comes_and_goes("ebpf+direct");
}

fn comes_and_goes(name: &str) {
    let Some(path) = runnable(name) else { return };
    let mut pair = Pair::new(path, Family::V4);
    let names = pair.everywhere();
    let before = pair.dump(&names);
    let mut journal = pair.journal();
    let plan = path.node_plan(&roomy(&pair.nodes[1])).expect("a sound node");
    pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    let with_node = pair.dump(&names);
    let directory = tempfile::tempdir().expect("a directory");
    let children: Vec<Child> =
        (0..PROCESSES).map(|number| start(path, &pair, number, directory.path())).collect();
    let ends: Vec<_> = children.into_iter().map(|mut child| child.wait().expect("it is ours")).collect();
    assert!(ends.iter().all(std::process::ExitStatus::success), "{ends:?}");
    assert_eq!(Book::at(directory.path()).units().expect("the book can be read"), []);
    pair.assert_as(&names, &with_node, "after all pods");
    for (placed, outcome) in pair.undo(&mut journal) {
        // Undo leaves what was already set before the node.
        let well = matches!(outcome, Undone::Restored | Undone::AlreadySo);
        assert!(well, "{:?} of {}: {outcome:?}", placed.step, placed.place);
    }
    pair.assert_as(&names, &before, "after the node");
}

fn start(path: &DataPath, pair: &Pair, number: u16, directory: &Path) -> Child {
    let prefix = pair.nodes[1].place.name().expect("tests name their nodes").as_str();
    let prefix = prefix.strip_suffix("-n2").expect("the second node");
    Command::new(std::env::current_exe().expect("a test knows its program"))
        .args(["--exact", "crowd::child", "--ignored"])
        .env(WORK, format!("{} {prefix} {number} {}", path.name, directory.display()))
        .spawn()
        .expect("the test's program can be started")
}

/// Makes its share of the pods. After each, it takes away one pod of the next process if there is one, and at
/// the end the remaining ones as they appear.
#[test]
#[ignore = "this is a child process of the other tests"]
fn child() {
    let Ok(work) = std::env::var(WORK) else { return };
    let [path, prefix, number, directory] = work.splitn(4, ' ').collect::<Vec<_>>()[..] else {
        panic!("four words: {work}")
    };
    let path = datapath::find(path).unwrap();
    let shape = Shape::new(prefix, path);
    let node = roomy(&shape.node(2));
    let number: u16 = number.parse().unwrap();
    let share = |number: u16| (1..=PODS).filter(move |id| id % PROCESSES == number);
    let book = Book::at(directory);
    let mut kernel = Kernel::new().unwrap();
    let mut others: Vec<u16> = share((number + 1) % PROCESSES).collect();
    // In another order than the one in which they appear.
    others.sort_by_key(|id| id.wrapping_mul(40_503));
    for id in share(number) {
        let pod = pod(&shape, id);
        let mut plan = Plan::new();
        plan.push(&pod.place, Step::AddNetns);
        plan.extend(path.pod_plan(&node, &pod).unwrap());
        let unit = book.begin_as(&id.to_string()).unwrap();
        let mut journal = unit.journal("pod").unwrap();
        plan::apply(&plan, &mut journal, &mut kernel).unwrap_or_else(|error| panic!("{error}"));
        // Whichever process takes the unit over takes its journal too.
        drop(journal);
        unit.leave_standing("a pod of many").unwrap();
        take_one_away(&book, &mut others, &mut kernel);
    }
    let mut since = Instant::now();
    while !others.is_empty() {
        if take_one_away(&book, &mut others, &mut kernel) {
            since = Instant::now();
        } else {
            assert!(since.elapsed() < PATIENCE, "no process makes the pods {others:?}");
            std::thread::sleep(PAUSE);
        }
    }
}

/// Takes away the first of these pods that stands, and removes it from the list.
fn take_one_away(book: &Book, pods: &mut Vec<u16>, kernel: &mut Kernel) -> bool {
    for at in 0..pods.len() {
        let id = pods[at].to_string();
        let unit = match book.take_over(&id) {
            Ok(unit) => unit,
            // It does not exist yet, or is still being made.
            Err(BookError::Unknown { .. } | BookError::Held { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        for journal in unit.take_back(kernel).expect("the book can be read") {
            for (placed, outcome) in journal.steps.expect("the journal is whole") {
                assert_eq!(outcome, Undone::Restored, "pod {id}: {:?} of {}", placed.step, placed.place);
            }
        }
        unit.end().expect("all of it was taken back");
        pods.remove(at);
        return true;
    }
    false
}

/// The node with prefixes large enough for all pods.
fn roomy(node: &NodeSpec) -> NodeSpec {
    let pods = ["10.244.0.0/22", "fd00:244:0:2::/64"].map(|net| net.parse().expect("a sound prefix"));
    NodeSpec { pods: pods.into_iter().collect(), ..node.clone() }
}

fn pod(shape: &Shape, id: u16) -> Pod {
    let [high, low] = (id + 255).to_be_bytes();
    let v6 = Ipv6Addr::new(0xfd00, 0x244, 0, 2, 0, 0, 0, id + 255);
    Pod {
        id,
        place: Place::Netns(shape.netns(&format!("many{id}"))),
        ifname: IfName::new("eth0").expect("a sound name"),
        addresses: [IpAddr::from([10, 244, high, low]), v6.into()].into_iter().collect(),
        mac: None,
        default_route: true,
        gateways: Addresses::default(),
        routes: Vec::new(),
        published: match shape.path.reach {
            Reach::PublishedPort => {
                // One protocol is enough, because each element starts nft once.
                published(20_000 + id).into_iter().filter(|port| port.protocol == Protocol::Tcp).collect()
            }
            Reach::Node | Reach::Pod => Vec::new(),
        },
        limits: Limits::default(),
        device: None,
        vhost_user: false,
    }
}
