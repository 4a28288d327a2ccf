//! The backend `aws-vpc`: nodes in subnets of their own, and between them a cloud whose router goes by a table that
//! only the cloud's calls change.

mod mending;
mod protocol;
mod server;
mod taking_back;

use std::net::UdpSocket;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use agent::cloud::{Login, TakenBack, take_back};
use agent::source::file::FileSource;
use agent::status::Status;
use testkit::{dump, require_root, shell};

use self::server::{Instance, ROLE, Server, TABLE, URL};
use crate::keep::is_reached;
use crate::nodes::{Agent, Nodes, PATIENCE};

const PODS_A: &str = "10.244.1.0/24";
const PODS_B: &str = "10.244.2.0/24";

/// Two nodes in one cloud, and what is left of a third one.
struct Cloud {
    server: Server,
    nodes: Nodes,
}

impl Cloud {
    fn new() -> Cloud {
        let nodes = Nodes::apart();
        let router = nodes.world.add("router");
        let name = nodes.name("router").to_string();
        shell(&format!("ip -n {name} link set lo up; ip netns exec {name} sysctl -qw net.ipv4.ip_forward=1"));
        for (node, gateway, address, pod) in
            [("a", "192.0.2.1", "192.0.2.2", "10.244.1.9"), ("b", "192.0.2.17", "192.0.2.18", "10.244.2.9")]
        {
            let of_node = nodes.name(node);
            shell(&format!(
                "ip -n {of_node} link add wire type veth peer name {node} netns {name}
                 ip -n {of_node} address add {address}/28 dev wire; ip -n {name} address add {gateway}/28 dev {node}
                 ip -n {of_node} address add {pod}/32 dev lo; ip -n {of_node} link set lo up
                 ip -n {of_node} link set wire up; ip -n {name} link set dev {node} up
                 ip -n {of_node} route add default via {gateway}"
            ));
        }
        let instance =
            |name, address, is_alive| Instance { name, address, checks_source: is_alive, is_alive };
        let instances = vec![
            instance("a", "192.0.2.2", true),
            instance("b", "192.0.2.18", true),
            instance("c", "192.0.2.34", false),
        ];
        let backend = format!("{{ Type = \"aws-vpc\", RouteTableID = {TABLE:?} }}");
        let cloud = Cloud { server: Server::start(router, name, instances), nodes };
        cloud.write_leases(&backend);
        cloud
    }

    fn write_leases(&self, backend: &str) {
        let mut text = format!("[network]\nNetwork = \"10.244.0.0/16\"\nBackend = {backend}\n");
        for (name, public, pods) in [("a", "192.0.2.2", PODS_A), ("b", "192.0.2.18", PODS_B)] {
            text += &format!("[[node]]\nname = {name:?}\npublic = [{public:?}]\npods = [{pods:?}]\n");
        }
        std::fs::write(self.nodes.leases(), text).unwrap();
    }

    fn login() -> Login {
        let mut login = Login::default();
        login.endpoint = Some(URL.to_owned());
        login.metadata = Some(URL.to_owned());
        login
    }

    /// Starts a node's agent, which says when the node is in the network.
    fn begin(&self, node: &str, login: Login) -> (Agent, Receiver<()>) {
        let mut settings = self.nodes.settings(node);
        settings.cloud.login = login;
        let source = FileSource { path: self.nodes.leases(), node: node.to_owned() };
        Agent::begin(self.nodes.world.open(node), settings, self.nodes.home(node), source)
    }

    fn take_back(&self, node: &str) -> TakenBack {
        self.take_back_as(node, Cloud::login())
    }

    fn take_back_as(&self, node: &str, login: Login) -> TakenBack {
        let mut settings = self.nodes.settings(node).cloud;
        settings.login = login;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let work = || runtime.block_on(take_back(&settings, "pods")).unwrap();
        self.nodes.world.open(node).run(work).unwrap()
    }

    /// A packet from a's pods to b's, and one back.
    #[track_caller]
    fn exchange(&self) {
        let bind = |node: &str, address: &str| {
            let socket = self.nodes.world.open(node).run(|| UdpSocket::bind(address)).unwrap().unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let (near, far) = (bind("a", "10.244.1.9:0"), bind("b", "10.244.2.9:0"));
        near.send_to(b"question", far.local_addr().unwrap()).unwrap();
        let mut bytes = [0; 16];
        let (_, from) = far.recv_from(&mut bytes).unwrap();
        assert_eq!(from, near.local_addr().unwrap());
        far.send_to(b"answer", from).unwrap();
        assert_eq!(near.recv(&mut bytes).unwrap(), b"answer".len());
    }
}

fn cloud_says(words: &'static [&'static str]) -> impl Fn(&Status) -> bool {
    move |status| {
        let why = status.cloud.as_ref().map(|cloud| cloud.failed.join("; ")).unwrap_or_default();
        words.iter().all(|word| why.contains(word))
    }
}

