//! The wire between two devices of software RoCE, in the machine's own namespace, and what shows that messages took it.
//!
//! Both ends are the same machine's, with routes of one subnet at both links. A look-up that names a link, as that of a
//! device does, passes over the local route of the other link's address, and finds the subnet at its own;
//! `accept_local` lets in what comes from an address of the machine. Neighbours are permanent: no node has to answer
//! for an address that two links could claim.

use datapath::{Family, PacketCounter, PacketDirection, SocketRole, Trace};
use ipnet::IpNet;
use linux::{Link, LinkKind, Mac, Neighbour, RdmaLink, VethPeer, sysctl};
use plan::{Place, Plan, Queue, SetLinkUp, SetQueueCpus, SetSysctl, Step};

use crate::shape::RdmaWire;
use crate::{ByRole, Shape};

/// Keeps the addresses of these links apart from others' ([`Mac::from_id`]).
const MACS: u8 = 9;

/// The length of a wire's prefix.
const SUBNET: u8 = 24;

const ENDS: [(SocketRole, SocketRole); 2] =
    [(SocketRole::Client, SocketRole::Server), (SocketRole::Server, SocketRole::Client)];

/// Adds the wire and its addresses to the plan.
pub(super) fn wire(shape: &Shape, wire: RdmaWire, plan: &mut Plan) {
    let here = Place::Host;
    let (client, server) = (wire.link(SocketRole::Client), wire.link(SocketRole::Server));
    let mtu = Some(shape.mtu_bytes);
    let mac = |part| Mac::from_id(MACS, u32::from(wire.number) << 8 | u32::from(RdmaWire::number_of(part)));
    let peer = VethPeer { name: server, netns: None, mtu, mac: Some(mac(SocketRole::Server)) };
    let kind = LinkKind::Veth { peer };
    plan.push(&here, Step::AddLink(Link { name: client, kind, mtu, mac: Some(mac(SocketRole::Client)) }));
    for (own, other) in ENDS {
        let link = wire.link(own);
        let mut set = |key: String, value: &str| {
            let key = sysctl::Key::new(key).expect("an interface name is one part of a path");
            plan.push(&here, SetSysctl { key, value: value.to_owned() });
        };
        set(format!("net/ipv4/conf/{link}/accept_local"), "1");
        set(format!("net/ipv4/conf/{link}/rp_filter"), "0");
        if shape.families.contains(&Family::V6) {
            // It would send packets of its own, and the device would have more addresses.
            set(format!("net/ipv6/conf/{link}/disable_ipv6"), "1");
        }
        plan.push(&here, SetLinkUp { link: link.clone() });
        let address = IpNet::new(wire.address(own).into(), SUBNET).expect("the length is sound");
        plan.push(&here, Step::AddAddress { link: link.clone(), address });
        let neighbour =
            Neighbour { dev: link.clone(), ip: wire.address(other).into(), mac: Some(mac(other)) };
        plan.push(&here, Step::AddNeighbour(neighbour));
        plan.push(&here, Step::AddRdmaLink(RdmaLink { name: wire.device(own), link }));
    }
    if shape.steered {
        let cpus = ByRole { client: &shape.cpus.client, server: &shape.cpus.server };
        for (own, _) in ENDS {
            let (link, cpus) = (wire.link(own), (*cpus.of(own)).clone());
            plan.push(&here, Step::from(SetQueueCpus { link, queue: Queue::Rx(0), cpus }));
        }
    }
}

/// What the ends of the wire have to count. Each message has a packet of its own, and an acknowledgement.
pub(super) fn traces(wire: RdmaWire) -> Vec<Trace> {
    let directions =
        [(SocketRole::Client, PacketDirection::Requests), (SocketRole::Server, PacketDirection::Answers)];
    let both = directions.into_iter().flat_map(|(part, packets)| {
        let other = if part == SocketRole::Client { SocketRole::Server } else { SocketRole::Client };
        let counters = [PacketCounter::Sent(wire.link(part)), PacketCounter::Received(wire.link(other))];
        counters.map(|counter| Trace { place: Place::Host, counter, packets })
    });
    both.collect()
}
