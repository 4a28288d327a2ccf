//! What an agent makes of its node: ways to the others in either backend, mended when strangers break them, there while
//! no agent runs, and gone without a trace when they are taken back.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Instant;

use agent::status::Status;
use linux::netlink::{Change, Watch};
use plan::{Keeper, Kernel};
use testkit::{dump, require_root};

use crate::nodes::{Agent, Nodes, PATIENCE};

pub(crate) const VXLAN: &str = "{ Type = \"vxlan\" }";
pub(crate) const DIRECT_ROUTING: &str = "{ Type = \"vxlan\", DirectRouting = true }";
pub(crate) const HOST_GW: &str = "{ Type = \"host-gw\" }";
pub(crate) const A: (&str, &str, &str) = ("a", "192.0.2.1 2001:db8::1", "10.244.1.0/24 fd00:244:0:1::/64");
pub(crate) const B: (&str, &str, &str) = ("b", "192.0.2.2 2001:db8::2", "10.244.2.0/24 fd00:244:0:2::/64");

pub(crate) fn is_reached(peer: &'static str, by: &'static str) -> impl Fn(&Status) -> bool {
    move |status| {
        let peer = status.peers.get(peer);
        peer.is_some_and(|peer| peer.why_not.is_none() && peer.by.values().all(|way| way == by))
    }
}

/// Connects from a to an address of b's pods, in both families.
#[track_caller]
fn connect(nodes: &Nodes) {
    for address in ["10.244.2.9:0", "[fd00:244:0:2::9]:0"] {
        let listen = || TcpListener::bind(address).unwrap();
        let listener = nodes.world.open("b").run(listen).unwrap();
        let to = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&to, PATIENCE);
        nodes.world.open("a").run(connect).unwrap().unwrap_or_else(|error| panic!("{to}: {error}"));
        listener.accept().unwrap();
    }
}

/// Sends from a to b's pods, in both families, more than fits into one packet, and waits until all is there.
#[track_caller]
pub(crate) fn transfer(nodes: &Nodes) {
    for address in ["10.244.2.9", "fd00:244:0:2::9"] {
        transfer_to(nodes, address);
    }
}

/// The same to one address.
#[track_caller]
pub(crate) fn transfer_to(nodes: &Nodes, address: &str) {
    let address: IpAddr = address.parse().unwrap();
    let listen = || TcpListener::bind((address, 0)).unwrap();
    let listener = nodes.world.open("b").run(listen).unwrap();
    let to = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&to, PATIENCE);
    let mut near =
        nodes.world.open("a").run(connect).unwrap().unwrap_or_else(|error| panic!("{to}: {error}"));
    let (mut far, _) = listener.accept().unwrap();
    let sending = std::thread::spawn(move || near.write_all(&[7; 1 << 20]));
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut all = Vec::new();
    far.read_to_end(&mut all).unwrap_or_else(|error| panic!("{to}: {error}, {} bytes came", all.len()));
    sending.join().unwrap().unwrap();
    assert_eq!(all.len(), 1 << 20, "{to}");
}

/// Gives both nodes an address of their pods.
pub(crate) fn with_pods(nodes: &Nodes) {
    nodes.at("ip -n A address add 10.244.1.9/32 dev lo; ip -n B address add 10.244.2.9/32 dev lo
         ip -n A address add fd00:244:0:1::9/128 dev lo; ip -n B address add fd00:244:0:2::9/128 dev lo");
}

/// Whether a route to pods has come, gone or changed.
fn is_to_pods(change: &Change) -> bool {
    let pods: [ipnet::IpNet; 2] = ["10.244.0.0/16", "fd00:244::/56"].map(|net| net.parse().unwrap());
    match change {
        Change::Route { dst, .. } => pods.iter().any(|net| net.contains(dst)),
        _ => false,
    }
}

pub(crate) fn started(nodes: &Nodes, backend: &str) -> (Agent, Agent) {
    nodes.write_leases(backend, &[A, B]);
    (nodes.start("a"), nodes.start("b"))
}

/// Takes back what agents made, and checks that the nodes are as they were.
pub(crate) fn take_back(nodes: &Nodes, before: &[testkit::Dump; 2]) {
    for (node, before) in ["a", "b"].iter().zip(before) {
        let netns = nodes.world.open(node);
        let home = nodes.home(node);
        let take_back = || {
            let outcomes =
                Keeper::take_back(&home.node_networks(), "pods", &mut Kernel::new().unwrap()).unwrap();
            assert!(outcomes.iter().all(|journal| !journal.is_kept()), "{outcomes:?}");
        };
        netns.run(take_back).unwrap();
        before.assert_same(&dump(&netns), "after it is taken back");
    }
}

#[test]
fn pods_of_two_nodes_reach_each_other_by_any_backend() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    let (a, b) = started(&nodes, VXLAN);
    for (backend, by, mtu) in [
        (VXLAN, "vxlan", 1430),
        (DIRECT_ROUTING, "direct", 1430),
        (HOST_GW, "direct", 1500),
        (VXLAN, "vxlan", 1430),
    ] {
        nodes.write_leases(backend, &[A, B]);
        let kind = if by == "direct" && mtu == 1500 { "host-gw" } else { "vxlan" };
        let is_so = |peer| {
            move |status: &Status| {
                is_reached(peer, by)(status)
                    && status.backend.as_deref() == Some(kind)
                    && status.mtu == Some(mtu)
            }
        };
        a.until(backend, is_so("b"));
        b.until(backend, is_so("a"));
        connect(&nodes);
    }
    let environment = std::fs::read_to_string(nodes.settings("a").subnet_env).unwrap();
    assert!(
        environment.contains("FLANNEL_SUBNET=10.244.1.1/24\n") && environment.contains("FLANNEL_MTU=1430\n")
    );
    drop((a, b));
    connect(&nodes);
    take_back(&nodes, &before);
}

