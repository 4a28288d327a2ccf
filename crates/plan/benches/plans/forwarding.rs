//! Entries in the maps of programs: pods, tunnels, guarded interfaces, Services.

use std::net::{Ipv4Addr, SocketAddr};

use bpf::forward::TunnelEnd;
use bpf::services::Protocol;
use ipnet::IpNet;
use linux::{Mac, NetnsName};
use plan::forwarding::{
    Endpoint, Guard, Guarded, Programs, Service, ServiceAddress, ServiceEntry, ServicePrograms, Tunnel,
};
use plan::{Place, Plan, Step};

use super::cases::{link, links};
use super::peers::{external, peer, tunnel};
use super::{Failure, Scale};

/// The folder of a place's programs.
fn folder(scale: &Scale<'_>) -> Result<String, Failure> {
    Ok(scale.place.name().map(NetnsName::to_string).ok_or("a node has a name")?)
}

fn pods() -> Result<IpNet, Failure> {
    Ok("172.16.0.0/16".parse()?)
}

fn pod(number: u32) -> Ipv4Addr {
    Ipv4Addr::from((172 << 24) + (16 << 16) + 1 + number)
}

/// The programs of a node, with links for pods and a device for tunnels.
pub(super) fn programs(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = external(scale)?;
    plan.extend(links(scale)?);
    let step = Programs {
        node: folder(scale)?,
        wire: link(0)?,
        mtu: 1350,
        gateway: Ipv4Addr::new(169, 254, 1, 1),
        gateway_mac: Mac::from_id(2, 1),
        pods: vec![pods()?],
        cluster: vec![pods()?, "10.0.0.0/8".parse()?],
        tunnel: Some(TunnelEnd { local: "192.0.2.1".parse()?, vni: 1, port: 8473 }),
    };
    plan.push(scale.place, Step::LoadPrograms(step));
    Ok(plan)
}

pub(super) fn tunnels(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..scale.size {
        let (prefix, remote) = peer(number)?;
        let step = Tunnel { node: folder(scale)?, prefix, device: tunnel()?, remote };
        plan.push(scale.place, Step::AddTunnel(step));
    }
    Ok(plan)
}

pub(super) fn endpoints(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..scale.size {
        let (mac, addresses) = (Mac::from_id(7, number), vec![pod(number).into()]);
        let step = Endpoint { node: folder(scale)?, link: link(number)?, mac, addresses, queued: false };
        plan.push(scale.place, Step::AddEndpoint(step));
    }
    Ok(plan)
}

pub(super) fn guards(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = links(scale)?;
    plan.push(scale.place, Step::LoadGuard(Guard { node: folder(scale)? }));
    Ok(plan)
}

/// All interfaces are of one pod: a namespace for each would be measured too.
pub(super) fn guarded(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..scale.size {
        let (mac, addresses) = (Mac::from_id(7, number), vec![pod(number).into()]);
        let pod = scale.place.clone();
        let step = Guarded { node: folder(scale)?, link: link(number)?, pod, mac, addresses };
        plan.push(scale.place, Step::AddGuarded(step));
    }
    Ok(plan)
}

pub(super) fn services(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    plan.push(&Place::Host, Step::LoadServices(ServicePrograms { node: folder(scale)? }));
    Ok(plan)
}

/// Services of two backends each.
pub(super) fn services_of(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..scale.size {
        let address = Ipv4Addr::from((10 << 24) + (96 << 16) + number).into();
        let backends = [1, 2].map(|last| SocketAddr::from((Ipv4Addr::new(10, 244, 1, last), 8080)));
        let at = ServiceAddress { address, port: 80, protocol: Protocol::Tcp };
        let service = Service { at, affinity_s: 0, backends: backends.into() };
        plan.push(&Place::Host, Step::ReplaceService(ServiceEntry { node: folder(scale)?, service }));
    }
    Ok(plan)
}
