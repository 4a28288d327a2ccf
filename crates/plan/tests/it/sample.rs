//! A plan that uses every step, and namespaces with other objects in them to try it in.

use std::net::{IpAddr, Ipv4Addr};

use bpf::forward::{Program, TunnelEnd};
use ipnet::IpNet;
use linux::netlink::{MetricValue, PortFlag, RouteMetric};
use linux::nft::{
    Base, Chain, ChainKind, Datum, Element, Family, Hook, Map, Match, PacketField, Rule, Statement, Table,
};
use linux::qdisc::Tbf;
use linux::{
    Encap, FdbEntry, IfName, Link, LinkKind, Mac, MacvlanMode, Neighbour, NetnsName, Qdisc, Route, VethPeer,
    Vxlan, sysctl,
};
use plan::forwarding::{Endpoint, ProgramAttachment, Programs, Tunnel, Uplink};
use plan::{
    Place, Plan, Queue, SetGsoMaxSegs, SetLinkMaster, SetLinkMtu, SetLinkUp, SetPortFlag, SetQueueCpus,
    SetQueueFlows, SetRootQdisc, SetRouteMetric, SetSysctl, Step,
};
use testkit::{World, shell};

/// The three namespaces of the sample. `home` and `away` exist before, and the plan makes `made`.
pub(crate) struct Sample {
    pub(crate) home: NetnsName,
    pub(crate) away: NetnsName,
    pub(crate) made: NetnsName,
}

pub(crate) fn ifname(text: &str) -> IfName {
    IfName::new(text).expect("a sound name")
}

pub(crate) fn net(text: &str) -> IpNet {
    text.parse().expect("a sound prefix")
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("a sound address")
}

pub(crate) fn key(text: &str) -> sysctl::Key {
    sysctl::Key::new(text).expect("a sound key")
}

pub(crate) fn sysctl_step(at: &str, value: &str) -> Step {
    Step::from(SetSysctl { key: key(at), value: value.to_owned() })
}

pub(crate) fn bridge(name: &str) -> Step {
    Step::AddLink(Link {
        name: ifname(name),
        kind: LinkKind::Bridge,
        mtu: None,
        mac: Some(Mac::from_id(1, 1)),
    })
}

pub(crate) fn ensured_bridge(name: &str) -> Step {
    let mac = Some(Mac::from_id(1, 2));
    Step::EnsureLink(Link { name: ifname(name), kind: LinkKind::Bridge, mtu: Some(1400), mac })
}

pub(crate) fn veth(name: &str, peer: &str, netns: Option<&NetnsName>) -> Step {
    let peer = VethPeer {
        name: ifname(peer),
        netns: netns.cloned().map(Into::into),
        mtu: None,
        mac: Some(Mac::from_id(2, 2)),
    };
    let mac = Some(Mac::from_id(2, 1));
    Step::AddLink(Link { name: ifname(name), kind: LinkKind::Veth { peer }, mtu: None, mac })
}

fn macvlan(name: &str, parent: &str, id: u32) -> Link {
    let kind = LinkKind::Macvlan { parent: ifname(parent), mode: MacvlanMode::Bridge };
    Link { name: ifname(name), kind, mtu: Some(1400), mac: Some(Mac::from_id(3, id)) }
}

fn vxlan(name: &str, parent: &str) -> Step {
    let kind = LinkKind::Vxlan(Vxlan {
        vni: 1,
        parent: ifname(parent),
        local: ip("192.0.2.1"),
        port: 8472,
        learning: false,
    });
    Step::AddLink(Link { name: ifname(name), kind, mtu: Some(1350), mac: Some(Mac::from_id(4, 1)) })
}

fn up(link: &str) -> Step {
    Step::from(SetLinkUp { link: ifname(link) })
}

pub(crate) fn address(link: &str, address: &str) -> Step {
    Step::AddAddress { link: ifname(link), address: net(address) }
}

pub(crate) fn ensured_address(link: &str, address: &str) -> Step {
    Step::EnsureAddress { link: ifname(link), address: net(address) }
}

pub(crate) fn table(name: &str) -> Table {
    let postrouting = Base { kind: ChainKind::Nat, hook: Hook::Postrouting, priority: 100 };
    let from_pods = Match::Saddr { not: false, net: net("10.244.1.0/24") };
    let elsewhere = Match::Daddr { not: true, net: net("10.244.0.0/16") };
    let masquerade =
        Rule { matches: vec![from_pods, elsewhere], then: Statement::Masquerade { random: true } };
    let chain = Chain { name: "postrouting".to_owned(), base: Some(postrouting), rules: vec![masquerade] };
    Table { family: Family::Ip, name: name.to_owned(), maps: Vec::new(), chains: vec![chain] }
}