#[test]
fn pods_reach_each_other_by_the_table_of_the_cloud() {
    if !require_root() {
        return;
    }
    let cloud = Cloud::new();
    // Without a name it is found: the main table of the network.
    cloud.write_leases("{ Type = \"aws-vpc\" }");
    let before = ["a", "b"].map(|node| dump(&cloud.nodes.world.open(node)));
    let (a, a_ready) = cloud.begin("a", Cloud::login());
    let (b, b_ready) = cloud.begin("b", Cloud::login());
    a_ready.recv_timeout(PATIENCE).unwrap();
    b_ready.recv_timeout(PATIENCE).unwrap();
    let status = a.until("b is reached", is_reached("b", "aws-vpc"));
    b.until("a is reached", is_reached("a", "aws-vpc"));
    cloud.exchange();
    assert_eq!((status.mtu, status.backend.as_deref()), (Some(1500), Some("aws-vpc")));
    let shown = status.cloud.unwrap();
    assert_eq!((shown.interface.as_deref(), shown.tables[0].name.as_str()), (Some("eni-a"), TABLE));
    for (node, before) in ["a", "b"].iter().zip(&before) {
        before.assert_same(&dump(&cloud.nodes.world.open(node)), "nothing is made on a node");
    }
    // A stranger deletes one. Each node mends its own.
    cloud.server.state().delete(PODS_B);
    b.until("it is mended", |status| status.repairs.iter().any(|repair| repair.what.contains(PODS_B)));
    a.until("b is reached", is_reached("b", "aws-vpc"));
    cloud.exchange();
    drop((a, b));
    // Packets need no agent.
    cloud.exchange();
    for node in ["a", "b"] {
        let taken = cloud.take_back(node);
        assert_eq!((taken.done.len(), taken.failed.len()), (2, 0), "{taken:?}");
    }
    let state = cloud.server.state();
    assert!(state.routes.is_empty(), "{:?}", state.routes);
    assert!(state.instances.iter().filter(|one| one.is_alive).all(|one| one.checks_source));
    let made = state.changes.iter().filter(|change| change.starts_with("CreateRoute")).count();
    assert_eq!(made, 3, "{:?}", state.changes);
}

#[test]
fn a_full_table_is_named_with_its_limit_and_the_remedy() {
    if !require_root() {
        return;
    }
    let cloud = Cloud::new();
    cloud.server.state().routes_max = 1;
    let (a, ready) = cloud.begin("a", Cloud::login());
    let words = &["RouteLimitExceeded", TABLE, PODS_A, "with 1 routes", "L-93826ACB", "vxlan"];
    a.until("the table is full", cloud_says(words));
    assert!(ready.try_recv().is_err());
    cloud.server.state().routes_max = 50;
    ready.recv_timeout(PATIENCE).unwrap();
    assert_eq!(cloud.server.state().routes[PODS_A], "a");
}

#[test]
fn who_makes_too_many_calls_waits_longer_each_time() {
    if !require_root() {
        return;
    }
    let cloud = Cloud::new();
    cloud.server.state().throttled = 3;
    let (a, ready) = cloud.begin("a", Cloud::login());
    a.until("it is throttled", cloud_says(&["RequestLimitExceeded"]));
    ready.recv_timeout(PATIENCE).unwrap();
    let state = cloud.server.state();
    let [first, second, third] = state.refused_at[..] else { panic!("{:?}", state.refused_at) };
    // Half of the wait at least: of 1 s, and of 2 s.
    assert!(second - first >= Duration::from_millis(500), "{:?}", second - first);
    assert!(third - second >= Duration::from_secs(1), "{:?}", third - second);
}

#[test]
fn a_refused_call_is_named_without_secrets() {
    if !require_root() {
        return;
    }
    let cloud = Cloud::new();
    let (mut a, _ready) = cloud.begin("a", Cloud::login().with_keys("AKIAWRONG", "hush-hush"));
    let status = a.until("it is refused", cloud_says(&["AuthFailure"]));
    assert!(!format!("{status:?}").contains("hush-hush"));
    a.stop().unwrap();
    cloud.server.state().denied.insert("CreateRoute");
    let (a, ready) = cloud.begin("a", Cloud::login());
    let status = a.until("it is refused", cloud_says(&["UnauthorizedOperation", "ec2:CreateRoute"]));
    assert!(!format!("{status:?}").contains(ROLE.secret) && !format!("{status:?}").contains(ROLE.token));
    cloud.server.state().denied.clear();
    ready.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn a_route_to_another_instance_is_left_alone_while_that_lives() {
    if !require_root() {
        return;
    }
    let cloud = Cloud::new();
    cloud.server.state().lead(PODS_A, "b");
    let (a, ready) = cloud.begin("a", Cloud::login());
    a.until("it is refused", cloud_says(&[TABLE, PODS_A, "eni-b of i-b", "which is alive"]));
    assert!(ready.try_recv().is_err());
    assert_eq!(cloud.server.state().routes[PODS_A], "b");
    cloud.server.state().lead(PODS_A, "c");
    ready.recv_timeout(PATIENCE).unwrap();
    assert_eq!(cloud.server.state().routes[PODS_A], "a");
    drop(a);
    // Back to where it led: the dead one.
    let taken = cloud.take_back("a");
    assert_eq!((taken.done.len(), taken.failed.len()), (2, 0), "{taken:?}");
    assert_eq!(cloud.server.state().routes[PODS_A], "c");
}
