//! The network of a rootless container: a process in the node's namespace takes what the pod sends to a tap link, and
//! sends it anew by sockets of its own. No packet of the pod leaves the pod.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};
use linux::cpu::Scheduling;
use linux::features::Feature;
use linux::user_net::{ForwardedPort, PortProtocol, UserNetProgram};
use linux::{Mac, UserNet};
use plan::{Plan, SetLinkMtu, Step};

use crate::draft::Draft;
use crate::links;
use crate::trace::{PacketCounter, PacketDirection, Traces};
use crate::{
    Addresses, Attach, Family, NodeSpec, Pod, Protocol, PublishedPort, ReceiveLimit, SpecError, Talk, Trace,
    With,
};

pub(crate) const PASTA: UserMode = UserMode { program: Program::Pasta };
pub(crate) const SLIRP4NETNS: UserMode = UserMode { program: Program::Slirp4netns };

/// The MTU of the link in bytes: what Podman gives both programs, and pasta by default. What a pod sends is no packet
/// of the underlay, so the larger it is, the fewer times the process is woken for a stream.
const MTU: u32 = 65_520;
/// The network that slirp4netns is to its pods by default, and its own address there.
const SLIRP: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 2, 0), 24);
const SLIRP_GATEWAY: Addresses =
    Addresses { v4: Some(Ipv4Addr::new(10, 0, 2, 2)), v6: Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)) };
/// The Ethernet address that it has there: `52:55`, and its IPv4 address (`special_ethaddr` of libslirp).
const SLIRP_MAC: Mac = Mac([0x52, 0x55, 10, 0, 2, 2]);

/// A process for each pod.
pub(crate) struct UserMode {
    program: Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Pasta,
    Slirp4netns,
}

impl Attach for UserMode {
    fn name(&self) -> &'static str {
        match self.program {
            Program::Pasta => "pasta",
            Program::Slirp4netns => "slirp4netns",
        }
    }

    fn needs(&self) -> &'static [Feature] {
        match self.program {
            Program::Pasta => &[Feature::Pasta],
            Program::Slirp4netns => &[Feature::Slirp4netns],
        }
    }

    fn relay_mtu(&self) -> Option<u32> {
        Some(MTU)
    }

    fn refuses_callers(&self, family: Family) -> Option<&'static str> {
        let has_no_ports = self.program == Program::Slirp4netns && family == Family::V6;
        has_no_ports.then_some("slirp4netns leads no ports of IPv6 to a pod")
    }

    /// slirp4netns gives the link an address of its own choice.
    fn has_own_mac(&self) -> bool {
        self.program == Program::Pasta
    }

    fn receive_limit(&self) -> ReceiveLimit {
        ReceiveLimit::Pod
    }

    fn publishes_ports(&self) -> bool {
        true
    }

    fn needs_wire(&self) -> bool {
        self.program == Program::Pasta
    }

    fn node(&self, node: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        let within = |net: IpNet| net.contains(&IpNet::V4(SLIRP)) || IpNet::V4(SLIRP).contains(&net);
        let mut taken = node.underlay.alone().chain(node.pods.iter());
        match taken.find(|net| self.program == Program::Slirp4netns && within(*net)) {
            None => Ok(Plan::new()),
            Some(net) => Err(SpecError {
                what: format!("node {}", node.id),
                why: format!("slirp4netns has {SLIRP} to itself in each pod, and {net} lies there"),
            }),
        }
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let mut plan = Plan::new();
        plan.push(&node.place, Step::StartUserNet(Box::new(self.process(node, pod, mtu)?)));

        let mut inside = Draft::at(&pod.place, node.families());
        inside.step(SetLinkMtu { link: pod.ifname.clone(), mtu });
        // Both programs are routers, and slirp4netns says so by itself.
        inside.ignore_routers(&pod.ifname);
        inside.up(&pod.ifname);
        inside.addresses(&pod.ifname, node.addresses_within(&node.pods, pod));
        let (hops, mac) = match self.program {
            Program::Pasta => (node.gateways_of(pod), links::node_end_mac(node, pod)),
            Program::Slirp4netns => (SLIRP_GATEWAY.only(pod.addresses.families()), SLIRP_MAC),
        };
        // Otherwise the first packets would wait for a question and its answer.
        inside.neighbours(&pod.ifname, hops.iter(), mac);
        inside.routes_via_onlink(&pod.ifname, &node.destinations(pod), &hops);
        inside.own_routes(pod, &hops, true);
        plan.extend(inside.into_plan());
        Ok(plan)
    }

    /// Between two pods of a node the processes of both speak over its loopback, which counts what it sends as
    /// received.
    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&pod.place, &pod.ifname, talk);
        if talk.with == With::Neighbour {
            traces.count(&node.place, PacketCounter::Sent(links::loopback()), PacketDirection::Both);
        }
        traces.forwarded(&node.place, PacketDirection::None);
        traces.into_list()
    }
}

impl UserMode {
    fn process(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<UserNet, SpecError> {
        let netns = pod.place.netns().ok_or_else(|| SpecError {
            what: format!("pod {} of node {}", pod.id, node.id),
            why: format!("{} joins a namespace by its path, and the host's has none", self.name()),
        })?;
        let program = match self.program {
            Program::Pasta => UserNetProgram::Pasta {
                addresses: pod.addresses.iter().collect(),
                gateways: node.gateways_of(pod).iter().collect(),
                mac: links::pod_mac(node, pod),
                gateway_mac: links::node_end_mac(node, pod),
                wire: node.wire.clone(),
            },
            Program::Slirp4netns => {
                UserNetProgram::Slirp4netns { address: pod.addresses.v4, ipv6: pod.addresses.v6.is_some() }
            }
        };
        Ok(UserNet {
            name: format!("{}-p{}", node.programs(), pod.id),
            pod: netns,
            link: pod.ifname.clone(),
            mtu,
            program,
            ports: pod.published.iter().map(forwarded).collect(),
            cpus: None,
            scheduling: Scheduling::Normal,
        })
    }
}

fn forwarded(port: &PublishedPort) -> ForwardedPort {
    let protocol = match port.protocol {
        Protocol::Tcp => PortProtocol::Tcp,
        Protocol::Udp => PortProtocol::Udp,
    };
    let address = port.address.filter(|address: &IpAddr| !address.is_unspecified());
    ForwardedPort { protocol, address, port: port.node, to: port.pod }
}
