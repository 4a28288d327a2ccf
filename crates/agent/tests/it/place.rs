//! Where a node is to the others: its link and address stay while other addresses and routes come and go, such as those
//! of a control plane that moves between machines, and of a VPN.

use std::fs;

use agent::lease::{Announcement, Snapshot};
use agent::source::LeaseSource;
use agent::source::file::FileSource;
use agent::status::Status;
use testkit::{require_root, shell};
use tokio::sync::watch;

use crate::keep::{A, B, VXLAN, is_reached, transfer, with_pods};
use crate::nodes::{Agent, Nodes};

/// A file of leases, which passes on what the node announces of itself.
struct Overheard {
    file: FileSource,
    sender: std::sync::mpsc::Sender<watch::Receiver<Option<Announcement>>>,
}

impl LeaseSource for Overheard {
    fn start(self, own: watch::Receiver<Option<Announcement>>) -> watch::Receiver<Snapshot> {
        self.sender.send(own.clone()).unwrap();
        self.file.start(own)
    }
}

/// An agent of node a, and what it says of itself.
struct Speaking {
    agent: Agent,
    said: watch::Receiver<Option<Announcement>>,
}

impl Speaking {
    /// Starts one that finds the link by itself.
    fn start(nodes: &Nodes) -> Speaking {
        let (sender, receiver) = std::sync::mpsc::channel();
        let file = FileSource { path: nodes.leases(), node: "a".to_owned() };
        let settings = agent::Settings { wire: None, ..nodes.settings("a") };
        let source = Overheard { file, sender };
        let agent = Agent::start(nodes.world.open("a"), settings, nodes.home("a"), source);
        agent.until("b is reached", is_reached("b", "vxlan"));
        Speaking { agent, said: receiver.recv().unwrap() }
    }

    /// The addresses by which the others know the node.
    fn public(&self) -> String {
        let said = self.said.borrow();
        let all = said.iter().flat_map(|node| node.public.iter());
        all.map(|address| address.to_string()).collect::<Vec<_>>().join(" ")
    }

    /// Waits until the agent has looked at the node once more, and has seen all that was changed before.
    fn look(&self, nodes: &Nodes) {
        let before = Status::read(&self.agent.status).unwrap().repairs_total;
        shell(&format!("ip -n {} route del 10.244.2.0/24", nodes.name("a")));
        self.agent
            .until("a look", |status| status.repairs_total > before && is_reached("b", "vxlan")(status));
    }

    /// Waits until it has followed.
    fn until(&self, public: &str) {
        self.agent.until(public, |status| status.public.join(" ") == public && self.public() == public);
    }
}

/// A node whose default route is on its wire.
fn nodes() -> Nodes {
    let nodes = Nodes::new();
    with_pods(&nodes);
    nodes.at("ip -n A route add default via 192.0.2.2 dev wire metric 100");
    nodes.write_leases(VXLAN, &[A, B]);
    nodes
}

/// The tunnels with their indexes, Ethernet addresses and own ends, and the routes to pods.
fn made(nodes: &Nodes) -> String {
    let tunnels = nodes.at("ip -n A -d -o link show type vxlan");
    let routes = nodes.at("ip -n A route show root 10.244.0.0/16; ip -n A -6 route show root fd00:244::/56");
    assert!(tunnels.contains("02:68:") && routes.contains("10.244.2.0/24"), "{tunnels}{routes}");
    tunnels + &routes
}

const OWN: &str = "192.0.2.1 2001:db8::1";
/// Of one host, of the same prefix, and of another; lower ones than the node's own where that can be.
const GUESTS: [&str; 5] =
    ["192.0.1.10/32", "192.0.2.200/24", "192.0.1.11/24", "2001:db7::5/128 nodad", "2001:db7::6/64 nodad"];

