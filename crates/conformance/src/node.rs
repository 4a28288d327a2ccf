//! The node of a scene: a namespace with a link to the outside.

use ipnet::IpNet;
use linux::{IfName, Link, LinkKind, NetnsName, Route, VethPeer, sysctl};
use plan::{Place, Plan, SetLinkUp, SetSysctl, Step};

use crate::outcome::Judged;

/// The node's link to the outside, and its other end.
pub(crate) const LINK: &str = "eth0";
const FAR_LINK: &str = "eth0";
/// Addresses of the node and of the machine outside, from networks for documentation.
const UNDERLAY: [(&str, &str); 2] = [("192.0.2.1/24", "192.0.2.2/24"), ("2001:db8::1/64", "2001:db8::2/64")];

pub(crate) fn name() -> Judged<NetnsName> {
    Ok(NetnsName::new("node")?)
}

/// The node, a machine at the other end of its link, addresses of both families, and default routes.
pub(crate) fn plan() -> Judged<Plan> {
    let (node, far) = (Place::Netns(name()?), Place::Netns(NetnsName::new("far")?));
    let (link, far_link) = (IfName::new(LINK)?, IfName::new(FAR_LINK)?);
    let mut plan = Plan::new();
    plan.push(&node, Step::AddNetns);
    plan.push(&far, Step::AddNetns);
    let peer = VethPeer { name: far_link.clone(), netns: far.netns(), mtu: None, mac: None };
    plan.push(
        &node,
        Step::AddLink(Link { name: link.clone(), kind: LinkKind::Veth { peer }, mtu: None, mac: None }),
    );
    let families = if linux::features::has_ipv6() { 2 } else { 1 };
    for (place, link) in [(&node, &link), (&far, &far_link)] {
        if families == 2 {
            // Without this a link-local address is tentative for a second or two.
            let key = sysctl::Key::new(format!("net/ipv6/conf/{link}/accept_dad"))?;
            plan.push(place, SetSysctl { key, value: "0".to_owned() });
        }
        plan.push(place, SetLinkUp { link: link.clone() });
    }
    for (near, other) in &UNDERLAY[..families] {
        let [near, other] =
            [near, other].map(|text| text.parse::<IpNet>().expect("constant addresses are sound"));
        plan.push(&node, Step::AddAddress { link: link.clone(), address: near });
        plan.push(&far, Step::AddAddress { link: far_link.clone(), address: other });
        let everything = if near.addr().is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        let everything = everything.parse().expect("constant prefixes are sound");
        plan.push(&node, Step::AddRoute(Route::via(everything, other.addr(), link.clone())));
    }
    Ok(plan)
}
