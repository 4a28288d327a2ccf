//! What is not as the agent made it on this node: devices, routes, neighbours and forwarding entries.

use std::net::IpAddr;

use datapath::Family;
use ipnet::IpNet;
use linux::{IfName, Link, LinkKind, PublicKey, Route, WireGuardPeer};
use plan::{Lack, LackedPart, Plan, Set, Step};

use super::super::CheckError;
use super::super::row::{Reason, ReasonKind};
use super::super::scene::{Lost, Scene};
use super::Findings;
use crate::backend::AWS_VPC;

/// The advice for everything that an agent repairs by itself.
const AGENT: &str = "an agent that runs makes it again within a second: `hostgap agent status` says whether one does, and \
                     what it has repaired";

impl Findings<'_> {
    /// What is not as the agent made it. Where a device is missing, what was on it is not listed.
    pub(super) fn local(&self, scene: &mut Scene) -> Result<Vec<Reason>, CheckError> {
        if let Some(reason) = self.wire(scene) {
            return Ok(vec![reason]);
        }
        if let Some(reason) = self.tunnel_device(scene)? {
            return Ok(vec![reason]);
        }
        let mut reasons = Vec::new();
        if let Some(node) = scene.node_part.clone() {
            reasons.extend(self.lost(scene, &node)?);
        }
        match scene.part_of(self.peer)? {
            Some(part) => {
                reasons.extend(self.lost(scene, &part)?);
                if reasons.is_empty() {
                    reasons.extend(self.chosen_before(scene, &part)?);
                }
            }
            // Its way is in the cloud's table.
            None if self.target.by == AWS_VPC => {}
            None => reasons.push(self.reason(
                ReasonKind::NotMade,
                format!("the agent has made no way to {} on this node", self.peer),
                AGENT,
            )),
        }
        Ok(reasons)
    }

    fn wire(&self, scene: &Scene) -> Option<Reason> {
        let name = scene.wire_name.as_ref()?;
        let (is, remedy) = match &scene.wire {
            None => ("is not there", "restart the agent with `--wire` if it has another name now"),
            Some(wire) if !wire.up => ("is down", "find out who has set it down; `ip link set LINK up`"),
            Some(wire) if !wire.carrier => {
                ("has no carrier", "look at the cable, the switch, or the other end of the link")
            }
            Some(_) => return None,
        };
        let seen = format!("the link to other nodes, {name}, {is}");
        Some(self.reason(ReasonKind::WireDown, seen, remedy.replace("LINK", name)))
    }

    fn tunnel_device(&self, scene: &Scene) -> Result<Option<Reason>, CheckError> {
        let Some(Tunnel { device, .. }) =
            scene.node_part.as_ref().and_then(|part| tunnel(part, self.target.family))
        else {
            return Ok(None);
        };
        Ok(match scene.link(device)? {
            None => Some(self.reason(
                ReasonKind::TunnelMissing,
                format!("the tunnel device {device} is not there"),
                AGENT,
            )),
            Some(link) if !link.up => Some(self.reason(
                ReasonKind::TunnelDown,
                format!("the tunnel device {device} is down"),
                AGENT,
            )),
            Some(_) => None,
        })
    }

    /// The steps of this family that are no longer so. Parameters of the node are reported once, and the state of a
    /// device with the device.
    fn lost(&self, scene: &mut Scene, part: &Plan) -> Result<Vec<Reason>, CheckError> {
        let mut reasons = Vec::new();
        for Lost { step, found } in scene.lost(part) {
            let lack = step
                .lack()
                .filter(|lack| lack.address.is_none_or(|address| Family::of(address) == self.target.family));
            if let Some(lack) = lack {
                reasons.push(self.of_lack(scene, &lack, found)?);
            }
        }
        Ok(reasons)
    }

    fn of_lack(&self, scene: &Scene, lack: &Lack, found: Option<String>) -> Result<Reason, CheckError> {
        let peer = self.peer;
        let (kind, follows) = match &lack.part {
            LackedPart::Route(route) => return self.of_route(scene, route),
            LackedPart::Neighbour => {
                (ReasonKind::Neighbour, format!("what goes to {peer} does not get into the tunnel; {AGENT}"))
            }
            LackedPart::ForwardingEntry => {
                (ReasonKind::ForwardingEntry, format!("the tunnel does not know where {peer} is; {AGENT}"))
            }
            LackedPart::TunnelPeer => (
                ReasonKind::TunnelPeer,
                format!("it encrypts nothing for {peer}, and takes nothing from it; {AGENT}"),
            ),
            LackedPart::TunnelKey => (ReasonKind::Changed, format!("no other node hears it; {AGENT}")),
            LackedPart::Device => (ReasonKind::Changed, AGENT.to_owned()),
        };
        let instead = found.map(|found| format!("; there is {found}")).unwrap_or_default();
        Ok(self.reason(kind, format!("the tunnel device {}{instead}", lack.words), follows))
    }

    fn of_route(&self, scene: &Scene, route: &Route) -> Result<Reason, CheckError> {
        let wanted = wanted(route);
        if let Some(foreign) = scene.netlink.rival(route)? {
            let seen =
                format!("another program's route has the place of {wanted}: {}", scene.words(&foreign));
            let follows = format!(
                "packets for {}'s pods go there; find the program that makes it, and stop that. {AGENT}",
                self.peer
            );
            return Ok(self.reason(ReasonKind::RouteForeign, seen, follows));
        }
        let now = match scene.netlink.route_to(self.address())? {
            Some(other) => format!("what goes to {} takes {}", self.address(), scene.words(&other)),
            None => format!("nothing leads to {}", self.address()),
        };
        let seen = format!("the main table has no route {wanted}; {now}");
        Ok(self.reason(ReasonKind::RouteMissing, seen, format!("something has deleted it; {AGENT}")))
    }

    /// A route that is longer, or of a table that a rule puts before the main one.
    fn chosen_before(&self, scene: &Scene, part: &Plan) -> Result<Option<Reason>, CheckError> {
        let address = self.address();
        let route = part.steps.iter().find_map(|placed| match &placed.step {
            Step::ReplaceRoute(route) if route.dst.contains(&address) => Some(route),
            _ => None,
        });
        let Some(route) = route else { return Ok(None) };
        let Some(chosen) = scene.netlink.route_to(address)? else { return Ok(None) };
        let link = scene.link(&route.dev)?.map(|link| link.index);
        if link.is_none_or(|link| chosen.is(route, link)) {
            return Ok(None);
        }
        let seen = format!(
            "the route {} exists, but the kernel uses another one for {address}: {}",
            wanted(route),
            scene.words(&chosen)
        );
        let follows =
            "find the program that makes that route, or the rule (`ip rule`) that leads to its table";
        Ok(Some(self.reason(ReasonKind::RouteForeign, seen, follows)))
    }

    /// The address that stands for the peer's pods.
    pub(super) fn address(&self) -> IpAddr {
        self.targets.questions[self.target.pods].to
    }
}

