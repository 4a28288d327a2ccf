//! Hundreds of pods on a node, each a unit with a journal of its own, made and taken away by several processes at once.

use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command};

use datapath::{DataPath, Family, NodeSpec, Pod, Reach};
use linux::IfName;
use plan::{Fault, Journal, Kernel, Place, Plan, Step, Undone};

use crate::pair::Pair;
use crate::paths::runnable;
use crate::specs::{Shape, published};

const PODS: u16 = 200;
const PROCESSES: u16 = 4;
/// For the child processes: a data path, the beginning of the names of namespaces, a number, the directory for journals.
const WORK: &str = "HOSTGAP_TEST_CROWD";

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
    let journals = std::fs::read_dir(directory.path()).expect("the directory").count();
    assert_eq!(journals, usize::from(PODS), "every pod had its turn");
    pair.assert_as(&names, &with_node, "after all pods");
    for (placed, outcome) in pair.undo(&mut journal) {
        // What was so before the node is not the node's to take back.
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

/// Makes its share of the pods, and then takes them away in an order of its own.
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
    let mut ids: Vec<u16> = (1..=PODS).filter(|id| id % PROCESSES == number).collect();
    let mut kernel = Kernel::new().unwrap();
    let file = |id: u16| Path::new(directory).join(format!("pod{id}"));
    for id in &ids {
        let pod = pod(&shape, *id);
        let mut plan = Plan::new();
        plan.push(&pod.place, Step::AddNetns);
        plan.extend(path.pod_plan(&node, &pod).unwrap());
        let mut journal = Journal::create(&file(*id)).unwrap();
        plan::apply(&plan, &mut journal, &mut kernel).unwrap_or_else(|error| panic!("{error}"));
    }
    ids.sort_by_key(|id| id.wrapping_mul(40_503));
    for id in ids {
        let mut journal = Journal::open(&file(id)).unwrap();
        for (placed, outcome) in plan::undo(&mut journal, &mut kernel) {
            assert_eq!(outcome, Undone::Restored, "pod {id}: {:?} of {}", placed.step, placed.place);
        }
    }
}

/// A node with one prefix that has room for all of them.
fn roomy(node: &NodeSpec) -> NodeSpec {
    let pods = ["10.244.0.0/22".parse().expect("a sound prefix")];
    NodeSpec { pods: pods.into_iter().collect(), ..node.clone() }
}

fn pod(shape: &Shape, id: u16) -> Pod {
    let [high, low] = (id + 255).to_be_bytes();
    Pod {
        id,
        place: Place::Netns(shape.netns(&format!("many{id}"))),
        ifname: IfName::new("eth0").expect("a sound name"),
        addresses: [IpAddr::from([10, 244, high, low])].into_iter().collect(),
        default_route: true,
        published: match shape.path.reach {
            Reach::PublishedPort => published(20_000 + id),
            Reach::Node | Reach::Pod => Vec::new(),
        },
    }
}