/// Each tunnel is the same one afterwards.
#[test]
fn a_tunnel_follows_the_mtu_of_its_wire() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    let (a, b) = started(&nodes, VXLAN);
    // One for each family, whose outer header takes 50 and 70 bytes.
    let tunnels = || {
        let shown = nodes.at("ip -n A -o link show type vxlan");
        let index = |line: &str| line.split(':').next().unwrap().to_owned();
        shown.lines().map(index).collect::<Vec<_>>()
    };
    let made = tunnels();
    for (wire, pods) in [(1400, 1330), (1500, 1430)] {
        nodes.at(&format!("ip -n A link set wire mtu {wire}; ip -n B link set wire mtu {wire}"));
        for agent in [&a, &b] {
            agent.until("the tunnel follows", |status| status.mtu == Some(pods));
        }
        let shown = nodes.at("ip -n A link show type vxlan");
        for bytes in [wire - 50, wire - 70] {
            assert!(shown.contains(&format!("mtu {bytes} ")), "{shown}");
        }
        transfer(&nodes);
    }
    assert_eq!(tunnels(), made);
}

/// Something on the way drops what is too large and says nothing.
#[test]
fn a_way_that_carries_less_is_found_and_followed() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    // A packet is what it is on the wire.
    nodes.at("ip -n A link set wire gso_max_segs 1; ip -n B link set wire gso_max_segs 1
         ip netns exec B nft 'add table inet narrow'
         ip netns exec B nft 'add chain inet narrow in { type filter hook prerouting priority -400; }'
         ip netns exec B nft 'add rule inet narrow in iifname \"wire\" meta length > 1400 drop'");
    let (a, _b) = started(&nodes, HOST_GW);
    let carries =
        |bytes| move |status: &Status| status.peers.get("b").is_some_and(|b| b.path_mtu == Some(bytes));
    a.until("what the way carries is known", carries(1400));
    transfer(&nodes);
    for (family, route) in [("-4", "10.244.2.0/24"), ("-6", "fd00:244:0:2::/64")] {
        let shown = nodes.at(&format!("ip -n A {family} route show {route}"));
        assert!(shown.contains("mtu 1400"), "{shown}");
    }
    nodes.at("ip netns exec B nft 'delete table inet narrow'");
    let status = a.until("the way carries all again", carries(1500));
    assert_eq!(status.repairs_total, 0, "{status:?}");
    let shown = nodes.at("ip -n A route show 10.244.2.0/24");
    assert!(!shown.contains("mtu"), "{shown}");
    transfer(&nodes);
}

