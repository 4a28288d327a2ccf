//! Ports of UDP that go from container to container, while clients go on sending from the port that they had.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use linux::netlink::{Conntrack, TrackedUdp};
use serde_json::{Value, json};
use testkit::shell;

use crate::scene::{PATIENCE, Scene, address, conf, with, works};

/// A sender that never changes its source port.
struct Client {
    name: &'static str,
    socket: UdpSocket,
    to: SocketAddr,
}

impl Client {
    fn new(scene: &Scene, name: &'static str, to: &str) -> Client {
        let to: SocketAddr = to.parse().unwrap();
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = scene.world.open(name).run(|| UdpSocket::bind(any)).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { name, socket, to }
    }

    fn send(&self) {
        self.socket.send_to(self.name.as_bytes(), self.to).unwrap();
    }

    /// A datagram there, and an answer that comes from where it was sent to.
    #[track_caller]
    fn assert_served_by(&self, server: &UdpSocket) {
        let mut bytes = [0; 16];
        self.send();
        let received = server.recv_from(&mut bytes);
        let (length, from) = received.unwrap_or_else(|error| panic!("{} to {}: {error}", self.name, self.to));
        assert_eq!(&bytes[..length], self.name.as_bytes(), "to {}", self.to);
        server.send_to(b"answer", from).unwrap();
        let (_, from) = self.socket.recv_from(&mut bytes).unwrap();
        assert_eq!(from, self.to);
    }
}

/// Serves at port 53 of a container, in both families.
fn serve(scene: &Scene, container: &str) -> UdpSocket {
    let server = scene.world.open(container).run(|| UdpSocket::bind("[::]:53")).unwrap().unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    server
}

/// What the node tracks of UDP to a port.
fn tracked(scene: &Scene, port: u16) -> Vec<TrackedUdp> {
    let conntrack = Conntrack::open_in(&scene.world.open("node")).unwrap();
    [false, true].into_iter().flat_map(|ipv6| conntrack.udp(ipv6, Some(port)).unwrap()).collect()
}

/// Waits until what a client has sent to the node itself is tracked so.
#[track_caller]
fn wait_until_untranslated(scene: &Scene, client: &Client) {
    let begun = Instant::now();
    let is_so = |one: &TrackedUdp| one.to == client.to && one.answered_from == client.to;
    while !tracked(scene, client.to.port()).iter().any(is_so) {
        assert!(begun.elapsed() < PATIENCE, "{} to {}", client.name, client.to);
        client.send();
    }
}

fn clients(scene: &Scene) -> Vec<Client> {
    let outside = ["192.0.2.1:5353", "[2001:db8::1]:5353", "192.0.2.1:5354"];
    let inside = ["127.0.0.1:5353", "192.0.2.1:5353", "[2001:db8::1]:5353"];
    let outside = outside.into_iter().map(|to| Client::new(scene, "far", to));
    outside.chain(inside.into_iter().map(|to| Client::new(scene, "node", to))).collect()
}

fn ports() -> Value {
    json!({ "portMappings": [
        { "hostPort": 5353, "containerPort": 53, "protocol": "udp" },
        { "hostPort": 5354, "containerPort": 53, "protocol": "udp", "hostIP": "192.0.2.1" },
        { "hostPort": 5353, "containerPort": 80, "protocol": "tcp" },
    ] })
}

