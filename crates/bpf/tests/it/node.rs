//! A node with its programs: a wire to a next hop, two pods, routes and neighbours. The next hop and the pods
//! are namespaces too.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::str::FromStr;

use bpf::forward::{self, Counter, Endpoint, NodeConfig, Program, Tunnel, TunnelEnd, Verified};
use bpf::pins;
use libbpf_rs::Program as Loaded;
use linux::features::{Feature, probe};
use linux::{IfName, Mac, Netlink, Netns};
use testkit::{World, require_root, run, shell};

use crate::frame;
use crate::preamble::{self, Given};
use crate::run::{Context, Verdict, once};

/// The Ethernet address of the node's end of every pod's link.
pub(crate) const GATEWAY_MAC: Mac = Mac([2, 0, 0, 0, 0, 0xfe]);
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The Ethernet addresses of the node's end of the wire and of the next hop.
pub(crate) const WIRE_MAC: Mac = Mac([2, 0, 0, 0, 1, 1]);
pub(crate) const HOP_MAC: Mac = Mac([2, 0, 0, 0, 1, 2]);
/// The two ends of the underlay.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub(crate) const THERE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
pub(crate) const VNI: u32 = 0x0a_0b0c;
pub(crate) const PORT: u16 = 8472;
pub(crate) const MTU: u32 = 1450;
/// How long these nodes keep a route: longer than any test takes, so that no test has to hurry.
const KEPT_SECONDS: u32 = 3600;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pod {
    pub(crate) link: &'static str,
    pub(crate) mac: Mac,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

pub(crate) const ONE: Pod = Pod {
    link: "pod1",
    mac: Mac([2, 0, 0, 0, 2, 1]),
    v4: Ipv4Addr::new(10, 244, 1, 11),
    v6: Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0x11),
};
pub(crate) const TWO: Pod = Pod {
    link: "pod2",
    mac: Mac([2, 0, 0, 0, 2, 2]),
    v4: Ipv4Addr::new(10, 244, 1, 12),
    v6: Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0x12),
};

/// Addresses of pods on other nodes.
pub(crate) mod far {
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// Reached by the next hop, or through a tunnel over IPv4 on a node with tunnels.
    pub(crate) const DIRECT: Ipv4Addr = Ipv4Addr::new(10, 244, 2, 7);
    pub(crate) const DIRECT6: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 7);
    /// The kernel's route leads back to a pod.
    pub(crate) const ROUTED: Ipv4Addr = Ipv4Addr::new(10, 244, 3, 7);
    pub(crate) const ROUTED6: Ipv6Addr = Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 7);
    /// Reached by a next hop whose Ethernet address is unknown.
    pub(crate) const UNRESOLVED: Ipv4Addr = Ipv4Addr::new(10, 244, 4, 7);
    pub(crate) const UNRESOLVED6: Ipv6Addr = Ipv6Addr::new(0xfd00, 4, 0, 0, 0, 0, 0, 7);
    /// Reached through a tunnel over IPv6. A node without tunnels has no route to it.
    pub(crate) const OVER_IPV6: Ipv4Addr = Ipv4Addr::new(10, 244, 5, 7);
    /// Reached through a tunnel to the next hop with the unknown Ethernet address.
    pub(crate) const TUNNEL_UNRESOLVED: Ipv4Addr = Ipv4Addr::new(10, 244, 6, 7);
    /// In no prefix of pods.
    pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
    pub(crate) const OUTSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 7);
}

/// What a program did with a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    /// The counters that rose, each by one.
    pub(crate) counted: Vec<Counter>,
    pub(crate) frame: Vec<u8>,
}

/// A node with its programs loaded, in a world of its own.
pub(crate) struct Node {
    pub(crate) folder: PathBuf,
    pub(crate) netns: Netns,
    pub(crate) config: NodeConfig,
    pub(crate) verified: Vec<Verified>,
    netlink: Netlink,
    /// Declared last, so that it is dropped last: it removes everything.
    pub(crate) world: World,
}

/// Whether the programs can run here. If not, the test is recorded as skipped.
pub(crate) fn can_run() -> bool {
    if !require_root() {
        return false;
    }
    let missing = probe().expect("a namespace can be made").missing.remove(&Feature::BpfTc);
    if let Some(why) = &missing {
        testkit::skip(&format!("no programs at tc: {why}"));
    }
    missing.is_none()
}

impl Node {
    /// A node that reaches the other nodes by the wire.
    pub(crate) fn direct() -> Node {
        Node::new(None, KEPT_SECONDS)
    }

    /// The same, with routes kept for as long as in production.
    pub(crate) fn direct_in_earnest() -> Node {
        Node::new(None, forward::ROUTE_SECONDS)
    }

