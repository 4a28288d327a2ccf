//! A node that flannel has made, taken over by processes that are killed, and given back.

use agent::desired::tunnel_mac;
use agent::migrate::{self, GivenBack, MigrateError, Site, Switched};
use datapath::Addresses;
use linux::Mac;
use node::Home;
use plan::{ApplyError, Fault, Kernel, Undone};
use testkit::{Dump, Talk, dump, require_root, shell};

use crate::keep::{A, B, HOST_GW, VXLAN, is_reached};
use crate::nodes::Nodes;

const ENVIRONMENT: &str = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\n\
    FLANNEL_IPV6_NETWORK=fd00:244::/56\nFLANNEL_IPV6_SUBNET=fd00:244:0:1::1/64\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";

/// Two nodes as flannel leaves them, with a pod each. One of them stays so.
struct Scene {
    nodes: Nodes,
    home: Home,
    before: Dump,
}

impl Scene {
    fn new(backend: &str) -> Scene {
        let nodes = Nodes::new();
        for (node, own, other) in [("a", 1, 2), ("b", 2, 1)] {
            nodes.world.add(&format!("pod-{node}"));
            let [name, pod] = [node.to_owned(), format!("pod-{node}")].map(|short| nodes.world.name(&short));
            let (own_mac, other_mac) = (mac(own), mac(other));
            // flannel takes 50 bytes off for IPv6, too.
            let device = |device: &str, local: &str, address: &str| {
                format!(
                    "ip -n {name} link add {device} address {own_mac} mtu 1450 type vxlan id 1 dev wire local {local}{own} dstport 8472 nolearning
                     ip -n {name} address add {address} dev {device}; ip -n {name} link set {device} up"
                )
            };
            let way = |device: &str, dst: &str, hop: &str, end: &str| {
                format!(
                    "ip -n {name} neighbour add {hop} lladdr {other_mac} dev {device} nud permanent
                     bridge -n {name} fdb add {other_mac} dev {device} dst {end}{other}
                     ip -n {name} route add {dst} via {hop} dev {device} onlink"
                )
            };
            let (v4, v6) = (format!("10.244.{other}.0"), format!("fd00:244:0:{other}::"));
            let (dst_v4, dst_v6) = (format!("{v4}/24"), format!("{v6}/64"));
            let ways = if backend == VXLAN {
                [
                    device("flannel.1", "192.0.2.", &format!("10.244.{own}.0/32")),
                    device("flannel-v6.1", "2001:db8::", &format!("fd00:244:0:{own}::/128 nodad")),
                    way("flannel.1", &dst_v4, &v4, "192.0.2."),
                    way("flannel-v6.1", &dst_v6, &v6, "2001:db8::"),
                ]
                .join("\n")
            } else {
                format!(
                    "ip -n {name} route add {dst_v4} via 192.0.2.{other} dev wire
                     ip -n {name} route add {dst_v6} via 2001:db8::{other} dev wire"
                )
            };
            shell(&format!(
                "ip netns exec {name} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
                 ip -n {name} link add cni0 type bridge; ip -n {name} link set cni0 up
                 ip -n {name} address add 10.244.{own}.1/24 dev cni0
                 ip -n {name} address add fd00:244:0:{own}::1/64 dev cni0 nodad
                 ip -n {name} link add vetha type veth peer name eth0 netns {pod}
                 ip -n {name} link set vetha master cni0 up
                 ip -n {pod} link set lo up; ip -n {pod} link set eth0 mtu 1400 up
                 ip -n {pod} address add 10.244.{own}.5/24 dev eth0
                 ip -n {pod} address add fd00:244:0:{own}::5/64 dev eth0 nodad
                 ip -n {pod} route add default via 10.244.{own}.1
                 ip -n {pod} route add default via fd00:244:0:{own}::1
                 {ways}"
            ));
        }
        let settings = nodes.settings("a");
        std::fs::create_dir_all(settings.subnet_env.parent().unwrap()).unwrap();
        std::fs::write(&settings.subnet_env, ENVIRONMENT).unwrap();
        let (home, before) = (nodes.home("a"), dump(&nodes.world.open("a")));
        Scene { nodes, home, before }
    }