/// A table with a map and a set.
fn ports() -> Table {
    let key = vec![PacketField::Protocol, PacketField::Dport];
    let map = |name: &str, value| Map { name: name.to_owned(), key: key.clone(), value };
    let maps = vec![map("ports", vec![PacketField::Daddr, PacketField::Dport]), map("taken", Vec::new())];
    Table { family: Family::Ip, name: "hostgap-ports".to_owned(), maps, chains: Vec::new() }
}

fn element(map: &str, value: Vec<Datum>) -> Element {
    let key = vec![Datum::Udp, Datum::Port(8080)];
    Element { family: Family::Ip, table: "hostgap-ports".to_owned(), map: map.to_owned(), key, value }
}

fn cpus(list: &str) -> linux::CpuSet {
    list.parse().expect("a sound list")
}

impl Sample {
    pub(crate) fn named(name: impl Fn(&str) -> NetnsName) -> Sample {
        Sample { home: name("home"), away: name("away"), made: name("made") }
    }

    pub(crate) fn of(world: &World) -> Sample {
        Sample::named(|short| world.name(short))
    }

    pub(crate) fn home(&self) -> Place {
        Place::Netns(self.home.clone())
    }

    pub(crate) fn away(&self) -> Place {
        Place::Netns(self.away.clone())
    }

    pub(crate) fn made(&self) -> Place {
        Place::Netns(self.made.clone())
    }

    /// Every kind of step. Some occur several times, because they differ by family, by place or by the
    /// previous state. Shared steps, what is found there already, steps that splice sockets and those of a guard have
    /// tests of their own.
    pub(crate) fn plan(&self) -> Plan {
        let mut plan = Plan::new();
        self.links(&mut plan);
        self.addresses_and_routes(&mut plan);
        self.tunnel_and_settings(&mut plan);
        self.programs(&mut plan);
        self.elements(&mut plan);
        plan
    }

    /// Elements of a map and of a set. They come last, because each takes several starts of nft, and tests of
    /// faults apply all earlier steps once for each later one.
    fn elements(&self, plan: &mut Plan) {
        let home = self.home();
        plan.push(&home, Step::AddNftTable(ports()));
        plan.push(
            &home,
            Step::AddNftElement(element("ports", vec![Datum::Address(ip("10.244.1.2")), Datum::Port(80)])),
        );
        plan.push(&home, Step::AddNftElement(element("taken", Vec::new())));
    }

    /// The steps that a shell can do without the binary, which is built from this crate.
    pub(crate) fn plan_without_programs(&self) -> Plan {
        let mut plan = self.plan();
        plan.steps.retain(|placed| {
            !matches!(
                placed.step,
                Step::LoadPrograms(_)
                    | Step::AttachProgram(_)
                    | Step::AddEndpoint(_)
                    | Step::AddTunnel(_)
                    | Step::AddUplink(_)
            )
        });
        plan
    }

    /// The name of the node in `home`, and of its folder.
    pub(crate) fn node(&self) -> String {
        self.home.to_string()
    }

    /// Loads the programs of `home`. Their wire is a link of the namespace.
    pub(crate) fn load_programs(&self) -> Step {
        Step::LoadPrograms(Programs {
            node: self.node(),
            wire: ifname("own0"),
            mtu: 1350,
            gateway: Ipv4Addr::new(169, 254, 1, 1),
            gateway_mac: Mac::from_id(2, 1),
            pods: vec![net("10.244.1.0/24"), net("fd00:1::/64")],
            cluster: vec![net("10.244.0.0/16"), net("fd00::/16")],
            tunnel: Some(TunnelEnd { local: ip("192.0.2.1"), vni: 1, port: 8473 }),
        })
    }

    pub(crate) fn attach(&self, program: Program, link: &str) -> Step {
        Step::AttachProgram(ProgramAttachment {
            node: self.node(),
            program,
            link: ifname(link),
            at_once: false,
        })
    }

    pub(crate) fn endpoint(&self, link: &str, addresses: &[&str]) -> Step {
        let addresses = addresses.iter().map(|address| ip(address)).collect();
        Step::AddEndpoint(Endpoint {
            node: self.node(),
            link: ifname(link),
            mac: Mac::from_id(2, 2),
            addresses,
            queued: false,
        })
    }