/// This node's end of the tunnels of a family.
pub(super) struct Tunnel<'a> {
    pub(super) device: &'a IfName,
    /// The UDP port at which it is heard.
    pub(super) port: u16,
    /// By which key others know it, where tunnels are encrypted.
    pub(super) key: Option<PublicKey>,
}

/// The end of a family: the device that has an address of that family's pods.
pub(super) fn tunnel(node: &Plan, family: Family) -> Option<Tunnel<'_>> {
    let steps = || node.steps.iter().map(|placed| &placed.step);
    let device = steps().find_map(|step| match step {
        Step::AddAddress { link, address } | Step::EnsureAddress { link, address }
            if Family::of(address.addr()) == family =>
        {
            Some(link)
        }
        _ => None,
    })?;
    steps().find_map(|step| {
        if let Step::Set(Set::WireGuard(set)) = step {
            let end = Tunnel { device, port: set.port, key: Some(set.public) };
            return (set.link == *device).then_some(end);
        }
        let Link { name, kind: LinkKind::Vxlan(vxlan), .. } = step.link()? else { return None };
        (name == device).then_some(Tunnel { device, port: vxlan.port, key: None })
    })
}

/// What a node is to an encrypted tunnel of a family.
pub(super) fn tunnel_peer(part: &Plan, family: Family) -> Option<&WireGuardPeer> {
    part.steps.iter().find_map(|placed| match &placed.step {
        Step::AddWireGuardPeer(peer) if Family::of(peer.endpoint.ip()) == family => Some(peer),
        _ => None,
    })
}

fn wanted(route: &Route) -> String {
    let dst: IpNet = route.dst.trunc();
    let via = route.via.map(|via| format!(" via {via}")).unwrap_or_default();
    format!("{dst}{via} dev {}", route.dev)
}