/// A container with ports goes and another takes its place, with another address: clients that go on sending from one
/// port reach it, whether they sent anything between or not.
#[track_caller]
fn follow(name: &str, conf: &Value) {
    let Some(scene) = Scene::new() else { return };
    let conf = with(conf.clone(), "runtimeConfig", ports());
    let node = scene.world.name("node");
    // Connections are tracked whether a port is published or not, as with a firewall or kube-proxy.
    let _ = shell(&format!(
        "ip netns exec {node} nft add table inet firewall
         ip netns exec {node} nft 'add chain inet firewall in {{ type filter hook input priority 0; }}'
         ip netns exec {node} nft add rule inet firewall in ct state established accept"
    ));
    let clients = clients(&scene);
    let mut before = String::new();
    for (container, sends_between) in [("a", true), ("b", false), ("c", false)] {
        let _ = scene.container(container);
        let result = works(scene.call_named(name, "ADD", container, &conf));
        assert_ne!(before, address(&result, 0), "the next one has another address");
        before = address(&result, 0);
        let server = serve(&scene, container);
        for client in &clients {
            client.assert_served_by(&server);
        }
        works(scene.call_named(name, "DEL", container, &conf));
        // Nothing leads to the address any more, which another container may have some day.
        let left: Vec<TrackedUdp> = [5353, 5354].into_iter().flat_map(|port| tracked(&scene, port)).collect();
        assert_eq!(left, [], "after DEL of {container}");
        for client in clients.iter().filter(|_| sends_between) {
            wait_until_untranslated(&scene, client);
        }
    }
}

#[test]
fn of_a_bridge() {
    follow("hostgap", &conf("bridge"));
}

#[test]
fn of_routed_links() {
    follow("hostgap", &conf("ptp"));
}

#[test]
fn of_routed_links_by_the_name_of_another_plugin() {
    let ranges = json!([[{ "subnet": "10.244.1.0/24" }], [{ "subnet": "fd00:244:0:1::/64" }]]);
    let routes = json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]);
    let ipam = json!({ "type": "host-local", "ranges": ranges, "routes": routes });
    follow("ptp", &json!({ "cniVersion": "1.0.0", "name": "pods", "type": "ptp", "ipam": ipam }));
}

/// What only passes the node keeps its entry, though it goes to a port of that number: to a container's own address,
/// and to an address that another program's rules lead to it.
#[test]
fn what_passes_the_node_is_left() {
    let Some(scene) = Scene::new() else { return };
    for name in ["other", "a"] {
        let _ = scene.container(name);
    }
    let other = address(&scene.add("other", &conf("ptp")), 0);
    let (node, far) = (scene.world.name("node"), scene.world.name("far"));
    let _ = shell(&format!(
        "ip -n {far} route add 10.244.1.0/24 via 192.0.2.1; ip -n {far} route add 203.0.113.9 via 192.0.2.1
         ip netns exec {node} nft add table ip services
         ip netns exec {node} nft 'add chain ip services in {{ type nat hook prerouting priority -100; }}'
         ip netns exec {node} nft 'add rule ip services in ip daddr 203.0.113.9 udp dport 5353 dnat to {other}:53'"
    ));
    let server = serve(&scene, "other");
    let direct = scene.world.open("other").run(|| UdpSocket::bind("0.0.0.0:5353")).unwrap().unwrap();
    direct.set_read_timeout(Some(PATIENCE)).unwrap();
    let passing = [
        (Client::new(&scene, "far", &format!("{other}:5353")), &direct),
        (Client::new(&scene, "far", "203.0.113.9:5353"), &server),
    ];
    for (client, server) in &passing {
        client.assert_served_by(server);
    }
    let to_node = Client::new(&scene, "far", "192.0.2.1:5353");
    wait_until_untranslated(&scene, &to_node);
    let passes = |one: &TrackedUdp| one.to != to_node.to;
    let before: Vec<TrackedUdp> = tracked(&scene, 5353).into_iter().filter(passes).collect();
    assert_eq!(before.len(), 2, "{before:?}");

    let conf = with(conf("ptp"), "runtimeConfig", ports());
    scene.add("a", &conf);
    assert_eq!(tracked(&scene, 5353), before, "what went to the node itself is forgotten");
    to_node.assert_served_by(&serve(&scene, "a"));
    scene.succeed("DEL", "a", &conf);
    assert_eq!(tracked(&scene, 5353), before, "after DEL");
    for (client, server) in &passing {
        client.assert_served_by(server);
    }
}