    pub(crate) fn tunnel(&self, prefix: &str, device: &str, remote: &str) -> Step {
        let (prefix, remote) = (net(prefix), ip(remote));
        Step::AddTunnel(Tunnel { node: self.node(), prefix, device: ifname(device), remote })
    }

    /// Programs at old and new links, a pod and the tunnels.
    fn programs(&self, plan: &mut Plan) {
        let home = self.home();
        plan.push(&home, self.load_programs());
        plan.push(&home, self.attach(Program::FromWire, "own0"));
        plan.push(&home, self.attach(Program::FromPod, "hgv0"));
        plan.push(&home, self.attach(Program::FromTunnel, "hgvx.e"));
        plan.push(&self.made(), self.attach(Program::FromPod, "hgv1"));
        plan.push(&home, self.endpoint("hgv0", &["10.244.1.2", "fd00:1::2"]));
        plan.push(&home, self.tunnel("10.244.4.0/24", "hgvx.e", "192.0.2.2"));
        plan.push(&home, self.tunnel("fd00:5::/64", "hgvx.e", "2001:db8::2"));
        plan.push(&home, Step::AddUplink(Uplink { node: self.node(), link: ifname("hgvx.e") }));
    }

    fn links(&self, plan: &mut Plan) {
        let (home, made) = (self.home(), self.made());
        plan.push(&made, Step::AddNetns);
        plan.push(&home, veth("hgv0", "hgv1", Some(&self.made)));
        plan.push(&self.away(), veth("hga0", "hga1", Some(&self.home)));
        plan.push(&home, bridge("hgbr0"));
        plan.push(&home, veth("hgp0", "hgp1", None));
        plan.push(&home, SetLinkMaster { link: ifname("hgp0"), master: ifname("hgbr0") });
        plan.push(&home, SetPortFlag { link: ifname("hgp0"), flag: PortFlag::Hairpin });
        plan.push(&home, SetPortFlag { link: ifname("hgp0"), flag: PortFlag::Isolated });
        plan.push(&home, SetLinkMaster { link: ifname("free0"), master: ifname("ownbr") });
        plan.push(&home, SetLinkMtu { link: ifname("own0"), mtu: 1400 });
        plan.push(&home, Step::AddLink(macvlan("hgmv0", "own0", 1)));
        plan.push(&made, Step::AddLinkOn { link: macvlan("hgmv1", "own0", 2), parent_in: home.clone() });
        plan.push(&made, Step::MoveLink { link: ifname("hgmv1"), to: made.clone(), name: ifname("net1") });
        plan.push(&home, Step::MoveLink { link: ifname("hgmv0"), to: made.clone(), name: ifname("eth0") });
        plan.push(&home, Step::MoveLink { link: ifname("spare0"), to: made.clone(), name: ifname("spare1") });
        for link in ["hgv0", "hgbr0", "hgp0", "hgp1"] {
            plan.push(&home, up(link));
        }
        for link in ["hgv1", "eth0", "net1", "spare1"] {
            plan.push(&made, up(link));
        }
    }