    /// A node that reaches the other nodes through tunnels.
    pub(crate) fn tunnelled() -> Node {
        let tunnel = TunnelEnd { local: HERE.into(), vni: VNI, port: PORT };
        let node = Node::new(Some(tunnel), KEPT_SECONDS);
        let device = node.index("tun");
        for (prefix, remote) in [
            ("10.244.2.0/24", IpAddr::from(THERE)),
            ("fd00:2::/64", THERE.into()),
            ("10.244.5.0/24", THERE6.into()),
            ("10.244.6.0/24", Ipv4Addr::new(192, 0, 2, 9).into()),
        ] {
            let prefix = net(prefix);
            forward::add_tunnel(&node.folder, &Tunnel { prefix, device, remote }).expect("the map has room");
        }
        node
    }

    fn new(tunnel: Option<TunnelEnd>, route_seconds: u32) -> Node {
        let world = World::new();
        furnish(&world);
        let netns = world.open("node");
        let netlink = Netlink::open_in(&netns).expect("a socket can be opened there");
        let folder = pins::folder(world.name("node").as_str());
        pins::make(&folder).expect("root can mount a bpffs");
        let config = NodeConfig {
            wire: netlink.index_of(&ifname("wire")).expect("the node was just made"),
            mtu: MTU,
            gateway: GATEWAY,
            gateway_mac: GATEWAY_MAC,
            pods: vec![net("10.244.1.0/24"), net("fd00:1::/64")],
            cluster: vec![net("10.244.0.0/16"), net("fd00::/16")],
            tunnel,
            route_seconds,
        };
        let verified = forward::load(&folder, &config).expect("the kernel takes the programs");
        let node = Node { folder, netns, config, verified, netlink, world };
        for pod in [ONE, TWO] {
            forward::add_endpoint(&node.folder, &node.endpoint(&pod)).expect("the maps have room");
        }
        node
    }

    pub(crate) fn endpoint(&self, pod: &Pod) -> Endpoint {
        let addresses = vec![pod.v4.into(), pod.v6.into()];
        Endpoint { link: self.index(pod.link), mac: pod.mac, addresses, queued: false }
    }

    pub(crate) fn index(&self, link: &str) -> u32 {
        self.netlink.index_of(&ifname(link)).expect("the link is there")
    }

    /// Gives the pods their IPv4 addresses, and a route by the gateway.
    pub(crate) fn address_pods(&self) {
        for pod in [ONE, TWO] {
            for arguments in [
                format!("address add {}/32 dev eth0", pod.v4),
                format!("neighbour add {GATEWAY} lladdr {GATEWAY_MAC} dev eth0"),
                format!("route add default via {GATEWAY} dev eth0 onlink"),
            ] {
                // A pod's namespace is called as the node's link to it.
                run(&self.world.open(pod.link), "ip", &arguments.split(' ').collect::<Vec<_>>());
            }
        }
    }

    /// Runs `ip` in the node's namespace.
    pub(crate) fn ip(&self, arguments: &str) {
        run(&self.netns, "ip", &arguments.split(' ').collect::<Vec<_>>());
    }

    pub(crate) fn program(&self, program: Program) -> OwnedFd {
        Loaded::fd_from_pinned_path(program.pin(&self.folder)).expect("it was pinned")
    }

    pub(crate) fn counters(&self) -> Vec<(Counter, u64)> {
        forward::counters(&self.folder).expect("the counters are readable")
    }

    /// The names of the counters that are not zero.
    pub(crate) fn reached(&self) -> BTreeSet<&'static str> {
        self.counters()
            .iter()
            .filter(|(_, packets)| *packets > 0)
            .map(|(counter, _)| counter.name())
            .collect()
    }

    /// Runs a program over a frame that arrives at a link.
    #[track_caller]
    pub(crate) fn send(&self, program: Program, link: &str, frame: &[u8]) -> Outcome {
        let context = Context { ifindex: self.index(link), ..Context::default() };
        self.send_with(&self.program(program), context, frame).expect("the kernel takes such a frame")
    }

    /// The same for a frame that arrived through the tunnel device in network `vni` from the node at `from`.
    #[track_caller]
    pub(crate) fn send_tunnelled(&self, vni: u32, from: impl Into<IpAddr>, frame: &[u8]) -> Outcome {
        self.send_given(Program::FromTunnel, "tun", Given::Tunnel { vni, from: from.into() }, frame)
    }

    /// The same for a frame with metadata that a link added.
    #[track_caller]
    pub(crate) fn send_given(&self, program: Program, link: &str, given: Given, frame: &[u8]) -> Outcome {
        let preamble = preamble::load(self.program(program).as_fd(), given);
        let context = Context { ifindex: self.index(link), ..Context::default() };
        self.send_with(&preamble.program, context, frame).expect("the kernel takes such a frame")
    }

    /// The same with the whole context given.
    pub(crate) fn send_with(
        &self,
        program: &OwnedFd,
        context: Context,
        frame: &[u8],
    ) -> std::io::Result<Outcome> {
        let before = self.counters();
        let (returned, frame) =
            self.netns.run(|| once(program.as_fd(), context, frame)).expect("its namespace is there")?;
        let pairs = before.into_iter().zip(self.counters());
        let risen = pairs.filter(|((_, before), (_, after))| after != before);
        let counted = risen.map(|((counter, before), (_, after))| {
            assert_eq!(after, before + 1, "{counter}");
            counter
        });
        Ok(Outcome { verdict: Verdict::of(returned), counted: counted.collect(), frame })
    }
}

