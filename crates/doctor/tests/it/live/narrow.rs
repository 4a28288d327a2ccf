//! A router between two hosts, whose far link takes smaller packets than the near one, for both families; and
//! neighbour tables.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use doctor::{Diagnosis, ExaminedNetns, Severity, Snapshot, Window, diagnose};
use linux::{LinkKind, Netlink, Netns, Route, VethPeer};
use testkit::{World, require_root, skip};

use super::{Busy, await_one, check_quiet, ifname, link, set, sleep};

struct Road {
    world: World,
    client: Netns,
    server: Netns,
    /// The server's address, behind the narrow link.
    far: IpAddr,
}

/// The MTU of the link between router and server. IPv6 needs at least 1280.
const NARROW: u32 = 1300;

impl Road {
    /// The addresses along the road: the client's, the router's two, the server's.
    fn new(addresses: [&str; 4]) -> Road {
        let world = World::new();
        let [client, router, server] = ["client", "router", "server"].map(|name| world.add(name));
        let [near, by, away, far] = addresses.map(|address| address.parse::<ipnet::IpNet>().unwrap());
        let ipv6 = matches!(near, ipnet::IpNet::V6(_));
        let key = if ipv6 { "net/ipv6/conf/all/forwarding" } else { "net/ipv4/ip_forward" };
        set(&router, key, "1");
        let between = Netlink::open_in(&router).unwrap();
        for (end, port, own, routers, mtu) in
            [(&client, "c", near, by, 1500), (&server, "s", far, away, NARROW)]
        {
            // Without duplicate address detection, which would keep the address unusable for a second.
            for (netns, name) in [(end, "default"), (&router, "default")] {
                set(netns, &format!("net/ipv6/conf/{name}/accept_dad"), "0");
            }
            let netlink = Netlink::open_in(end).unwrap();
            let peer = VethPeer {
                name: ifname(port),
                netns: Some(world.name("router").into()),
                mtu: None,
                mac: None,
            };
            netlink.link_add(&link("eth0", LinkKind::Veth { peer })).unwrap();
            let index = netlink.index_of(&ifname("eth0")).unwrap();
            let port = between.index_of(&ifname(port)).unwrap();
            for (netlink, index, address) in [(&netlink, index, own), (&between, port, routers)] {
                netlink.link_set_gso_max_segs(index, 1).unwrap();
                netlink.address_add(index, &address).unwrap();
                netlink.link_set_up(index, true).unwrap();
            }
            between.link_set_mtu(port, mtu).unwrap();
            let all = if ipv6 { "::/0" } else { "0.0.0.0/0" };
            let route = Route::via(all.parse().unwrap(), routers.addr(), ifname("eth0"));
            netlink.route_add(&route).unwrap();
        }
        Road { world, client, server, far: far.addr() }
    }

    fn look(&self) -> Snapshot {
        ExaminedNetns::netns(&self.world.name("client")).unwrap().look().unwrap().0
    }

    /// Sends until the kernel has learnt the path's MTU. Returns doctor's diagnosis of the client.
    fn learn(&self) -> (Diagnosis, Snapshot) {
        let listener = self.server.run(|| TcpListener::bind((self.far, 0))).unwrap().unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let stream = self.client.run(|| TcpStream::connect(address)).unwrap().unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let reading = Busy::reading(accepted, 65_536, 0);
        let before = self.look();
        let sending = Busy::sending(stream);
        let start = Instant::now();
        let mut after = self.look();
        while after.answers.path_mtus.iter().flatten().next().is_none()
            && start.elapsed() < Duration::from_secs(20)
        {
            sleep(100);
            after = self.look();
        }
        // Segments retransmitted before the kernel knew are to be one in a hundred at the most.
        await_one(&self.client, |tcp| tcp.bytes_sent >= 100 * tcp.bytes_retrans);
        after = self.look();
        drop((sending, reading));
        (diagnose(&Window { before: &before, after: &after }), after)
    }
}

#[track_caller]
fn check_learnt(addresses: [&str; 4]) {
    let road = Road::new(addresses);
    let (diagnosis, after) = road.learn();
    let learnt = after.answers.path_mtus.unwrap();
    let path = learnt.iter().find(|path| path.dst == road.far).unwrap();
    assert_eq!(path.mtu, NARROW, "{learnt:?}");
    let finding = diagnosis.findings.iter().find(|finding| finding.check.code == "HG100").unwrap();
    assert_eq!(finding.seen.subject, format!("to {} by eth0", road.far));
    assert!(finding.seen.evidence[0].saw.starts_with("packets of 1300 bytes pass, the link takes 1500"));
}