    fn addresses_and_routes(&self, plan: &mut Plan) {
        let (home, made) = (self.home(), self.made());
        let gateway = ip("10.244.1.2");
        let gateway6 = ip("fd00:1::2");
        plan.push(&home, address("hgv0", "10.244.1.1/24"));
        plan.push(&home, address("hgv0", "fd00:1::1/64"));
        plan.push(&home, address("own0", "192.0.2.77/24"));
        plan.push(&made, address("hgv1", "10.244.1.2/24"));
        plan.push(&made, address("hgv1", "fd00:1::2/64"));
        let route = |dst, via, dev| Route::via(net(dst), via, ifname(dev));
        plan.push(&home, Step::AddRoute(route("10.244.2.0/24", gateway, "hgv0")));
        let onlink = Route { onlink: true, mtu: Some(1300), ..route("10.244.3.0/24", gateway, "own0") };
        plan.push(&home, Step::AddRoute(onlink.clone()));
        // One destination twice: the second counts where the first is gone.
        let twice = Route { dst: net("10.244.6.0/24"), ..onlink };
        plan.push(&home, Step::AddRoute(Route { metric: Some(50), mtu_locked: true, ..twice.clone() }));
        plan.push(&home, Step::AddRoute(twice));
        plan.push(&home, Step::AddRoute(route("fd00:2::/64", gateway6, "hgv0")));
        let source =
            Route { src: Some(ip("10.244.1.2")), ..Route::on_link(net("10.9.0.0/16"), ifname("hgv1")) };
        plan.push(&made, Step::AddRoute(source));
        plan.push(&made, Step::AddRoute(route("0.0.0.0/0", ip("10.244.1.1"), "hgv1")));
        let known = Neighbour { dev: ifname("hgv0"), ip: gateway, mac: Some(Mac::from_id(2, 2)) };
        plan.push(&home, Step::AddNeighbour(known.clone()));
        plan.push(&home, Step::AddNeighbour(Neighbour { ip: gateway6, ..known.clone() }));
        let proxy = Neighbour { ip: ip("10.244.9.9"), mac: None, ..known };
        plan.push(&home, Step::AddNeighbour(proxy.clone()));
        plan.push(&home, Step::AddNeighbour(Neighbour { ip: ip("fd00:9::9"), ..proxy }));
        plan.push(&home, ensured_bridge("hgbe0"));
        plan.push(&home, ensured_address("hgbe0", "10.244.7.1/24"));
        plan.push(&home, ensured_address("hgbe0", "fd00:7::1/64"));
    }

    fn tunnel_and_settings(&self, plan: &mut Plan) {
        let (home, made) = (self.home(), self.made());
        plan.push(&home, vxlan("hgvx.1", "own0"));
        plan.push(&home, up("hgvx.1"));
        let entry = |mac, dst: &str| FdbEntry { dev: ifname("hgvx.1"), mac, dst: ip(dst) };
        plan.push(&home, Step::AddFdb(entry(Mac::from_id(4, 2), "192.0.2.2")));
        plan.push(&home, Step::AddFdb(entry(Mac([0; 6]), "192.0.2.2")));
        plan.push(&home, Step::AddFdb(entry(Mac([0; 6]), "192.0.2.3")));
        self.routes_into_tunnels(plan);
        plan.push(&home, sysctl_step("net/ipv4/ip_forward", "1"));
        plan.push(&home, sysctl_step("net/ipv6/conf/all/forwarding", "1"));
        plan.push(&home, sysctl_step("net/ipv4/conf/default/rp_filter", "2"));
        plan.push(&home, sysctl_step("net/ipv4/conf/hgvx.1/rp_filter", "1"));
        plan.push(&home, sysctl_step("net/ipv4/tcp_rmem", "4096 65536 1048576"));
        plan.push(&made, sysctl_step("net/ipv4/ip_forward", "1"));
        plan.push(&home, Step::AddNftTable(table("hostgap")));
        plan.push(&made, Step::AddNftTable(table("hostgap")));
        let queue = |link: &str, queue, list| {
            Step::from(SetQueueCpus { link: ifname(link), queue, cpus: cpus(list) })
        };
        plan.push(&home, queue("own0", Queue::Rx(0), "1"));
        plan.push(&home, queue("own0", Queue::Tx(0), "0"));
        plan.push(&made, queue("hgv1", Queue::Rx(0), "0-1"));
        plan.push(&home, SetQueueFlows { link: ifname("own0"), rx: 0, flows: 512 });
        self.route_metrics(plan);
        // Qdiscs for wide areas are not in every kernel. They have tests of their own.
        let root = |link: &str, qdisc| Step::from(SetRootQdisc { link: ifname(link), qdisc });
        plan.push(&home, root("own0", Qdisc::Pfifo { limit: 77 }));
        plan.push(&home, root("port0", Qdisc::PfifoFast));
        let inner = Qdisc::Pfifo { limit: 78 };
        let line = Tbf { rate_bytes_per_s: 5_000_000, burst_bytes: 3028, inner };
        plan.push(&made, root("hgv1", Qdisc::Tbf(Box::new(line))));
        plan.push(&home, SetGsoMaxSegs { link: ifname("own0"), segments: 1 });
        plan.push(&made, SetGsoMaxSegs { link: ifname("hgv1"), segments: 17 });
    }

