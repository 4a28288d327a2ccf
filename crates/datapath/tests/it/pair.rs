//! Two nodes in namespaces and the wires between them, set up as a strict distribution would: with strict
//! reverse path filtering. Node 1 has one pod, node 2 has two.

use std::path::PathBuf;

use datapath::{Addresses, Between, DataPath, Family, GuardHook, NodeSpec, Peer, Pod, Prefixes, Reach};
use ipnet::IpNet;
use linux::{IfName, Link, LinkKind, Netns, NetnsName, Route, VethPeer, sysctl};
use plan::{ApplyError, Fault, Journal, Kernel, Place, Placed, Plan, SetLinkUp, SetSysctl, Step, Undone};
use testkit::{Dump, World};

use crate::specs::{Shape, UNDERLAY_PREFIX, peer};

/// The nodes of a test. Dropping this removes their namespaces.
pub(crate) struct Pair {
    pub(crate) nodes: [NodeSpec; 2],
    /// Pod 1 of node 1, pods 1 and 2 of node 2.
    pub(crate) pods: [Pod; 3],
    shape: Shape,
    world: World,
    kernel: Kernel,
    journal: PathBuf,
}

impl Pair {
    /// Builds everything except the data path.
    pub(crate) fn new(path: &'static DataPath, outer: Family) -> Pair {
        Pair::of(path, outer, &Family::BOTH)
    }

    /// The same, with pods and nodes of the given families only.
    pub(crate) fn of(path: &'static DataPath, outer: Family, families: &'static [Family]) -> Pair {
        let world = World::new();
        let prefix = world.name("").as_str().trim_end_matches('-').to_owned();
        let journal = std::env::temp_dir().join(format!("{prefix}.journal"));
        let shape = Shape { outer, families, ..Shape::new(&prefix, path) };
        let nodes = [shape.node(1), shape.node(2)];
        let pods = [shape.pod(&nodes[0], 1), shape.pod(&nodes[1], 1), shape.pod(&nodes[1], 2)];
        let kernel = Kernel::new().expect("the test's own namespace can be opened");
        for (file, key) in shape.keys() {
            std::fs::write(file, key).unwrap_or_else(|error| panic!("{error}"));
        }
        let mut pair = Pair { nodes, pods, shape, world, kernel, journal };
        let (mut journal, base) = (pair.journal(), pair.base());
        plan::apply(&base, &mut journal, &mut pair.kernel).unwrap_or_else(|error| panic!("{error}"));
        pair
    }

    /// The same with a network that checks what pods send.
    pub(crate) fn guarded(mut self) -> Pair {
        for node in &mut self.nodes {
            node.network.anti_spoofing = Some(GuardHook::Filter);
        }
        self
    }