impl Pod {
    /// A frame from the pod to its gateway.
    pub(crate) fn frame(&self, kind: u16, packet: &[u8]) -> Vec<u8> {
        frame::ethernet(GATEWAY_MAC, self.mac, kind, packet)
    }

    /// A frame from the pod to its gateway that contains a datagram.
    pub(crate) fn to(&self, address: impl Into<IpAddr>, payload: &[u8]) -> Vec<u8> {
        let address = address.into();
        let own = if address.is_ipv4() { self.v4.into() } else { self.v6.into() };
        let (kind, packet) = frame::datagram(own, address, payload);
        self.frame(kind, &packet)
    }
}

/// A frame from the next hop that contains a datagram.
pub(crate) fn from_hop(from: impl Into<IpAddr>, to: impl Into<IpAddr>, payload: &[u8]) -> Vec<u8> {
    let (kind, packet) = frame::datagram(from.into(), to.into(), payload);
    frame::ethernet(WIRE_MAC, HOP_MAC, kind, &packet)
}

/// The Ethernet header of a frame to the next hop.
pub(crate) fn to_hop(kind: u16) -> Vec<u8> {
    frame::ethernet(HOP_MAC, WIRE_MAC, kind, &[])
}

fn net<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("a sound prefix")
}

fn ifname(name: &str) -> IfName {
    IfName::new(name).expect("a sound name")
}

/// Builds the namespaces `node`, `hop`, `pod1` and `pod2`. Nothing in them sends packets unasked: neighbour
/// entries are permanent, and links get no automatic addresses.
fn furnish(world: &World) {
    let [node, hop, pod1, pod2] = ["node", "hop", "pod1", "pod2"].map(|short| world.name(short));
    for place in [&node, &hop, &pod1, &pod2] {
        shell(&format!(
            "ip netns add {place}\nip netns exec {place} sysctl -qw net.ipv6.conf.default.addr_gen_mode=1"
        ));
    }
    shell(&format!(
        "ip -n {node} link add wire address {WIRE_MAC} type veth peer name wire address {HOP_MAC} netns {hop}
ip -n {node} link add pod1 address {GATEWAY_MAC} type veth peer name eth0 address {} netns {pod1}
ip -n {node} link add pod2 address {GATEWAY_MAC} type veth peer name eth0 address {} netns {pod2}
ip -n {node} link add tun address 02:00:00:00:03:01 type veth peer name tunp
ip -n {hop} link set wire up
ip -n {pod1} link set eth0 up
ip -n {pod2} link set eth0 up
for link in wire pod1 pod2 tun tunp; do ip -n {node} link set $link up; done
ip netns exec {node} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
ip -n {node} address add {HERE}/24 dev wire
ip -n {node} address add 2001:db8::1/64 dev wire nodad
ip -n {node} neighbour add {THERE} lladdr {HOP_MAC} dev wire
ip -n {node} neighbour add {THERE6} lladdr {HOP_MAC} dev wire
ip -n {node} route add 10.244.2.0/24 via {THERE}
ip -n {node} route add fd00:2::/64 via {THERE6}
ip -n {node} route add 10.244.3.0/24 dev pod2
ip -n {node} route add fd00:3::/64 dev pod2
ip -n {node} neighbour add {} lladdr {} dev pod2
ip -n {node} neighbour add {} lladdr {} dev pod2
ip -n {node} route add 10.244.4.0/24 via 192.0.2.9
ip -n {node} route add fd00:4::/64 via 2001:db8::9",
        ONE.mac,
        TWO.mac,
        far::ROUTED,
        TWO.mac,
        far::ROUTED6,
        TWO.mac
    ));
}
