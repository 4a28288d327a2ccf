//! CHECK: when it is content, and what it must notice.

use cni::{Command, Version};
use linux::netlink::RouteInfo;

use crate::answer::Added;
use crate::case::{Case, Demand, Kind};
use crate::outcome::{Judged, Stop};
use crate::scene::{Container, IFNAME, Scene};

const CHECK: &str = "section 2, CHECK";
/// What CHECK is to notice.
const MISSING: &str = "The plugin should return an error if a resource included in the CNI Result type (interface, address or route) was created by the plugin, and is listed in `prevResult`, but is missing or in an invalid state.";

pub(super) const CASES: &[Case] = &[
    case(
        "check-after-add",
        "CHECK right after ADD succeeds",
        "The plugin must handle `CHECK` being called immediately after an `ADD`, and therefore should allow a reasonable convergence delay for any asynchronous resources.",
        Demand::Must,
        Kind::Any,
        after_add,
    ),
    Case {
        section: "appendix, Check example",
        ..case(
            "check-silent",
            "CHECK that succeeds prints nothing",
            "Assuming the `bridge` plugin is satisfied, it produces no output on standard out and exits with a 0 return code.",
            Demand::Should,
            Kind::Any,
            silent,
        )
    },
    case(
        "check-interface-gone",
        "CHECK fails if the interface is gone",
        MISSING,
        Demand::Should,
        Kind::Interface,
        interface_gone,
    ),
    case(
        "check-address-gone",
        "CHECK fails if an address is gone",
        MISSING,
        Demand::Should,
        Kind::Interface,
        address_gone,
    ),
    case(
        "check-route-gone",
        "CHECK fails if a route is gone",
        MISSING,
        Demand::Should,
        Kind::Interface,
        route_gone,
    ),
    case(
        "check-other-route",
        "CHECK succeeds if a plugin behind it has added a route, or taken one away",
        "The plugin must allow for a later chained plugin to have modified networking resources, e.g. routes, on `ADD`.",
        Demand::Must,
        Kind::Any,
        other_route,
    ),
    case(
        "check-no-result",
        "CHECK without `prevResult` fails",
        "The plugin must consult the `prevResult` to determine the expected interfaces and addresses.",
        Demand::Must,
        Kind::Any,
        no_result,
    ),
    case(
        "check-reservation-gone",
        "CHECK fails if the reservation of an address is gone",
        "IP reservations",
        Demand::Should,
        Kind::Interface,
        reservation_gone,
    ),
    Case {
        section: "released versions",
        ..case(
            "check-too-old",
            "CHECK in a version before 0.4.0 is refused",
            "Introduce the CHECK command and passing prevResult on DEL",
            Demand::Must,
            Kind::Interface,
            too_old,
        )
    },
];