    /// Opens the namespace of a place or a pod.
    pub(crate) fn netns(&self, name: &NetnsName) -> Netns {
        Netns::open(name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The namespace in which a pod's processes run.
    pub(crate) fn inside(&self, pod: usize) -> Netns {
        match self.shape.path.reach {
            Reach::Node => self.node(usize::from(pod > 0)),
            Reach::PublishedPort | Reach::Pod => self.netns(place_name(&self.pods[pod].place)),
        }
    }

    pub(crate) fn node(&self, at: usize) -> Netns {
        self.netns(place_name(&self.nodes[at].place))
    }

    /// The whole data path on both nodes with all pods.
    pub(crate) fn path_plan(&self) -> Plan {
        let [one, two] = self.nodes.each_ref().map(peer);
        plan_of(self.shape.path, &self.nodes, &self.pods, [&two, &one])
    }

    /// Only node 2, with one pod and its peer: what one machine does.
    pub(crate) fn one_node_plan(&self) -> Plan {
        let (path, [one, two]) = (self.shape.path, &self.nodes);
        let mut plan = path.node_plan(two).expect("a sound node");
        plan.extend(path.pod_plan(two, &self.pods[1]).expect("a sound pod"));
        plan.extend(path.peer_plan(two, &peer(one)).expect("a sound peer"));
        plan
    }

    /// Whether the wire can take the programs of another network too. As filters, programs have a single
    /// place there.
    pub(crate) fn has_room(&self, plan: &Plan) -> bool {
        let attaches = |placed: &&Placed| matches!(&placed.step, Step::AttachProgram(at) if at.link == self.nodes[0].wire);
        if !plan.steps.iter().any(|placed| attaches(&placed)) {
            return true;
        }
        let node = self.node(0);
        let index = linux::Netlink::open_in(&node).and_then(|netlink| netlink.index_of(&self.nodes[0].wire));
        let index = index.expect("the wire is there");
        let programs = node.run(|| bpf::programs_at(index)).expect("the namespace can be entered");
        !programs.expect("root may ask").is_empty()
    }

    /// A new journal. Its file is removed with the test.
    pub(crate) fn journal(&self) -> Journal {
        let _ = std::fs::remove_file(&self.journal);
        Journal::create(&self.journal).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn apply(
        &mut self,
        plan: &Plan,
        journal: &mut Journal,
        fault: Fault,
    ) -> Result<(), ApplyError> {
        self.kernel.inject(fault);
        let applied = plan::apply(plan, journal, &mut self.kernel);
        self.kernel.inject(Fault::None);
        applied.map(drop)
    }

    pub(crate) fn undo(&mut self, journal: &mut Journal) -> Vec<(Placed, Undone)> {
        plan::undo(journal, &mut self.kernel)
    }

    /// All namespaces of the pair.
    pub(crate) fn everywhere(&self) -> Vec<NetnsName> {
        self.world.existing()
    }

    /// The namespaces in which [`Pair::one_node_plan`] acts.
    pub(crate) fn one_node(&self) -> Vec<NetnsName> {
        let router = self.nodes[1].router.iter().map(|router| place_name(&router.place).clone());
        [place_name(&self.nodes[1].place).clone(), place_name(&self.pods[1].place).clone()]
            .into_iter()
            .chain(router)
            .collect()
    }

    pub(crate) fn dump(&self, names: &[NetnsName]) -> Vec<Dump> {
        names.iter().map(|name| testkit::dump(&self.netns(name))).collect()
    }

    /// Fails with the difference if a namespace changed.
    #[track_caller]
    pub(crate) fn assert_as(&self, names: &[NetnsName], before: &[Dump], when: &str) {
        for ((name, before), now) in names.iter().zip(before).zip(self.dump(names)) {
            before.assert_same(&now, &format!("{name} {when}"));
        }
    }

    fn base(&self) -> Plan {
        let mut plan = Plan::new();
        let router = self.nodes[0].router.as_ref().map(|router| &router.place);
        let pods = self.pods.iter().map(|pod| &pod.place);
        let nodes = self.nodes.iter().map(|node| &node.place).chain(router).collect::<Vec<_>>();
        for place in nodes.iter().copied().chain(pods) {
            plan.push(place, Step::AddNetns);
        }
        for place in &nodes {
            // New links start with the default's value.
            for conf in ["all", "default"] {
                plan.push(place, set(&format!("net/ipv4/conf/{conf}/rp_filter"), "1"));
            }
        }
        for (pod, node) in self.pods.iter().zip([&self.nodes[0], &self.nodes[1], &self.nodes[1]]) {
            if let Some(device) = &pod.device {
                plan.push(&node.place, link_with_end(&device.link));
            }
        }
        match self.shape.path.between {
            Between::Wire => self.wire(&mut plan),
            Between::Router => self.routed_wires(&mut plan),
        }
        plan
    }

    fn wire(&self, plan: &mut Plan) {
        let [one, two] = &self.nodes;
        let ends = [(one, one.underlay), (two, two.underlay)].map(|(node, at)| (&node.place, &node.wire, at));
        wire(plan, ends);
    }

    /// A router with a wire to each node. It is each node's default route.
    fn routed_wires(&self, plan: &mut Plan) {
        for node in &self.nodes {
            let router = node.router.as_ref().expect("this path has a router");
            let near = (&node.place, &node.wire, node.underlay);
            wire(plan, [near, (&router.place, &router.wire, router.addresses)]);
            let everywhere = Prefixes::everywhere(router.addresses.families());
            for (dst, via) in everywhere.iter().zip(router.addresses.iter()) {
                plan.push(&node.place, Step::AddRoute(Route::via(dst, via, node.wire.clone())));
            }
        }
        let router = &self.nodes[0].router.as_ref().expect("this path has a router").place;
        for family in self.shape.families {
            let key = match family {
                Family::V4 => "net/ipv4/ip_forward",
                Family::V6 => "net/ipv6/conf/all/forwarding",
            };
            plan.push(router, set(key, "1"));
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.journal);
        for (file, _) in self.shape.keys() {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// A data path on two nodes with the pods of [`Pair::pods`]; each node has a peer.
pub(crate) fn plan_of(path: &DataPath, nodes: &[NodeSpec; 2], pods: &[Pod; 3], peers: [&Peer; 2]) -> Plan {
    let mut plan = Plan::new();
    for node in nodes {
        plan.extend(path.node_plan(node).expect("a sound node"));
    }
    for (pod, node) in pods.iter().zip([&nodes[0], &nodes[1], &nodes[1]]) {
        plan.extend(path.pod_plan(node, pod).expect("a sound pod"));
    }
    for (node, peer) in nodes.iter().zip(peers) {
        plan.extend(path.peer_plan(node, peer).expect("a sound peer"));
    }
    plan
}

/// A link that a node hands to a pod. What it is plugged into stays in the node.
fn link_with_end(name: &IfName) -> Step {
    let end = format!("{name}-end").parse().expect("a short word is a link's name");
    let peer = VethPeer { name: end, netns: None, mtu: None, mac: None };
    Step::AddLink(Link { name: name.clone(), kind: LinkKind::Veth { peer }, mtu: None, mac: None })
}

fn place_name(place: &Place) -> &NetnsName {
    place.name().expect("tests name their nodes")
}

/// A veth pair with addresses on its ends.
fn wire(plan: &mut Plan, ends: [(&Place, &IfName, Addresses); 2]) {
    let [(near, name, _), (far, far_name, _)] = ends;
    let peer = VethPeer { name: far_name.clone(), netns: far.netns(), mtu: None, mac: None };
    let kind = LinkKind::Veth { peer };
    plan.push(near, Step::AddLink(Link { name: name.clone(), kind, mtu: None, mac: None }));
    for (place, link, addresses) in ends {
        if addresses.v6.is_some() {
            plan.push(place, set(&format!("net/ipv6/conf/{link}/accept_dad"), "0"));
        }
        plan.push(place, SetLinkUp { link: link.clone() });
    }
    // After both ends are up: the kernel adds the local route of an address later if the link is not ready
    // yet.
    for (place, link, addresses) in ends {
        for address in addresses.iter() {
            let length = if address.is_ipv4() { UNDERLAY_PREFIX.0 } else { UNDERLAY_PREFIX.1 };
            let address = IpNet::new(address, length).expect("a sound length");
            plan.push(place, Step::AddAddress { link: link.clone(), address });
        }
    }
}

fn set(key: &str, value: &str) -> Step {
    Step::from(SetSysctl { key: sysctl::Key::new(key).expect("a sound key"), value: value.to_owned() })
}
