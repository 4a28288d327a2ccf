//! DEL: what it takes back, and that nothing keeps it from succeeding.

use cni::{Command, Version};

use super::add::{NO_RANGES, ONE_ADDRESS};
use crate::answer::Added;
use crate::case::{Case, Demand, Kind};
use crate::outcome::{Judged, Stop};
use crate::scene::{Container, IFNAME, Scene};

const DEL: &str = "section 2, DEL";
const BEST_EFFORT: &str = "`DEL` command invocations are always considered best-effort - plugins should always complete a `DEL` action without error to the fullest extent possible, even if some resources or state are missing.";
const MULTIPLE: &str = "Plugins MUST accept multiple `DEL` calls for the same (`CNI_CONTAINERID`, `CNI_IFNAME`) pair, and return success if the interface in question, or any modifications added, are missing.";
const IPAM: &str = "For example, an IPAM plugin should generally release an IP allocation and return success even if the container network namespace no longer exists, unless that network namespace is critical for IPAM management.";
const OWN_RESOURCES: &str = "For another example, the `bridge` plugin should delegate the DEL action to the IPAM plugin and clean up its own resources even if the container network namespace and/or container network interface no longer exist.";

pub(super) const CASES: &[Case] = &[
    case(
        "del-interface",
        "DEL deletes the interface",
        "delete the interface defined by `CNI_IFNAME` inside the container at `CNI_NETNS`, or",
        Demand::Should,
        Kind::Interface,
        interface,
    ),
    case(
        "del-node",
        "after DEL the node is as before ADD",
        "undo any modifications applied in the plugin's `ADD` functionality",
        Demand::Should,
        Kind::Any,
        node,
    ),
    case("del-twice", "DEL succeeds a second time", MULTIPLE, Demand::Must, Kind::Any, twice),
    case(
        "del-never-added",
        "DEL succeeds for what was never added",
        MULTIPLE,
        Demand::Must,
        Kind::Any,
        never_added,
    ),
    case(
        "del-interface-gone",
        "DEL succeeds if the interface is gone",
        MULTIPLE,
        Demand::Must,
        Kind::Any,
        interface_gone,
    ),
    case(
        "del-no-result",
        "DEL succeeds without `prevResult`, and leaves the node as before",
        "Plugins should still return without error if `prevResult` is empty for a `DEL` command, however.",
        Demand::Should,
        Kind::Any,
        no_result,
    ),
    case(
        "del-netns-gone",
        "DEL succeeds if the namespace is gone, and leaves the node as before",
        OWN_RESOURCES,
        Demand::Should,
        Kind::Any,
        netns_gone,
    ),
    case(
        "del-netns-unset",
        "DEL succeeds without CNI_NETNS once the namespace is gone",
        BEST_EFFORT,
        Demand::Should,
        Kind::Any,
        netns_unset,
    ),
    case(
        "del-releases",
        "DEL releases the address",
        OWN_RESOURCES,
        Demand::Should,
        Kind::Interface,
        releases,
    ),
    case(
        "del-releases-netns-gone",
        "DEL releases the address if the namespace is gone",
        IPAM,
        Demand::Should,
        Kind::Interface,
        releases_netns_gone,
    ),
    case(
        "del-others",
        "DEL leaves the interface and the address of another container alone",
        "A CNI plugin, upon receiving a `DEL` command, should either",
        Demand::Should,
        Kind::Any,
        others,
    ),
];