const fn case(
    id: &'static str,
    title: &'static str,
    sentence: &'static str,
    demand: Demand,
    kind: Kind,
    judge: fn(&Scene<'_>) -> Judged,
) -> Case {
    Case { id, title, section: CHECK, sentence, demand, since: Version::V0_4_0, kind, judge }
}

fn added(scene: &Scene<'_>) -> Judged<(Container, Added)> {
    let container = scene.container("a")?;
    let added = scene.added(&container)?;
    Ok((container, added))
}

fn after_add(scene: &Scene<'_>) -> Judged {
    let (container, added) = added(scene)?;
    scene.ask(Command::Check, &container).previous(&added).send()?.succeeded()
}

fn silent(scene: &Scene<'_>) -> Judged {
    let (container, added) = added(scene)?;
    scene.ask(Command::Check, &container).previous(&added).send()?.silent()
}

/// CHECK is content before something is broken, and not afterwards.
fn notices(
    scene: &Scene<'_>,
    container: &Container,
    added: &Added,
    broken: &str,
    damage: impl FnOnce() -> Judged,
) -> Judged {
    let check = scene.ask(Command::Check, container).previous(added);
    check.clone().send()?.succeeded()?;
    damage()?;
    check.send()?.failed(&format!("and {broken}"))
}

fn interface_gone(scene: &Scene<'_>) -> Judged {
    let (container, added) = added(scene)?;
    notices(scene, &container, &added, &format!("{IFNAME} is gone"), || scene.delete_interface(&container))
}

fn address_gone(scene: &Scene<'_>) -> Judged {
    let (container, added) = added(scene)?;
    let Some(address) = added.addresses_in(&container)?.into_iter().next() else {
        return Err(Stop::not_applicable("it gives containers no addresses"));
    };
    notices(scene, &container, &added, &format!("{address} is gone"), || {
        scene.delete_address(&container, &address)
    })
}

/// A route of the result; the kernel's own routes to subnets go with the addresses.
fn route_gone(scene: &Scene<'_>) -> Judged {
    let (container, added) = added(scene)?;
    let Some(route) = listed_route(&container, &added)? else {
        return Err(Stop::not_applicable("its result has no routes"));
    };
    notices(scene, &container, &added, &format!("the route {} is gone", route.dst), || {
        scene.delete_route(&container, &route)
    })
}

/// The first route of the result that the container has.
fn listed_route(container: &Container, added: &Added) -> Judged<Option<RouteInfo>> {
    let routes = container.routes()?;
    let listed = added.list("routes");
    let found = listed
        .iter()
        .filter_map(|route| route["dst"].as_str())
        .find_map(|dst| routes.iter().find(|route| route.dst.to_string() == dst));
    Ok(found.cloned())
}

/// What the plugin behind it takes away is not in the result either.
fn other_route(scene: &Scene<'_>) -> Judged {
    let (container, mut added) = added(scene)?;
    scene.add_route(&container, "198.51.100.0/24")?;
    scene.ask(Command::Check, &container).previous(&added).send()?.succeeded()?;
    let Some(route) = listed_route(&container, &added)? else { return Ok(()) };
    scene.delete_route(&container, &route)?;
    let mut routes = added.list("routes");
    routes.retain(|listed| listed["dst"].as_str() != Some(&route.dst.to_string()));
    added.result["routes"] = routes.into();
    scene.ask(Command::Check, &container).previous(&added).send()?.succeeded()
}

fn no_result(scene: &Scene<'_>) -> Judged {
    let (container, _) = added(scene)?;
    scene.ask(Command::Check, &container).send()?.failed("and has nothing to compare with")
}

/// Where the addresses are kept in the files of host-local, which are called as the addresses.
fn reservation_gone(scene: &Scene<'_>) -> Judged {
    let (container, added) = added(scene)?;
    let directory = format!("/var/lib/cni/networks/{}", scene.subject.network);
    let files = added.addresses()?.into_iter().map(|address| format!("{directory}/{}", address.addr()));
    let files: Vec<String> = files.filter(|file| std::fs::exists(file).unwrap_or(false)).collect();
    let Some(file) = files.into_iter().next() else {
        return Err(Stop::not_applicable("it does not keep addresses in the files of host-local"));
    };
    notices(scene, &container, &added, &format!("{file} is gone"), || {
        std::fs::remove_file(&file).map_err(|error| Stop::undecided(&format!("remove {file}: {error}")))?;
        scene.transcript().command(format!("rm {file}"));
        Ok(())
    })
}

fn too_old(scene: &Scene<'_>) -> Judged {
    let Some(old) = ["0.3.1", "0.3.0"].into_iter().find(|version| scene.speaks(version)) else {
        return Err(Stop::not_applicable("it speaks no version before 0.4.0"));
    };
    let container = scene.container("a")?;
    let added = Added::of(scene.ask_add(&container)?.version(old).send()?)?;
    let answer = scene.ask(Command::Check, &container).previous(&added).version(old).send()?;
    answer.refused(&format!("and {old} has no such command"))?.code(1, "an incompatible version").map(drop)
}