#[test]
fn a_narrow_path_is_found_for_ipv4() {
    if require_root() {
        check_learnt(["10.78.1.1/24", "10.78.1.254/24", "10.78.2.254/24", "10.78.2.2/24"]);
    }
}

#[test]
fn a_narrow_path_is_found_for_ipv6() {
    if require_root() {
        check_learnt(["fd78:1::1/64", "fd78:1::254/64", "fd78:2::254/64", "fd78:2::2/64"]);
    }
}

/// Applies the advice of HG100: the route gets the path's MTU, and the kernel learns none.
#[test]
fn a_narrow_path_with_a_route_that_says_so_is_no_finding() {
    if !require_root() {
        return;
    }
    let road = Road::new(["10.78.1.1/24", "10.78.1.254/24", "10.78.2.254/24", "10.78.2.2/24"]);
    let netlink = Netlink::open_in(&road.client).unwrap();
    let by = "10.78.1.254".parse().unwrap();
    let route = Route::via("0.0.0.0/0".parse().unwrap(), by, ifname("eth0"));
    netlink.route_del(&route).unwrap();
    netlink.route_add(&Route { mtu: Some(NARROW), ..route }).unwrap();
    let listener = road.server.run(|| TcpListener::bind((road.far, 0))).unwrap().unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let stream = road.client.run(|| TcpStream::connect(address)).unwrap().unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let busy = (Busy::reading(accepted, 65_536, 0), Busy::sending(stream));
    let before = road.look();
    await_one(&road.client, |tcp| tcp.bytes_acked > 1 << 20);
    let after = road.look();
    drop(busy);
    let keeps = |socket: &linux::sock_diag::TcpSocket| {
        socket.peer == address && socket.tcp.is_some_and(|tcp| tcp.pmtu == NARROW)
    };
    assert!(after.answers.sockets.iter().flatten().any(keeps), "{:?}", after.answers.sockets);
    let diagnosis = diagnose(&Window { before: &before, after: &after });
    assert!(diagnosis.findings.iter().all(|finding| finding.check.code != "HG100"), "{diagnosis:?}");
}

#[test]
fn a_wide_path_is_no_finding() {
    if !require_root() {
        return;
    }
    let road = Road::new(["fd78:1::1/64", "fd78:1::254/64", "fd78:2::254/64", "fd78:2::2/64"]);
    let before = road.look();
    // No packet is too large.
    let server = road.server.run(|| UdpSocket::bind((road.far, 0))).unwrap().unwrap();
    let client = road.client.run(|| UdpSocket::bind("[::]:0")).unwrap().unwrap();
    let address = server.local_addr().unwrap();
    (0..20).for_each(|_| drop(client.send_to(&[7; 1000], address)));
    let after = road.look();
    assert_eq!(after.answers.path_mtus.as_deref(), Some(&[][..]));
    check_quiet(&diagnose(&Window { before: &before, after: &after }));
}

/// The tables are shared by the whole machine, but only its first namespace reports them.
#[test]
fn neighbours_that_do_not_answer_are_found() {
    if !require_root() {
        return;
    }
    let here = || ExaminedNetns::here().look().unwrap().0;
    let before = here();
    if before.neighbours6.is_empty() {
        return skip("this is not the machine's first network namespace");
    }
    let road = Road::new(["fd78:1::1/64", "fd78:1::254/64", "fd78:2::254/64", "fd78:2::2/64"]);
    let client = road.client.run(|| UdpSocket::bind("[::]:0")).unwrap().unwrap();
    let absent = SocketAddr::from(("fd78:1::77".parse::<Ipv6Addr>().unwrap(), 9));
    // More than the queue of a single neighbour holds (unres_qlen_bytes, 212 992 by default).
    (0..400).for_each(|_| drop(client.send_to(&[7; 1200], absent)));
    let after = here();
    let diagnosis = diagnose(&Window { before: &before, after: &after });
    let finding = diagnosis.findings.iter().find(|finding| {
        finding.check.code == "HG056" && finding.seen.evidence[0].read_from.ends_with("ndisc_cache")
    });
    assert_eq!(finding.unwrap().seen.severity, Severity::Warning, "{finding:?}");
}