/// Without it, full packets are lost until the next agent has found out again what the way carries.
#[test]
fn an_agent_that_comes_back_leaves_a_narrow_way_its_mtu() {
    if !require_root() {
        return;
    }
    for (backend, mtu) in [(HOST_GW, 1400), (VXLAN, 1350)] {
        let nodes = Nodes::new();
        with_pods(&nodes);
        nodes.at("ip -n A link set wire gso_max_segs 1; ip -n B link set wire gso_max_segs 1
             ip netns exec B nft 'add table inet narrow'
             ip netns exec B nft 'add chain inet narrow in { type filter hook prerouting priority -400; }'
             ip netns exec B nft 'add rule inet narrow in iifname \"wire\" meta length > 1400 drop'");
        let (mut a, _b) = started(&nodes, backend);
        let carries = |status: &Status| status.peers["b"].path_mtu == Some(1400);
        a.until("what the way carries is known", carries);
        let route = format!("ip -n A route show 10.244.2.0/24 | grep -o 'mtu {mtu}'");
        nodes.at(&route);
        a.stop().unwrap();
        let mut watch = Watch::open_in(&nodes.world.open("a")).unwrap();
        let mut again = nodes.start("a");
        again.until("it is known again", carries);
        again.stop().unwrap();
        let changes = watch.changes().unwrap();
        assert!(!changes.iter().any(is_to_pods), "{changes:?}");
        nodes.at(&route);
    }
}

#[test]
fn what_strangers_break_is_repaired_and_reported() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    let (a, _b) = started(&nodes, VXLAN);
    a.until("b is reached", is_reached("b", "vxlan"));
    let tunnel =
        nodes.at("ip -n A -o link show type vxlan | sed -n 's/^[0-9]*: \\(hgvx[0-9]*\\).*/\\1/p' | head -1 ");
    let tunnel = tunnel.trim();
    let mut repairs = 0;
    for harm in [
        "ip -n A route del 10.244.2.0/24",
        "ip -n A route replace 10.244.2.0/24 via 192.0.2.9",
        "ip -n A -6 route del fd00:244:0:2::/64",
        "ip -n A neighbour flush dev TUNNEL nud permanent",
        "bridge -n A fdb del 02:68:c0:00:02:02 dev TUNNEL",
        "bridge -n A fdb replace 02:68:c0:00:02:02 dev TUNNEL dst 192.0.2.77",
        "ip -n A link set TUNNEL down",
        "ip -n A link del TUNNEL",
    ] {
        nodes.at(&harm.replace("TUNNEL", tunnel));
        let is_repaired = |status: &Status| status.repairs_total > repairs;
        repairs =
            a.until(harm, |status| is_repaired(status) && is_reached("b", "vxlan")(status)).repairs_total;
        connect(&nodes);
    }
    // Without a tunnel the routes are on the wire and go with it.
    nodes.write_leases(HOST_GW, &[A, B]);
    let repairs = a.until("b is a neighbour", is_reached("b", "direct")).repairs_total;
    nodes.at("ip -n A link set wire down; ip -n A link set wire up
              ip -n A address add 2001:db8::1/64 dev wire nodad");
    // How many looks it takes, and what of it they count as repaired, depends on when they fall.
    let is_repaired = |status: &Status| status.repairs_total > repairs && status.undecided.is_none();
    a.until("repaired", |status| is_repaired(status) && is_reached("b", "direct")(status));
    connect(&nodes);
}

#[test]
fn an_agent_that_comes_back_finds_all_as_it_left_it() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    let (mut a, b) = started(&nodes, VXLAN);
    a.until("b is reached", is_reached("b", "vxlan"));
    b.until("a is reached", is_reached("a", "vxlan"));
    a.stop().unwrap();
    let mut watch = Watch::open_in(&nodes.world.open("a")).unwrap();
    connect(&nodes);
    let mut again = nodes.start("a");
    again.until("b is reached", is_reached("b", "vxlan"));
    again.stop().unwrap();
    let changes = watch.changes().unwrap();
    assert!(!changes.iter().any(is_to_pods), "{changes:?}");
    // Meanwhile b left.
    nodes.write_leases(VXLAN, &[A]);
    let again = nodes.start("a");
    again.until("b is gone", |status| status.peers.is_empty());
    let routes = nodes.at("ip -n A route; ip -n A -6 route; ip -n A neighbour show nud permanent ");
    assert!(!routes.contains("10.244.2.0") && !routes.contains("fd00:244:0:2::"), "{routes}");
}

