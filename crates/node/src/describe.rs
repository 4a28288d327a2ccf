//! What a plan made of a container, as the kernel has it now.

use std::net::IpAddr;

use cni::{Attached, AttachedAddress, AttachedRoute, Attachment, Failure, Interface};
use ipam::Reserved;
use linux::{IfName, LinkKind, Route};
use plan::{Kernel, Place, Plan, Step};

use crate::failures::{changed, invalid_call, refused};

/// The interfaces at both ends, a link in the container that is for its interface, the addresses and the routes.
///
/// # Errors
/// A link is gone already, or the kernel does not answer.
pub(crate) fn describe(
    plan: &Plan,
    reserved: &[Reserved],
    attachment: &Attachment,
    place: &Place,
    kernel: &mut Kernel,
) -> Result<Attached, Failure> {
    let mut attached = Attached::default();
    let node_end = plan.steps.iter().find_map(|placed| match &placed.step {
        Step::AddLink(link) if matches!(link.kind, LinkKind::Veth { .. } | LinkKind::Netkit { .. }) => {
            Some(&link.name)
        }
        _ => None,
    });
    if let Some(name) = node_end {
        attached.interfaces.push(interface(kernel, &Place::Host, name, None)?);
    }
    let inside = IfName::new(&attachment.ifname).map_err(|error| invalid_call(error.to_string()))?;
    attached.interfaces.push(interface(kernel, place, &inside, attachment.netns.clone())?);
    let index = attached.interfaces.len() - 1;
    let mut hops: Vec<IpAddr> = Vec::new();
    for placed in plan.steps.iter().filter(|placed| placed.place != Place::Host) {
        match &placed.step {
            Step::AddAddress { address, .. }
                if reserved.iter().any(|one| one.address.addr() == address.addr()) =>
            {
                let ip = AttachedAddress { address: *address, gateway: None, interface: index };
                attached.ips.push(ip);
            }
            // It holds back what the interface receives. The addresses are on the interface, which comes before it.
            Step::AddLink(link) if link.kind == LinkKind::Ifb => {
                let helper = interface(kernel, &placed.place, &link.name, attachment.netns.clone())?;
                attached.interfaces.push(helper);
            }
            Step::AddRoute(route) => {
                // A route of the configuration may go by another neighbour than the gateway.
                let is_gateway =
                    |via: &IpAddr| route.onlink || reserved.iter().any(|one| one.gateway == *via);
                hops.extend(route.via.filter(is_gateway));
                let Route { dst, via: gw, mtu, metric: priority, .. } = route.clone();
                attached.routes.push(AttachedRoute { dst, gw, mtu, priority });
            }
            _ => {}
        }
    }
    for ip in &mut attached.ips {
        ip.gateway = hops.iter().copied().find(|hop| hop.is_ipv4() == ip.address.addr().is_ipv4());
    }
    Ok(attached)
}

fn interface(
    kernel: &mut Kernel,
    place: &Place,
    name: &IfName,
    sandbox: Option<String>,
) -> Result<Interface, Failure> {
    let link = kernel.link(place, name).map_err(|error| refused(&error))?;
    let link = link.ok_or_else(|| changed(format!("link {name} is gone already")))?;
    let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
    Ok(Interface { name: name.to_string(), mac, mtu: link.mtu, sandbox })
}
