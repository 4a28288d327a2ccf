//! What is to be asked of the other nodes, and over which sockets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use datapath::{BACKENDS, Family, gateway_in};
use ipnet::IpNet;
use linux::icmp::EchoSocket;

use super::echoes::Question;
use super::scene::Scene;
use crate::backend::{BackendKind, is_tunnel};
use crate::status::{PeerStatus, Status, word};

/// The least MTU of IPv6 (RFC 8200 §5).
const LEAST_V6: u32 = 1280;
/// What a link carries of which nothing is known: Ethernet's.
const MTU_UNKNOWN: u32 = 1500;

/// All questions of a check.
pub(super) struct Targets {
    pub(super) sockets: Vec<EchoSocket>,
    pub(super) questions: Vec<Question>,
    pub(super) targets: Vec<Target>,
}

/// Another node in one family of pods, and the numbers of the questions about it.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) peer: String,
    pub(super) family: Family,
    /// The prefix of the pods on that node, in this family.
    pub(super) pods_net: IpNet,
    /// The transport by its name.
    pub(super) by: String,
    pub(super) node: usize,
    pub(super) tunnel: Option<usize>,
    pub(super) pods: usize,
    pub(super) as_pod: Option<usize>,
}

impl Target {
    /// The numbers of its questions.
    pub(super) fn question_numbers(&self) -> impl Iterator<Item = usize> {
        [self.node, self.pods].into_iter().chain(self.tunnel).chain(self.as_pod)
    }
}

/// How packets leave: what a socket says of all of its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sending {
    is_v6: bool,
    /// The packet ends where it would have to be forwarded.
    ends_next: bool,
    /// The source address; `None`: as the kernel chooses.
    source: Option<IpAddr>,
}

/// The questions as they are put together.
#[derive(Default)]
struct Draft {
    sockets: Vec<EchoSocket>,
    numbers: BTreeMap<Sending, usize>,
    questions: Vec<Question>,
}

impl Targets {
    pub(super) fn of(
        status: &Status,
        scene: &Scene,
        peers: &BTreeMap<&String, &PeerStatus>,
    ) -> linux::Result<Targets> {
        let mut draft = Draft::default();
        let mut targets = Vec::new();
        for (name, peer) in peers {
            let pods: Vec<IpNet> = peer.pods.iter().filter_map(|net| net.parse().ok()).collect();
            for pods_net in pods {
                let family = Family::of(pods_net.addr());
                let public = peer.public.iter().filter_map(|address| address.parse::<IpAddr>().ok());
                let public = public.into_iter().find(|address| Family::of(*address) == family);
                let (Some(public), Some(by)) = (public, peer.by.get(&word(family))) else { continue };
                let way = Way { peer: name, family, pods_net, public, by, path_mtu: peer.path_mtu };
                targets.push(draft.add(status, scene, &way)?);
            }
        }
        Ok(Targets { sockets: draft.sockets, questions: draft.questions, targets })
    }
}

/// The way to a node in one family.
struct Way<'a> {
    peer: &'a str,
    family: Family,
    pods_net: IpNet,
    public: IpAddr,
    by: &'a str,
    path_mtu: Option<u32>,
}

impl Way<'_> {
    /// The most bytes that go to the node's own address.
    fn node_bytes(&self, scene: &Scene) -> u32 {
        let wire = scene.wire.as_ref().map_or(MTU_UNKNOWN, |wire| wire.mtu);
        self.path_mtu.unwrap_or(wire)
    }

    /// The most bytes that pods send there: their links' MTU, or less where the agent has found that
    /// the way carries less.
    fn pods_bytes(&self, status: &Status) -> u32 {
        let transport = BACKENDS.iter().find(|path| path.name == self.by).map(|path| path.transport);
        let overhead = |mtu| transport.map_or(0, |transport| transport.overhead_bytes(self.family, mtu));
        let left = self.path_mtu.map(|mtu| mtu.saturating_sub(overhead(mtu)));
        let least = if self.family == Family::V6 { LEAST_V6 } else { 0 };
        let pods = status.mtu.unwrap_or(MTU_UNKNOWN);
        left.map_or(pods, |left| left.max(least).min(pods))
    }
}

impl Draft {
    fn add(&mut self, status: &Status, scene: &Scene, way: &Way<'_>) -> linux::Result<Target> {
        let as_chosen = Sending { is_v6: way.family == Family::V6, ends_next: false, source: None };
        let forwarded = Sending { ends_next: true, ..as_chosen };
        // What a node sends by its tunnel has the tunnel's address, which is one of the pods' network.
        let own = scene.own_address(way.family).filter(|_| !is_tunnel(way.by));
        let backend = status.backend.as_deref().and_then(BackendKind::find);
        let has_tunnels = backend.is_some_and(BackendKind::has_tunnels);
        let (node_bytes, pods_bytes) = (way.node_bytes(scene), way.pods_bytes(status));
        // No pod has this address: it is the gateway's, and some attaches have none.
        let to_pods = gateway_in(way.pods_net);
        let witnesses = vec![way.public.into(), way.pods_net];
        let mut ask = |sending, to, bytes, witnesses| {
            let number = self.questions.len();
            let socket = self.socket(sending)?;
            self.questions.push(Question { socket, to, full_bytes: bytes, witnesses });
            Ok::<usize, linux::Error>(number)
        };
        let node = ask(as_chosen, way.public, Some(node_bytes), Vec::new())?;
        let tunnel =
            has_tunnels.then(|| ask(as_chosen, way.pods_net.network(), Some(pods_bytes), Vec::new()));
        let tunnel = tunnel.transpose()?;
        let pods = ask(forwarded, to_pods, None, witnesses.clone())?;
        let as_pod = own.map(|own| ask(Sending { source: Some(own), ..forwarded }, to_pods, None, witnesses));
        Ok(Target {
            peer: way.peer.to_owned(),
            family: way.family,
            pods_net: way.pods_net,
            by: way.by.to_owned(),
            node,
            tunnel,
            pods,
            as_pod: as_pod.transpose()?,
        })
    }

    /// The number of the socket that sends so.
    fn socket(&mut self, sending: Sending) -> linux::Result<usize> {
        if let Some(number) = self.numbers.get(&sending) {
            return Ok(*number);
        }
        let socket = EchoSocket::open(sending.is_v6)?;
        if sending.ends_next {
            socket.set_hop_limit(1)?;
        }
        if let Some(source) = sending.source {
            socket.bind(source)?;
        }
        self.sockets.push(socket);
        self.numbers.insert(sending, self.sockets.len() - 1);
        Ok(self.sockets.len() - 1)
    }
}