/// As of a node that came back under another name, whose old lease stands until it ends.
#[test]
fn a_second_lease_of_a_node_comes_and_goes_without_a_trace_on_the_first() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    let (a, b) = started(&nodes, VXLAN);
    a.until("b is reached", is_reached("b", "vxlan"));
    b.until("a is reached", is_reached("a", "vxlan"));
    let heard = nodes.directory.path().join("heard");
    let mut monitor = Command::new("bridge");
    monitor.args(["-n", nodes.name("a").as_str(), "monitor", "fdb"]);
    let mut monitor = monitor.stdout(std::fs::File::create(&heard).unwrap()).spawn().unwrap();
    let tunnel = nodes.at("ip -n A -o link show type vxlan | grep -o 'hgvx[0-9]*' | head -1 ");
    // What comes after another entry is heard after that.
    let mark = |number: u32| {
        let begun = Instant::now();
        let mac = format!("02:00:00:00:00:0{number}");
        // The kernel announces an entry that changes, and not one that is made again.
        for host in (98..=99).cycle() {
            if std::fs::read_to_string(&heard).unwrap().contains(&mac) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing is heard");
            nodes.at(&format!("bridge -n A fdb replace {mac} dev {} dst 192.0.2.{host}", tunnel.trim()));
        }
    };
    mark(1);
    let again = ("again", B.1, "10.244.9.0/24 fd00:244:0:9::/64");
    nodes.write_leases(VXLAN, &[A, B, again]);
    a.until("it is there", is_reached("again", "vxlan"));
    nodes.write_leases(VXLAN, &[A, B]);
    let status = a.until("it is gone", |status| status.peers.len() == 1);
    assert_eq!(status.repairs_total, 0, "{status:?}");
    mark(2);
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    let heard = std::fs::read_to_string(&heard).unwrap();
    assert!(!heard.contains("Deleted"), "{heard}");
    transfer(&nodes);
}

#[test]
fn leases_that_cannot_be_are_refused_by_name_and_the_others_stand() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    let (a, b) = started(&nodes, VXLAN);
    a.until("b is reached", is_reached("b", "vxlan"));
    b.until("a is reached", is_reached("a", "vxlan"));
    let why = |status: &Status, peer: &str| status.peers.get(peer).and_then(|peer| peer.why_not.clone());
    // Another node comes with b's prefix, one with a's own, one without an address.
    let rogues = [
        ("c", "192.0.2.3", "10.244.2.0/25"),
        ("d", "192.0.2.4", "10.244.1.0/24"),
        ("e", "192.0.2.1", "10.244.5.0/24"),
        ("f", "192.0.2.6", "10.99.0.0/24"),
    ];
    nodes.write_leases(VXLAN, &[&[A, B][..], &rogues].concat());
    let status = a.until("four more", |status| status.peers.len() == 5);
    for (peer, says) in [
        ("b", "its 10.244.2.0/24 is also c's: 10.244.2.0/25"),
        ("c", "is also b's"),
        ("d", "overlaps the node's"),
        ("e", "is the node's own"),
        ("f", "10.99.0.0/24"),
    ] {
        assert!(why(&status, peer).is_some_and(|why| why.contains(says)), "{peer}: {:?}", why(&status, peer));
    }
    // What stood before stands, and nothing leads to the rogues.
    connect(&nodes);
    let routes = nodes.at("ip -n A route ");
    assert!(routes.contains("10.244.2.0/24") && !routes.contains("10.244.2.0/25"), "{routes}");
    nodes.write_leases(VXLAN, &[A, B]);
    a.until("b alone", |status| status.peers.len() == 1 && is_reached("b", "vxlan")(status));
    nodes.write_leases("{ Type = \"udp\" }", &[A, B]);
    let status = a.until("refused", |status| status.undecided.is_some());
    assert!(status.undecided.unwrap().contains("`Backend.Type` is udp"));
    connect(&nodes);
    std::fs::write(nodes.directory.path().join("nodes.toml"), "network = 7").unwrap();
    a.until("unreachable", |status| status.source_unreachable.is_some());
    connect(&nodes);
}

#[test]
fn two_agents_do_not_keep_one_network() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    let (_a, _b) = started(&nodes, HOST_GW);
    let (settings, home) = (nodes.settings("a"), nodes.home("a"));
    let source = agent::source::file::FileSource { path: "nothing".into(), node: "a".to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let second = agent::run(settings, home, source, || (), std::future::pending());
    let refused = runtime.block_on(second).unwrap_err().to_string();
    assert!(refused.contains("it belongs to process"), "{refused}");
}

#[test]
fn a_way_is_as_old_under_the_next_agent() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    let (mut a, b) = started(&nodes, HOST_GW);
    let is_known = |status: &Status| status.peers.get("b").is_some_and(|b| b.path_mtu == Some(1500));
    let mut status = a.until("all is known of b", is_known);
    a.stop().unwrap();
    status.peers.get_mut("b").unwrap().since_s = 1000;
    std::fs::write(&a.status, status.to_text()).unwrap();
    let a = nodes.start("a");
    let status = a.until("all is known of b", is_known);
    assert_eq!(status.peers["b"].since_s, 1000);
    drop((a, b));
}