const fn case(
    id: &'static str,
    title: &'static str,
    sentence: &'static str,
    demand: Demand,
    kind: Kind,
    judge: fn(&Scene<'_>) -> Judged,
) -> Case {
    Case { id, title, section: DEL, sentence, demand, since: Version::V0_3_0, kind, judge }
}

fn added(scene: &Scene<'_>, name: &str) -> Judged<(Container, Added)> {
    let container = scene.container(name)?;
    let added = scene.added(&container)?;
    Ok((container, added))
}

fn interface(scene: &Scene<'_>) -> Judged {
    let (container, added) = added(scene, "a")?;
    let answer = scene.ask(Command::Del, &container).previous(&added).send()?;
    answer.succeeded()?;
    container
        .link(IFNAME)?
        .map_or(Ok(()), |_| Err(answer.fault(format!("{IFNAME} is still in the container"))))
}

fn node(scene: &Scene<'_>) -> Judged {
    let before = scene.settled_node()?;
    let (container, added) = added(scene, "a")?;
    scene.deleted(&container, &added)?;
    scene.node()?.must_be(&before, "the node", "after DEL")
}

fn twice(scene: &Scene<'_>) -> Judged {
    let (container, added) = added(scene, "a")?;
    scene.deleted(&container, &added)?;
    scene.deleted(&container, &added)
}

fn never_added(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    let before = scene.node()?;
    scene.ask(Command::Del, &container).send()?.succeeded()?;
    scene.node()?.must_be(&before, "the node", "after a DEL of nothing")
}

fn interface_gone(scene: &Scene<'_>) -> Judged {
    let (container, added) = added(scene, "a")?;
    scene.delete_interface(&container)?;
    scene.deleted(&container, &added)
}

fn no_result(scene: &Scene<'_>) -> Judged {
    let before = scene.settled_node()?;
    let (container, _) = added(scene, "a")?;
    scene.ask(Command::Del, &container).send()?.succeeded()?;
    scene.node()?.must_be(&before, "the node", "after DEL")
}

fn netns_gone(scene: &Scene<'_>) -> Judged {
    let before = scene.settled_node()?;
    let (container, added) = added(scene, "a")?;
    scene.delete_namespace(&container)?;
    scene.deleted(&container, &added)?;
    scene.node_must_become(&before, "after DEL")
}

fn netns_unset(scene: &Scene<'_>) -> Judged {
    let before = scene.settled_node()?;
    let (container, added) = added(scene, "a")?;
    scene.delete_namespace(&container)?;
    scene.ask(Command::Del, &container).previous(&added).unset("CNI_NETNS").send()?.succeeded()?;
    scene.node_must_become(&before, "after DEL")
}

/// ADD of one container after the other in a subnet with one address.
fn in_turn(scene: &Scene<'_>, between: impl FnOnce(&Container, &Added) -> Judged) -> Judged {
    let conf = scene.subject.with_subnet(ONE_ADDRESS).ok_or_else(|| Stop::not_applicable(NO_RANGES))?;
    let (first, second) = (scene.container("a")?, scene.container("b")?);
    let added = Added::of(scene.ask_add(&first)?.conf(&conf).send()?)?;
    let full = scene.ask_add(&second)?.conf(&conf).send()?;
    full.failed("and the only address is taken")?;
    scene.ask(Command::Del, &second).conf(&conf).send()?.succeeded()?;
    between(&first, &added)?;
    scene.ask(Command::Del, &first).conf(&conf).previous(&added).send()?.succeeded()?;
    let third = scene.container("c")?;
    let again = Added::of(scene.ask_add(&third)?.conf(&conf).send()?)?;
    if again.addresses()? == added.addresses()? {
        return Ok(());
    }
    Err(again.answer.fault("the only address was given out as another one"))
}

fn releases(scene: &Scene<'_>) -> Judged {
    in_turn(scene, |_, _| Ok(()))
}

fn releases_netns_gone(scene: &Scene<'_>) -> Judged {
    in_turn(scene, |first, _| scene.delete_namespace(first))
}

fn others(scene: &Scene<'_>) -> Judged {
    let (one, other) = (added(scene, "a")?, added(scene, "b")?);
    let before = other.0.state()?;
    scene.deleted(&one.0, &one.1)?;
    other.0.state()?.must_be(&before, "the other container", "after DEL")?;
    let third = added(scene, "c")?;
    match third
        .1
        .addresses_in(&third.0)?
        .iter()
        .find(|address| other.1.addresses_in(&other.0).is_ok_and(|taken| taken.contains(address)))
    {
        None => Ok(()),
        Some(twice) => Err(third.1.answer.fault(format!("{twice} is another container's already"))),
    }
}