    /// Does something on the node, by a process that dies at a point.
    fn with<T>(&self, fault: Fault, work: impl FnOnce(&Site<'_>, &mut Kernel) -> T) -> T {
        let subnet_env = self.nodes.settings("a").subnet_env;
        let site = Site { home: &self.home, runtime: None, subnet_env: &subnet_env };
        let at_node = || {
            let mut kernel = Kernel::new().unwrap();
            kernel.inject(fault);
            work(&site, &mut kernel)
        };
        self.nodes.world.open("a").run(at_node).unwrap()
    }

    fn take_over(&self, fault: Fault) -> Result<Switched, MigrateError> {
        self.with(fault, |site, kernel| {
            let flannel = migrate::find(site.subnet_env)?;
            migrate::take_over(site, &flannel, &migrate::pods_of(&flannel, "pods", "ptp"), kernel)
        })
    }

    fn give_back(&self, fault: Fault) -> Result<GivenBack, MigrateError> {
        self.with(fault, |site, kernel| migrate::give_back(site, "pods", kernel))
    }

    #[track_caller]
    fn assert_as_before(&self, when: &str) {
        self.before.assert_same(&dump(&self.nodes.world.open("a")), when);
        let again = self.give_back(Fault::None);
        assert!(matches!(again, Err(MigrateError::NotTaken { .. })), "{when}: {again:?}");
        let subnet_env = self.nodes.settings("a").subnet_env;
        assert_eq!(std::fs::read_to_string(subnet_env).unwrap(), ENVIRONMENT, "{when}");
    }
}

/// The Ethernet address of a node's end of the tunnel. flannel has made that of a up; those of others are what the
/// agent takes them for, since its file says none.
fn mac(node: u8) -> Mac {
    match node {
        1 => Mac([0xb2, 0x11, 0x22, 0x33, 0x44, 1]),
        _ => tunnel_mac(&Addresses { v4: Some([192, 0, 2, node].into()), v6: None }),
    }
}

#[test]
fn no_datagram_is_lost_from_flannel_to_the_agent_and_back() {
    if !require_root() {
        return;
    }
    for (backend, by) in [(VXLAN, "vxlan"), (HOST_GW, "direct")] {
        let scene = Scene::new(backend);
        let [from, to] = ["pod-a", "pod-b"].map(|pod| scene.nodes.world.open(pod));
        let talks = ["10.244.2.5", "fd00:244:0:2::5"].map(|address| Talk::begin(&from, &to, address));
        let they_go_on = || talks.iter().for_each(Talk::goes_on);
        they_go_on();
        scene.take_over(Fault::None).unwrap();
        they_go_on();
        scene.nodes.write_leases(backend, &[A, B]);
        let mut agent = scene.nodes.start("a");
        let status = agent.until(backend, is_reached("b", by));
        assert_eq!((status.repairs_total, status.mtu), (0, Some(if by == "vxlan" { 1430 } else { 1500 })));
        they_go_on();
        agent.stop().unwrap();
        assert_eq!(scene.give_back(Fault::None).unwrap().left, 0);
        they_go_on();
        talks.into_iter().for_each(Talk::end);
        scene.assert_as_before(backend);
    }
}

/// The journals of the node and of what is minded beside it have a few lines each.
#[test]
fn whoever_is_killed_after_any_line_another_completes_it_or_takes_it_back() {
    if !require_root() {
        return;
    }
    let scene = Scene::new(VXLAN);
    let mut lines = 0;
    loop {
        lines += 1;
        match scene.take_over(Fault::DeadAfterLine(lines)) {
            Err(MigrateError::Apply(ApplyError::Injected { .. })) => {}
            Ok(_) => break,
            Err(error) => panic!("after line {lines}: {error}"),
        }
        if lines % 2 == 0 {
            scene.take_over(Fault::None).unwrap();
        }
        scene.give_back(Fault::None).unwrap();
        scene.assert_as_before(&format!("killed after line {lines}"));
    }
    assert!(lines > 4, "{lines}");
    scene.give_back(Fault::None).unwrap();
    for lines in 1..=lines + 2 {
        scene.take_over(Fault::None).unwrap();
        scene.give_back(Fault::DeadAfterLine(lines)).unwrap();
        match scene.give_back(Fault::None) {
            Ok(_) | Err(MigrateError::NotTaken { .. }) => {}
            Err(error) => panic!("after line {lines} of taking back: {error}"),
        }
        scene.assert_as_before(&format!("killed after line {lines} of taking back"));
    }
}

#[test]
fn a_way_that_flannel_did_not_have_is_left_to_it() {
    if !require_root() {
        return;
    }
    let scene = Scene::new(VXLAN);
    scene.take_over(Fault::None).unwrap();
    let leases = [
        ("a", "192.0.2.1", "10.244.1.0/24"),
        ("b", "192.0.2.2", "10.244.2.0/24"),
        ("c", "192.0.2.3", "10.244.3.0/24"),
    ];
    scene.nodes.write_leases(VXLAN, &leases);
    let mut agent = scene.nodes.start("a");
    let status = agent.until("both are reached", |status| {
        is_reached("b", "vxlan")(status) && is_reached("c", "vxlan")(status)
    });
    assert_eq!(status.repairs_total, 0);
    agent.stop().unwrap();
    let links = scene.nodes.at("ip -n A -o link show type vxlan");
    assert!(links.lines().count() == 2 && links.contains("flannel.1"), "{links}");
    assert_eq!(scene.give_back(Fault::None).unwrap().left, 1);
    let c = mac(3);
    scene.nodes.at(&format!(
        "ip -n A route del 10.244.3.0/24 via 10.244.3.0 dev flannel.1 onlink
         ip -n A neighbour del 10.244.3.0 dev flannel.1; bridge -n A fdb del {c} dev flannel.1 dst 192.0.2.3"
    ));
    scene.assert_as_before("without the way that was left");
}

/// A node got another address, or another node its prefix: flannel's next hop leads nowhere.
#[test]
fn a_way_to_where_a_node_is_now_is_left_to_flannel() {
    if !require_root() {
        return;
    }
    let scene = Scene::new(HOST_GW);
    scene.take_over(Fault::None).unwrap();
    scene.nodes.write_leases(HOST_GW, &[A, B]);
    let mut agent = scene.nodes.start("a");
    agent.until("b is reached", is_reached("b", "direct"));
    scene.nodes.write_leases(HOST_GW, &[A, ("b", "192.0.2.3 2001:db8::3", B.2)]);
    agent.until("b is reached elsewhere", |status| {
        is_reached("b", "direct")(status) && status.peers["b"].public[0] == "192.0.2.3"
    });
    agent.stop().unwrap();
    assert_eq!(scene.give_back(Fault::None).unwrap().left, 1);
    let ways = scene.nodes.at("ip -n A route show 10.244.2.0/24; ip -n A -6 route show fd00:244:0:2::/64");
    assert!(ways.contains("via 192.0.2.3 ") && ways.contains("via 2001:db8::3 "), "{ways}");
    scene.nodes.at("ip -n A route replace 10.244.2.0/24 via 192.0.2.2 dev wire
         ip -n A route del fd00:244:0:2::/64 via 2001:db8::3 dev wire
         ip -n A route add fd00:244:0:2::/64 via 2001:db8::2 dev wire");
    scene.assert_as_before("with flannel's ways");
}

#[test]
fn one_damaged_journal_keeps_no_other() {
    if !require_root() {
        return;
    }
    let scene = Scene::new(HOST_GW);
    scene.take_over(Fault::None).unwrap();
    scene
        .nodes
        .write_leases(HOST_GW, &[A, B, ("c", "192.0.2.3 2001:db8::3", "10.244.3.0/24 fd00:244:0:3::/64")]);
    let mut agent = scene.nodes.start("a");
    agent.until("both are reached", |status| {
        is_reached("b", "direct")(status) && is_reached("c", "direct")(status)
    });
    agent.stop().unwrap();
    let unit = scene.home.node_networks().take_over("pods").unwrap();
    let journals = unit.journals().unwrap();
    let of_c = journals.iter().find(|path| std::fs::read_to_string(path).unwrap().contains("192.0.2.3"));
    let of_c = of_c.unwrap().clone();
    drop(unit);
    let whole = std::fs::read_to_string(&of_c).unwrap();
    std::fs::write(&of_c, whole.replacen("\"seq\":1", "\"seq\":x", 1)).unwrap();
    let given = scene.give_back(Fault::None).unwrap();
    let unread: Vec<_> = given.journals.iter().filter(|taken| taken.steps.is_err()).collect();
    assert!(unread.len() == 1 && unread[0].path == of_c, "{given:#?}");
    assert_eq!(given.left, 0);
    let of_b = given.journals.iter().find(|taken| taken.path.ends_with("peer-b.journal")).unwrap();
    let undone = of_b.steps.as_ref().unwrap();
    assert!(undone.len() == 2 && undone.iter().all(|(_, undone)| *undone == Undone::Restored), "{given:#?}");
    let ways = scene.nodes.at("ip -n A route show 10.244.2.0/24; ip -n A route show 10.244.3.0/24");
    assert!(ways.contains("via 192.0.2.2 ") && ways.contains("via 192.0.2.3 "), "{ways}");
    let subnet_env = scene.nodes.settings("a").subnet_env;
    assert_eq!(std::fs::read_to_string(&subnet_env).unwrap(), ENVIRONMENT);
}

#[test]
fn the_environment_that_is_put_back_is_what_flanneld_wrote_last() {
    if !require_root() {
        return;
    }
    let scene = Scene::new(HOST_GW);
    let subnet_env = scene.nodes.settings("a").subnet_env;
    let read = || std::fs::read_to_string(&subnet_env);
    let run = || {
        scene.nodes.write_leases(HOST_GW, &[A, B]);
        let mut agent = scene.nodes.start("a");
        agent.until("b is reached", is_reached("b", "direct"));
        agent.stop().unwrap();
        assert!(read().unwrap().contains("HOSTGAP_NETWORK=pods"));
    };
    scene.take_over(Fault::None).unwrap();
    run();
    // Another call, as after one that was killed, keeps what flanneld wrote and not what the agent did.
    scene.take_over(Fault::None).unwrap();
    scene.with(Fault::None, |site, kernel| {
        plan::Keeper::take_back(&site.home.node_networks(), "pods", kernel).unwrap();
    });
    let later = ENVIRONMENT.replace("IPMASQ=true", "IPMASQ=false");
    std::fs::write(&subnet_env, &later).unwrap();
    scene.take_over(Fault::None).unwrap();
    run();
    scene.give_back(Fault::None).unwrap();
    assert_eq!(read().unwrap(), later);
    // Of a node that was never flannel's, or no longer is since it was restarted, the file says nothing of flannel's.
    run();
    let refused = scene.take_over(Fault::None).unwrap_err();
    assert!(matches!(refused, MigrateError::Agents { .. }), "{refused}");
    assert!(refused.to_string().contains("the agent of the network pods has written it"), "{refused}");
}