    /// Metrics of a route that the plan made, of others' routes and of one of the kernel's; the same metric
    /// twice; and two metrics of one route.
    fn route_metrics(&self, plan: &mut Plan) {
        let home = self.home();
        let number = MetricValue::Number;
        for (dst, link, metric, value) in [
            ("10.244.3.0/24", "own0", RouteMetric::InitCwnd, number(20)),
            ("198.51.100.0/24", "own0", RouteMetric::RtoMin, number(10)),
            ("198.51.100.0/24", "own0", RouteMetric::RtoMin, number(5)),
            ("198.51.100.0/24", "own0", RouteMetric::QuickAck, number(1)),
            ("192.0.2.0/24", "own0", RouteMetric::CongestionControl, MetricValue::Name("reno".to_owned())),
            ("2001:db8:9::/48", "own0", RouteMetric::InitRwnd, number(30)),
            ("2001:db8::/64", "own0", RouteMetric::RtoMin, number(10)),
        ] {
            plan.push(&home, SetRouteMetric { dst: net(dst), link: ifname(link), metric, value });
        }
    }

    /// Each family in a tunnel over each family.
    fn routes_into_tunnels(&self, plan: &mut Plan) {
        let home = self.home();
        let dev = ifname("hgvx.e");
        let kind = LinkKind::VxlanExternal { port: 8473 };
        let mac = Some(Mac::from_id(4, 3));
        plan.push(&home, Step::AddLink(Link { name: dev.clone(), kind, mtu: Some(1350), mac }));
        plan.push(&home, up("hgvx.e"));
        for (dst, via, remote) in [
            ("10.244.4.0/24", "10.244.4.0", "192.0.2.2"),
            ("10.244.5.0/24", "10.244.5.0", "2001:db8::2"),
            ("fd00:4::/64", "fd00:4::", "192.0.2.2"),
            ("fd00:5::/64", "fd00:5::", "2001:db8::2"),
        ] {
            let encap = Some(Encap { id: 1, remote: ip(remote) });
            let route = Route { onlink: true, encap, ..Route::via(net(dst), ip(via), dev.clone()) };
            plan.push(&home, Step::AddRoute(route));
            let mac = Some(Mac::from_id(4, 4));
            plan.push(&home, Step::AddNeighbour(Neighbour { dev: dev.clone(), ip: ip(via), mac }));
        }
    }

    /// Makes `home` and `away` and fills them with objects that do not belong to the plan.
    pub(crate) fn furnish(&self) {
        let (home, away) = (&self.home, &self.away);
        shell(&format!(
            "ip netns add {home}
ip netns add {away}
ip -n {home} link set lo up
ip -n {home} link add own0 address 02:aa:00:00:00:01 type veth peer name own1 address 02:aa:00:00:00:02 netns {away}
ip -n {home} link add spare0 address 02:aa:00:00:00:03 type veth peer name spare0p address 02:aa:00:00:01:03 netns {away}
ip -n {home} link add free0 address 02:aa:00:00:00:04 type veth peer name free0p address 02:aa:00:00:01:04 netns {away}
ip -n {home} link add port0 address 02:aa:00:00:00:05 type veth peer name port0p address 02:aa:00:00:01:05 netns {away}
ip -n {home} link add ownbr address 02:aa:00:00:00:06 type bridge
ip -n {home} link set port0 master ownbr up
ip -n {home} link set ownbr up
# Its other end is down. Linux 6.1 notices that some time later.
until bridge -n {home} link show dev port0 | grep -q 'state disabled'; do sleep 0.01; done
ip -n {home} link set own0 up
tc -n {home} qdisc add dev port0 root handle 7: pfifo limit 33
ip -n {away} link set own1 up
ip -n {home} address add 192.0.2.1/24 dev own0
ip -n {home} address add 2001:db8::1/64 dev own0 nodad
ip -n {away} address add 192.0.2.2/24 dev own1
ip -n {home} route add 198.51.100.0/24 via 192.0.2.2
ip -n {home} -6 route add 2001:db8:9::/48 via 2001:db8::2
ip -n {home} neighbour add 192.0.2.9 lladdr 02:aa:00:00:00:09 dev own0
ip -n {home} rule add from 203.0.113.0/24 lookup 100
ip netns exec {home} sysctl -qw net.ipv4.conf.own0.forwarding=1 net.ipv4.conf.own0.rp_filter=1 \
    net.ipv4.conf.spare0.rp_filter=1 net.ipv6.conf.spare0.accept_ra=0
ip netns exec {home} nft -f - <<'EOF'
table inet own {{
    chain input {{
        type filter hook input priority 0; policy accept;
        tcp dport 9999 drop
    }}
}}
EOF
"
        ));
    }
}
