//! What came back from the way, or did not, and what that lets one say.

use std::io::ErrorKind;
use std::net::IpAddr;

use datapath::Family;
use linux::icmp::{EchoRefusal, EchoSocket, IcmpReason};
use linux::netlink::NextHop;

use super::super::CheckError;
use super::super::echoes::Outcome;
use super::super::row::{Reason, ReasonKind};
use super::super::scene::Scene;
use super::local::Tunnel;
use super::{Findings, dotted, forwarding, instead, local, words};
use crate::backend::{VXLAN, WIREGUARD, is_tunnel};
use crate::status::now_s;

/// Seconds after which WireGuard takes a session for dead (`REJECT_AFTER_TIME`).
const SESSION_S: u64 = 180;
/// Strict reverse path filtering (`rp_filter`, Documentation/networking/ip-sysctl.rst).
const STRICT: &str = "1";

impl Findings<'_> {
    /// What the way says. `known` is what is wrong on this node: where that explains it, nothing is put to the way.
    pub(super) fn of_way(&self, scene: &Scene, known: &[Reason]) -> Result<Vec<Reason>, CheckError> {
        let is_explained = !known.is_empty();
        let node = self.target.node;
        if !self.is_small_answered(node) {
            let is_wire = known.iter().any(|reason| reason.kind == ReasonKind::WireDown);
            return if is_wire { Ok(Vec::new()) } else { Ok(vec![self.of_node(scene)?]) };
        }
        if is_explained {
            return Ok(Vec::new());
        }
        if let Some(tunnel) = self.target.tunnel
            && !self.is_small_answered(tunnel)
        {
            return Ok(vec![self.of_tunnel(scene, tunnel)?]);
        }
        if !self.is_small_answered(self.target.pods) {
            return Ok(vec![self.of_pods(scene, self.target.pods)?]);
        }
        if let Some(as_pod) = self.target.as_pod
            && !self.is_small_answered(as_pod)
        {
            return Ok(vec![self.of_as_pod(scene, as_pod)]);
        }
        // The first narrow way explains the others: all lead over the same links.
        Ok(self.target.question_numbers().find_map(|index| self.narrow(index)).into_iter().collect())
    }

    fn is_small_answered(&self, index: usize) -> bool {
        self.results[index].small.is_answered()
    }

    fn to(&self, index: usize) -> IpAddr {
        self.targets.questions[index].to
    }

    /// The node does not answer at its own address.
    fn of_node(&self, scene: &Scene) -> Result<Reason, CheckError> {
        let (index, to) = (self.target.node, self.to(self.target.node));
        let is_unsent = matches!(self.results[index].small, Outcome::Unsent(_));
        if is_unsent && let Some(reason) = self.refused(index) {
            return Ok(reason);
        }
        // Where this node's kernel finds no neighbour, it says "host unreachable" as a router does.
        if let Some(hop) = self.unresolved(scene, to)? {
            let is_node = if hop == to { String::new() } else { format!(", the next hop to {to}") };
            let how = if to.is_ipv6() { "neighbour solicitations" } else { "ARP" };
            return Ok(self.reason(
                ReasonKind::NextHopUnresolved,
                format!("no neighbour answers {how} for {hop}{is_node}"),
                format!("{} is down or off this link, or it has another address now", self.peer),
            ));
        }
        if let Some(reason) = self.refused(index) {
            return Ok(reason);
        }
        // By which link answers from behind a router come is not known.
        let link = scene.wire_name.clone().filter(|_| scene.is_on_wire(to));
        if let Some(reason) = self.reverse_path(scene, link, to)? {
            return Ok(reason);
        }
        Ok(self.reason(
            ReasonKind::NodeSilent,
            format!("{to} does not answer echo requests, and this node sends them"),
            format!(
                "{} is down, or a firewall on it or on the way drops ICMP; ask it another way (ssh)",
                self.peer
            ),
        ))
    }

    /// The node answers, and its tunnel's address does not.
    fn of_tunnel(&self, scene: &Scene, index: usize) -> Result<Reason, CheckError> {
        if let Some(reason) = self.refused(index) {
            return Ok(reason);
        }
        let end = scene.node_part.as_ref().and_then(|part| local::tunnel(part, self.target.family));
        let name = end.as_ref().map(|end| end.device.to_string());
        if let Some(reason) = self.reverse_path(scene, self.expected_link(scene, name), self.to(index))? {
            return Ok(reason);
        }
        if let Some(end) = &end
            && let Some(reason) = self.no_handshake(scene, end, index)?
        {
            return Ok(reason);
        }
        let (node, tunnel, peer) = (self.to(self.target.node), self.to(index), self.peer);
        let here = match self.target.by.as_str() {
            VXLAN => "route, neighbour and forwarding entry are here",
            WIREGUARD => "the route is here, and both ends have agreed on a session",
            _ => "the route is here",
        };
        let seen =
            format!("{node} answers, and its address in the pods' network, {tunnel}, does not; {here}");
        let follows = match (self.target.by.as_str(), end) {
            (VXLAN, Some(end)) => format!(
                "UDP port {} is dropped on the way or on {peer} (a firewall, a security group), or {peer}'s end of the \
                 tunnel is not there: run `hostgap agent status` there",
                end.port
            ),
            _ => format!(
                "{peer} has no tunnel device, or drops packets to it: run `hostgap agent status` there"
            ),
        };
        Ok(self.reason(ReasonKind::TunnelSilent, seen, follows))
    }

    /// The two ends of an encrypted tunnel have no session, though this one has just had something to send.
    fn no_handshake(
        &self,
        scene: &Scene,
        end: &Tunnel<'_>,
        index: usize,
    ) -> Result<Option<Reason>, CheckError> {
        let (Some(own), Some(part)) = (end.key, scene.part_of(self.peer)?) else { return Ok(None) };
        let Some(peer) = local::tunnel_peer(&part, self.target.family) else { return Ok(None) };
        let last = scene.last_handshake(peer)?;
        if last.is_some_and(|at_s| now_s().saturating_sub(at_s) < SESSION_S) {
            return Ok(None);
        }
        let (node, tunnel, name, port) = (self.to(self.target.node), self.to(index), self.peer, end.port);
        let ago = match last {
            Some(at_s) => format!("the last one was {} s ago", now_s().saturating_sub(at_s)),
            None => "there never was one".to_owned(),
        };
        let seen = format!(
            "{node} answers, and its address in the pods' network, {tunnel}, does not; {} has no session with the key {} of \
             {name}'s lease, {ago}",
            end.device, peer.key
        );
        let follows = format!(
            "{name} has another key than its lease says, or does not know this node's, {own}: `hostgap agent status` shows its \
             own there; or UDP port {port} is dropped on the way or on {name} (a firewall, a security group)"
        );
        Ok(Some(self.reason(ReasonKind::NoHandshake, seen, follows)))
    }

    /// What the node would have to forward does not come back.
    fn of_pods(&self, scene: &Scene, index: usize) -> Result<Reason, CheckError> {
        if let Some(reason) = self.refused(index) {
            return Ok(reason);
        }
        if let Some(reason) = self.reverse_path(scene, self.expected_link(scene, None), self.to(index))? {
            return Ok(reason);
        }
        let answers = self.target.tunnel.map_or(self.to(self.target.node), |tunnel| self.to(tunnel));
        let seen = format!(
            "{answers} answers, but packets that {} is to forward to its pods ({}) get no answer",
            self.peer, self.target.pods_net
        );
        Ok(self.reason(ReasonKind::PodsSilent, seen, self.where_to_look()))
    }

    fn of_as_pod(&self, scene: &Scene, index: usize) -> Reason {
        if let Some(reason) = self.refused(index) {
            return reason;
        }
        let source = scene.own_address(self.target.family).map(|own| own.to_string()).unwrap_or_default();
        let seen = format!(
            "{} forwards packets from this node, but packets from {source}, an address of its pods, get no answer",
            self.peer
        );
        let follows = format!(
            "{} has no way back to this node's pods (`hostgap agent status` there), filters by reverse path \
             (net.ipv4.conf.*.rp_filter), or a cloud's network checks source addresses",
            self.peer
        );
        self.reason(ReasonKind::PodsSilent, seen, follows)
    }

    /// Whether a node forwards is not to be seen from another one.
    fn where_to_look(&self) -> String {
        let key = dotted(forwarding(self.target.family));
        format!(
            "look on {}: {key} (0: it does not forward; its agent sets it to 1), the policy of its \
             forward chains (nft list ruleset), and in a cloud the check of source and destination addresses",
            self.peer
        )
    }

    /// What was said instead of an answer, by this machine or another one.
    fn refused(&self, index: usize) -> Option<Reason> {
        let (to, result) = (self.to(index), &self.results[index]);
        match &result.small {
            Outcome::Unsent(error) => Some(self.reason(
                ReasonKind::SendRefused,
                format!("this node does not send to {to}: {}", error.reason()),
                match error.source.kind() {
                    _ if EchoSocket::lacks_room(error) => {
                        "packets to neighbours that do not answer fill its buffers: --peer asks one node alone"
                    }
                    ErrorKind::PermissionDenied => {
                        "a rule of its own drops it (nft list ruleset, hooks output and postrouting), or a route prohibits it"
                    }
                    _ => "it has no route there, or one that refuses: ip route get shows which",
                },
            )),
            Outcome::Refused(refusal) => Some(self.of_error(index, refusal)),
            Outcome::Answered { .. } | Outcome::Silent => None,
        }
    }

    fn of_error(&self, index: usize, refusal: &EchoRefusal) -> Reason {
        let (to, from) = (self.to(index), refusal.from);
        let follows = match refusal.reason {
            IcmpReason::Prohibited | IcmpReason::Rejected => {
                format!("a firewall at {from} forbids it: look at its rules there")
            }
            IcmpReason::NoRoute => {
                format!("{from} has no route to {to}: packets go to it that it does not know")
            }
            IcmpReason::HostUnreachable => format!("{from} finds no neighbour with that address"),
            IcmpReason::HopLimit => {
                format!("packets go to {from} and not to {}: the next hop is another router", self.peer)
            }
            IcmpReason::TooBig { .. } => format!("a link behind {from} carries less than any packet needs"),
            IcmpReason::Other { .. } => format!("look at {from}"),
        };
        let seen = format!("for {to} {from} says: {}", words(refusal.reason));
        self.reason(ReasonKind::IcmpError, seen, follows)
    }

    /// Small packets pass, and full ones do not.
    fn narrow(&self, index: usize) -> Option<Reason> {
        let full = self.results[index].full.as_ref().filter(|full| !full.is_answered())?;
        let question = &self.targets.questions[index];
        let (to, bytes) = (question.to, question.full_bytes?);
        let came = instead(full).unwrap_or_default();
        let carried = self.carried.get(&to).map(|mtu| format!("; {mtu} bytes pass")).unwrap_or_default();
        let seen =
            format!("packets of {bytes} bytes to {to} do not come back and small ones do{carried} ({came})");
        let follows = "a link on the way has a smaller MTU, or something drops large packets. An agent that runs finds it \
                       out every minute and gives its routes that MTU; for good, raise the MTU there, or set \
                       `Backend.MTU` in the network's configuration";
        Some(self.reason(ReasonKind::Narrow, seen, follows))
    }

    /// The next hop to an address, if nothing on the link answers for it (ARP, neighbour discovery).
    fn unresolved(&self, scene: &Scene, to: IpAddr) -> Result<Option<IpAddr>, CheckError> {
        let route = scene.netlink.route_to(to)?;
        for NextHop { index, via, .. } in route.iter().flat_map(|route| &route.next_hops) {
            let hop = via.unwrap_or(to);
            if let Some(index) = index
                && scene.netlink.is_unresolved(*index, hop)?
            {
                return Ok(Some(hop));
            }
        }
        Ok(None)
    }

    /// The link by which answers of the pods' network come.
    fn expected_link(&self, scene: &Scene, tunnel: Option<String>) -> Option<String> {
        let device = || {
            let part = scene.node_part.as_ref()?;
            local::tunnel(part, self.target.family).map(|end| end.device.to_string())
        };
        if is_tunnel(&self.target.by) { tunnel.or_else(device) } else { scene.wire_name.clone() }
    }

    /// Where the kernel would send by another link than that by which answers come, and drops them for it. IPv6
    /// has no such filter.
    fn reverse_path(
        &self,
        scene: &Scene,
        link: Option<String>,
        to: IpAddr,
    ) -> Result<Option<Reason>, CheckError> {
        let (Some(link), Family::V4) = (link, Family::of(to)) else { return Ok(None) };
        let mut values = Vec::new();
        for of in ["all", link.as_str()] {
            values.extend(Scene::parameter(&format!("net/ipv4/conf/{of}/rp_filter"))?);
        }
        // The greater of the two holds, and 2 is the loose filter.
        if values.iter().max().map(String::as_str) != Some(STRICT) {
            return Ok(None);
        }
        let Some(route) = scene.netlink.route_to(to)? else { return Ok(None) };
        let mut by = route.next_hops.iter().filter_map(|hop| hop.index);
        let is_by_it = by.any(|index| {
            scene.netlink.link_at(index).ok().flatten().is_some_and(|by| by.name.as_str() == link)
        });
        if is_by_it {
            return Ok(None);
        }
        let seen = format!(
            "net.ipv4.conf.{link}.rp_filter is strict, answers from {to} come by {link}, and the route there is {}",
            scene.words(&route)
        );
        let follows = format!(
            "this node drops the answers: correct the route, or sysctl -w net.ipv4.conf.{link}.rp_filter=2"
        );
        Ok(Some(self.reason(ReasonKind::ReversePathFilter, seen, follows)))
    }
}
