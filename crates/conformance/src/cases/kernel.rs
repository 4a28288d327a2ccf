//! Whether the result of ADD is what the kernel has.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cni::Version;
use ipnet::IpNet;
use serde_json::Value;

use crate::answer::Added;
use crate::case::{Case, Demand, Kind};
use crate::outcome::{Judged, Stop};
use crate::scene::{Container, IFNAME, Scene};

const SUCCESS: &str = "section 5, ADD Success";

pub(super) const CASES: &[Case] = &[
    Case {
        id: "kernel-addresses",
        title: "the interface has the addresses that the result puts on it, and no others",
        section: SUCCESS,
        sentence: "`ips`: IPs assigned by this attachment. Plugins may include IPs assigned external to the container.",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Any,
        judge: addresses,
    },
    Case {
        id: "kernel-routes",
        title: "the routes of the result are in the container, by the next hop that it says",
        section: SUCCESS,
        sentence: "`gw`: The next hop address. If unset, a value in `gateway` in the `ips` array may be used.",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Any,
        judge: routes,
    },
    Case {
        id: "kernel-mac",
        title: "the container's interfaces have the hardware address that the result says",
        section: SUCCESS,
        sentence: "`mac` (string): The hardware address of the interface (if applicable).",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Any,
        judge: mac,
    },
    Case {
        id: "kernel-mtu",
        title: "the container's interfaces have the MTU that the result says",
        section: SUCCESS,
        sentence: "`mtu`: (uint) The MTU of the interface (if applicable).",
        demand: Demand::Must,
        since: Version::V1_1_0,
        kind: Kind::Any,
        judge: mtu,
    },
];

fn added(scene: &Scene<'_>) -> Judged<(Container, Added)> {
    let container = scene.container("a")?;
    let added = scene.added(&container)?;
    Ok((container, added))
}

fn addresses(scene: &Scene<'_>) -> Judged {
    let (container, added) = added(scene)?;
    let found = container.addresses(IFNAME)?;
    if let Some(absent) = added.addresses_in(&container)?.iter().find(|address| !found.contains(address)) {
        return Err(added.answer.fault(format!("the result has {absent}, and {IFNAME} has {found:?}")));
    }
    let reported: BTreeSet<IpNet> = added.addresses()?.into_iter().collect();
    match found.difference(&reported).next() {
        None => Ok(()),
        Some(unsaid) => Err(added.answer.fault(format!("{IFNAME} has {unsaid}, which is not in the result"))),
    }
}

fn routes(scene: &Scene<'_>) -> Judged {
    let (container, added) = added(scene)?;
    let found = container.routes()?;
    let gateways: Vec<IpAddr> =
        added.list("ips").iter().filter_map(|ip| ip["gateway"].as_str()?.parse().ok()).collect();
    for route in added.list("routes") {
        let Some(dst) = route["dst"].as_str().and_then(|text| text.parse::<IpNet>().ok()) else { continue };
        let candidates: Vec<_> = found.iter().filter(|info| info.dst == dst.trunc()).collect();
        if candidates.is_empty() {
            return Err(added.answer.fault(format!("the container has no route {dst}")));
        }
        let gw: Option<IpAddr> = route.get("gw").and_then(Value::as_str).and_then(|text| text.parse().ok());
        let is_said = |via: Option<IpAddr>| match gw {
            Some(gw) => via == Some(gw),
            None => via.is_none_or(|via| gateways.contains(&via)),
        };
        if !candidates.iter().any(|info| info.next_hops.iter().any(|hop| is_said(hop.via))) {
            let hops: Vec<_> =
                candidates.iter().flat_map(|info| &info.next_hops).map(|hop| hop.via).collect();
            return Err(added.answer.fault(format!("{route} goes by {hops:?} in the container")));
        }
    }
    Ok(())
}

fn mac(scene: &Scene<'_>) -> Judged {
    each_interface(scene, "mac", |link| link.mac.map(|mac| Value::from(mac.to_string())))
}

fn mtu(scene: &Scene<'_>) -> Judged {
    each_interface(scene, "mtu", |link| Some(Value::from(link.mtu)))
}

/// Compares a value of the container's interfaces with the kernel's. One that is not said need not be applicable,
/// unless it is said of none.
fn each_interface(
    scene: &Scene<'_>,
    key: &str,
    found: impl Fn(&linux::netlink::LinkInfo) -> Option<Value>,
) -> Judged {
    let (container, added) = added(scene)?;
    let interfaces = added.list("interfaces");
    let own = interfaces.iter().filter(|one| one["sandbox"] == container.path().as_str());
    let mut reported = 0;
    for interface in own {
        let name = interface["name"].as_str().unwrap_or_default();
        let Some(link) = container.link(name)? else {
            return Err(added.answer.fault(format!("the container has no interface {name:?}")));
        };
        let Some(value) = interface.get(key).filter(|value| !value.is_null()) else { continue };
        reported += 1;
        if found(&link).is_some_and(|found| found != *value) {
            let found = found(&link).unwrap_or_default();
            return Err(added
                .answer
                .fault(format!("`{key}` of {name} is {value}, and the kernel has {found}")));
        }
    }
    match reported {
        0 if interfaces.is_empty() => Err(Stop::not_applicable("its result has no interfaces")),
        0 => Err(added.answer.fault(format!("no interface of the container has `{key}`"))),
        _ => Ok(()),
    }
}
