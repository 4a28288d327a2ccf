//! The result of ADD: its form.

use cni::Version;
use ipnet::IpNet;
use serde_json::Value;

use crate::answer::Added;
use crate::case::{Case, Demand, Kind};
use crate::outcome::{Judged, Stop};
use crate::scene::{IFNAME, Scene};

const SUCCESS: &str = "section 5, ADD Success";

pub(super) const CASES: &[Case] = &[
    case(
        "result-only",
        "ADD prints its result on standard output, and nothing else",
        "section 2, ADD",
        "If the CNI plugin is successful, it must output a [result structure](#Success) (see below) on standard out.",
        Kind::Any,
        only,
    ),
    case(
        "result-version",
        "ADD answers in each version that the plugin lists as asked",
        SUCCESS,
        "`cniVersion`: The same version supplied on input - the string \"1.1.0\"",
        Kind::Interface,
        version,
    ),
    Case {
        demand: Demand::Should,
        ..case(
            "result-sandbox",
            "the container's interface is listed with the value of CNI_NETNS",
            SUCCESS,
            "For interfaces created inside the container, this should be the value passed via `CNI_NETNS`.",
            Kind::Any,
            sandbox,
        )
    },
    case(
        "result-node-interfaces",
        "what ADD creates on the node is listed too",
        SUCCESS,
        "`interfaces`: An array of all interfaces created by the attachment, including any host-level interfaces:",
        Kind::Interface,
        node_interfaces,
    ),
    case(
        "result-ips",
        "addresses are in CIDR notation; those of the container refer to its interface",
        SUCCESS,
        "`interface` (uint): the index into the `interfaces` list for a [CNI Plugin Result](#result) indicating which interface this IP configuration should be applied to.",
        Kind::Any,
        ips,
    ),
    case(
        "result-routes",
        "routes have a destination in CIDR notation, and a next hop that is an address",
        SUCCESS,
        "`dst`: The destination of the route, in CIDR notation",
        Kind::Any,
        routes,
    ),
    case(
        "result-family",
        "addresses have their family in `version` before 1.0.0, and not since",
        "released versions",
        "Removed non-list configurations; removed `version` field of `interfaces` array",
        Kind::Interface,
        family,
    ),
];

const fn case(
    id: &'static str,
    title: &'static str,
    section: &'static str,
    sentence: &'static str,
    kind: Kind,
    judge: fn(&Scene<'_>) -> Judged,
) -> Case {
    Case { id, title, section, sentence, demand: Demand::Must, since: Version::V0_3_0, kind, judge }
}

fn only(scene: &Scene<'_>) -> Judged {
    scene.added(&scene.container("a")?).map(drop)
}

/// The versions that the plugin lists, of those that are known here.
fn listed(scene: &Scene<'_>) -> impl Iterator<Item = Version> {
    Version::ALL.into_iter().filter(|version| scene.speaks(version.as_str()))
}

fn added_in(scene: &Scene<'_>, version: Version) -> Judged<Added> {
    let container = scene.container(&format!("v{}", version.as_str()))?;
    Added::of(scene.ask_add(&container)?.version(version.as_str()).send()?)
}

fn version(scene: &Scene<'_>) -> Judged {
    for version in listed(scene) {
        let added = added_in(scene, version)?;
        let reported = &added.result["cniVersion"];
        if reported != version.as_str() {
            return Err(added
                .answer
                .fault(format!("it was asked in {version}, and the result says {reported}")));
        }
    }
    Ok(())
}

fn sandbox(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    let added = scene.added(&container)?;
    let interfaces = added.list("interfaces");
    let Some(interface) = interfaces
        .iter()
        .find(|one| one["name"] == IFNAME && one.get("sandbox").is_some_and(|sandbox| sandbox != ""))
    else {
        return Err(added.answer.fault(format!("`interfaces` has no {IFNAME} with a `sandbox`")));
    };
    if interface["sandbox"] == container.path().as_str() {
        return Ok(());
    }
    Err(added.answer.fault(format!(
        "`sandbox` is {}, and CNI_NETNS was {}",
        interface["sandbox"],
        container.path()
    )))
}

/// Of a second container: the first may make what containers share, and need not list it.
fn node_interfaces(scene: &Scene<'_>) -> Judged {
    scene.settled_node()?;
    let before = scene.node_links()?;
    let added = scene.added(&scene.container("a")?)?;
    let interfaces = added.list("interfaces");
    let listed = |name: &str| {
        interfaces
            .iter()
            .any(|one| one["name"] == name && one["sandbox"].as_str().unwrap_or_default().is_empty())
    };
    match scene.node_links()?.difference(&before).find(|name| !listed(name)) {
        None => Ok(()),
        Some(name) => Err(added.answer.fault(format!(
            "it created {name} on the node, which is not in `interfaces` as one of the node"
        ))),
    }
}

fn ips(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    let added = scene.added(&container)?;
    let found = container.addresses(IFNAME)?;
    let interfaces = added.list("interfaces");
    for (ip, address) in added.list("ips").iter().zip(added.addresses()?) {
        let index = ip["interface"].as_u64().and_then(|index| usize::try_from(index).ok());
        let interface = index.and_then(|index| interfaces.get(index));
        if interface.is_none() && !ip["interface"].is_null() {
            return Err(added.answer.fault(format!("{ip} refers to no interface of the list")));
        }
        let is_said = interface.is_some_and(|one| one["sandbox"] == container.path().as_str());
        // Others may be external to the container.
        if found.contains(&address) && !is_said {
            return Err(added.answer.fault(format!(
                "{IFNAME} has the address of {ip}, which refers to no interface of the container"
            )));
        }
        let gateway = ip.get("gateway").filter(|gateway| !gateway.is_null());
        if gateway.is_some_and(|gateway| !is_address(gateway)) {
            return Err(added.answer.fault(format!("{ip} has a gateway that is no address")));
        }
    }
    Ok(())
}

fn is_address(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<std::net::IpAddr>().is_ok())
}

fn routes(scene: &Scene<'_>) -> Judged {
    let added = scene.added(&scene.container("a")?)?;
    for route in added.list("routes") {
        if route["dst"].as_str().is_none_or(|text| text.parse::<IpNet>().is_err()) {
            return Err(added.answer.fault(format!("{route} has no `dst` in CIDR notation")));
        }
        if route.get("gw").is_some_and(|gw| !gw.is_null() && !is_address(gw)) {
            return Err(added.answer.fault(format!("{route} has a `gw` that is no address")));
        }
    }
    Ok(())
}

fn family(scene: &Scene<'_>) -> Judged {
    let mut seen = 0;
    for version in listed(scene) {
        let added = added_in(scene, version)?;
        for ip in added.list("ips") {
            let is_v6 = ip["address"].as_str().is_some_and(|text| text.contains(':'));
            let expected = match version < Version::V1_0_0 {
                true if is_v6 => Some("6"),
                true => Some("4"),
                false => None,
            };
            if ip.get("version").and_then(Value::as_str) != expected {
                return Err(added
                    .answer
                    .fault(format!("in {version}, {ip} has a `version` other than {expected:?}")));
            }
            seen += 1;
        }
    }
    if seen == 0 { Err(Stop::not_applicable("it gives containers no addresses")) } else { Ok(()) }
}
