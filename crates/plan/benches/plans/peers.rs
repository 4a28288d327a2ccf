//! Peers of a node: by a tunnel device and its lists, by routes into tunnels, by WireGuard and by IPsec.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use linux::{
    Encap, EspKey, EspTunnel, FdbEntry, IfName, Link, LinkKind, Mac, Neighbour, PublicKey, Route, VethPeer,
    Vxlan, WireGuardPeer, XfrmDirection, XfrmPolicy, XfrmState,
};
use plan::{Plan, SetLinkUp, Step};

use super::{Failure, Scale};

#[derive(Debug, Clone, Copy)]
pub(super) enum Family {
    Ipv4,
    Ipv6,
}

/// A wire and the tunnel device on it.
pub(super) fn node(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    let wire = IfName::new("wire")?;
    let peer = VethPeer { name: IfName::new("far")?, netns: None, mtu: None, mac: None };
    let far = peer.name.clone();
    let kind = LinkKind::Veth { peer };
    plan.push(scale.place, Step::AddLink(Link { name: wire.clone(), kind, mtu: None, mac: None }));
    for link in [wire.clone(), far] {
        plan.push(scale.place, SetLinkUp { link });
    }
    plan.push(scale.place, Step::AddAddress { link: wire.clone(), address: "192.0.2.1/24".parse()? });
    let local = "192.0.2.1".parse()?;
    let vxlan = LinkKind::Vxlan(Vxlan { vni: 1, parent: wire, local, port: 8472, learning: false });
    plan.push(scale.place, Step::AddLink(Link { name: tunnel()?, kind: vxlan, mtu: None, mac: None }));
    plan.push(scale.place, SetLinkUp { link: tunnel()? });
    Ok(plan)
}

pub(super) fn tunnel() -> Result<IfName, Failure> {
    Ok(IfName::new("vxlan1")?)
}

pub(super) fn peers_of(scale: &Scale<'_>, family: Family) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for peer in 0..scale.size {
        let (dst, via): (IpNet, IpAddr) = match family {
            Family::Ipv4 => {
                let net = Ipv4Addr::from((10 << 24) + (peer << 8));
                (IpNet::new(net.into(), 24)?, net.into())
            }
            Family::Ipv6 => {
                let net = Ipv6Addr::from((0xfd00 << 112) + (u128::from(peer) << 64));
                (IpNet::new(net.into(), 64)?, net.into())
            }
        };
        let mac = Mac::from_id(9, peer);
        let remote = Ipv4Addr::from((198 << 24) + (18 << 16) + peer).into();
        plan.push(scale.place, Step::AddRoute(Route { onlink: true, ..Route::via(dst, via, tunnel()?) }));
        plan.push(scale.place, Step::AddNeighbour(Neighbour { dev: tunnel()?, ip: via, mac: Some(mac) }));
        plan.push(scale.place, Step::AddFdb(FdbEntry { dev: tunnel()?, mac, dst: remote }));
    }
    Ok(plan)
}

pub(super) fn shared(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..scale.size {
        let net = Ipv4Addr::from((10 << 24) + (number << 8));
        let route = Route::via(IpNet::new(net.into(), 24)?, net.into(), tunnel()?);
        let step = Step::AddRoute(Route { onlink: true, ..route });
        plan.push(scale.place, Step::Share(Box::new(step)));
    }
    Ok(plan)
}

/// The other node of a number, and its pods.
pub(super) fn peer(number: u32) -> Result<(IpNet, IpAddr), Failure> {
    let net = IpNet::new(Ipv4Addr::from((10 << 24) + (number << 8)).into(), 24)?;
    Ok((net, Ipv4Addr::from((198 << 24) + (18 << 16) + number).into()))
}

/// A device that takes its tunnels from routes.
pub(super) fn external(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    let kind = LinkKind::VxlanExternal { port: 8473 };
    plan.push(scale.place, Step::AddLink(Link { name: tunnel()?, kind, mtu: None, mac: None }));
    plan.push(scale.place, SetLinkUp { link: tunnel()? });
    Ok(plan)
}

pub(super) fn encapsulated(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..scale.size {
        let (dst, remote) = peer(number)?;
        let encap = Some(Encap { id: 1, remote });
        let route = Route { onlink: true, encap, ..Route::via(dst, dst.addr(), tunnel()?) };
        plan.push(scale.place, Step::ReplaceRoute(route));
    }
    Ok(plan)
}

pub(super) fn wireguard(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    let kind = LinkKind::WireGuard;
    plan.push(scale.place, Step::AddLink(Link { name: tunnel()?, kind, mtu: None, mac: None }));
    Ok(plan)
}

pub(super) fn wireguard_peers(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..scale.size {
        let (pods, node) = peer(number)?;
        let mut key = [1; 32];
        key[..4].copy_from_slice(&number.to_ne_bytes());
        let step = WireGuardPeer {
            dev: tunnel()?,
            key: PublicKey(key),
            endpoint: (node, 51820).into(),
            allowed: vec![pods],
            keepalive_s: 0,
        };
        plan.push(scale.place, Step::AddWireGuardPeer(step));
    }
    Ok(plan)
}

pub(super) fn nothing(_: &Scale<'_>) -> Result<Plan, Failure> {
    Ok(Plan::new())
}

/// Associations of both directions, and the policies that lead to them. One key for all: no packet is sent.
pub(super) fn ipsec_peers(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let key_file = scale.directory.join("key");
    EspKey::generate()?.keep(&key_file)?;
    let (own, here) =
        (IpNet::new(Ipv4Addr::new(172, 16, 0, 0).into(), 24)?, Ipv4Addr::new(192, 0, 2, 1).into());
    let mut plan = Plan::new();
    for number in 0..scale.size {
        let (pods, there) = peer(number)?;
        let out = EspTunnel { src: here, dst: there, reqid: 1 };
        let back = EspTunnel { src: there, dst: here, reqid: 1 };
        for tunnel in [out, back] {
            let state = XfrmState { tunnel, spi: (0x1000 + number).try_into()? };
            plan.push(scale.place, Step::AddXfrmState { state, key_file: key_file.clone() });
        }
        for (direction, src, dst, tunnel) in [
            (XfrmDirection::Out, own, pods, out),
            (XfrmDirection::In, pods, own, back),
            (XfrmDirection::Forward, pods, own, back),
        ] {
            plan.push(scale.place, Step::AddXfrmPolicy(XfrmPolicy { direction, src, dst, tunnel }));
        }
    }
    Ok(plan)
}