#[test]
fn a_node_stays_at_its_address_while_others_come_and_go() {
    if !require_root() {
        return;
    }
    let nodes = nodes();
    let (a, _b) = (Speaking::start(&nodes), nodes.start("b"));
    let before = made(&nodes);
    assert_eq!(a.public(), OWN);
    for verb in ["add", "del"] {
        for guest in GUESTS {
            let guest = guest.strip_suffix(" nodad").filter(|_| verb == "del").unwrap_or(guest);
            nodes.at(&format!("ip -n A address {verb} {guest} dev wire"));
        }
        a.look(&nodes);
        assert_eq!((a.public().as_str(), made(&nodes)), (OWN, before.clone()), "{verb}");
        transfer(&nodes);
    }
}

#[test]
fn an_agent_that_begins_takes_the_node_s_own_address() {
    if !require_root() {
        return;
    }
    let nodes = nodes();
    // They come before the node's own, as where it gets that by DHCP and SLAAC.
    let own = "2001:db8::ffff:ffff:ffff:ffff";
    nodes.at(&format!(
        "ip netns exec A sysctl -q -w net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.wire.accept_dad=0
         ip netns exec A sysctl -q -w net.ipv6.conf.wire.use_tempaddr=2
         ip -n A address flush dev wire
         ip -n A address add 192.0.1.10/32 dev wire; ip -n A address add 192.0.2.1/24 dev wire
         ip -n A address add 192.0.2.200/24 dev wire; ip -n A route add default via 192.0.2.2 dev wire metric 100
         ip -n A address add 2001:db7::1/64 dev wire nodad preferred_lft 0
         ip -n A address add 2001:db7::2/128 dev wire nodad
         ip -n A address add {own}/64 dev wire nodad mngtmpaddr"
    ));
    let shown = nodes.at("ip -n A address show dev wire");
    assert!(["secondary", "deprecated", "temporary"].iter().all(|flag| shown.contains(flag)), "{shown}");
    let mut a = Speaking::start(&nodes);
    assert_eq!(a.public(), format!("192.0.2.1 {own}"));
    // The next one goes on with it, though others have it in a better place now.
    a.agent.stop().unwrap();
    let before = made(&nodes);
    nodes.at("ip -n A address add 2001:db7::3/64 dev wire nodad
              ip link add vpn netns A type veth peer name vpn netns B ; ip -n B link set vpn up; ip -n A address add 198.51.100.7/24 dev vpn
              ip -n A address add 2001:db8:7::7/64 dev vpn nodad; ip -n A link set vpn up
              ip -n A route add default dev vpn metric 1");
    let mut a = Speaking::start(&nodes);
    assert_eq!((a.public(), made(&nodes)), (format!("192.0.2.1 {own}"), before));
    a.agent.stop().unwrap();
    // One that knows nothing takes the link of the default route.
    fs::remove_dir_all(nodes.settings("a").status).unwrap();
    let a = Speaking::start(&nodes);
    assert_eq!(a.public(), "198.51.100.7 2001:db8:7::7");
}

#[test]
fn an_address_or_link_that_goes_is_followed() {
    if !require_root() {
        return;
    }
    let nodes = nodes();
    nodes.at("ip -n A address add 192.0.3.7/24 dev wire
              ip link add vpn netns A type veth peer name vpn netns B ; ip -n B link set vpn up; ip -n A address add 198.51.100.7/24 dev vpn
              ip -n A address add 2001:db8:7::7/64 dev vpn nodad; ip -n A link set vpn up");
    let (a, _b) = (Speaking::start(&nodes), nodes.start("b"));
    // As a VPN does.
    nodes.at("ip -n A route add default dev vpn metric 1");
    a.look(&nodes);
    assert_eq!(a.public(), OWN);
    nodes.at("ip -n A address del 192.0.2.1/24 dev wire");
    a.until("192.0.3.7 2001:db8::1");
    let tunnels = nodes.at("ip -n A -d -o link show type vxlan");
    assert!(tunnels.contains("local 192.0.3.7"), "{tunnels}");
    nodes.at("ip -n A link set wire down");
    a.until("198.51.100.7 2001:db8:7::7");
    let tunnels = nodes.at("ip -n A -d -o link show type vxlan");
    assert!(tunnels.contains("local 198.51.100.7") && tunnels.contains("dev vpn"), "{tunnels}");
}
