//! GC: what it removes, and what it keeps.

use cni::{Command, Version};
use serde_json::{Value, json};

use super::add::{NO_RANGES, ONE_ADDRESS};
use crate::answer::Added;
use crate::ask::Ask;
use crate::case::{Case, Demand, Kind};
use crate::outcome::{Judged, Stop};
use crate::scene::{Container, IFNAME, Scene};

const GC: &str = "section 2, GC";
const REMOVE: &str = "A plugin SHOULD remove as many stale resources as possible. For example, a plugin should remove any IPAM reservations associated with attachments not in the provided list.";
const KEPT: &str = "`cni.dev/valid-attachments` (array of objects): The list of **still valid** attachments to this network:";
const COMPLETE: &str = "Plugins should generally complete a `GC` action without error.";

pub(super) const CASES: &[Case] = &[
    case(
        "gc-releases",
        "GC releases the address of what is not listed",
        REMOVE,
        Demand::Should,
        Kind::Interface,
        releases,
    ),
    case("gc-keeps", "GC leaves what is listed alone", KEPT, Demand::Must, Kind::Interface, keeps),
    case(
        "gc-twice",
        "GC succeeds a second time, and where nothing was ever added",
        COMPLETE,
        Demand::Should,
        Kind::Any,
        twice,
    ),
    case(
        "gc-null",
        "GC takes an empty list that is written as `null`, as libcni does",
        COMPLETE,
        Demand::Should,
        Kind::Any,
        null,
    ),
    case(
        "gc-delegate",
        "GC fails if the plugin for addresses is in no directory of CNI_PATH",
        "Plugins MUST, additionally, forward any GC calls to delegated plugins they are configured to use (see section 4).",
        Demand::Must,
        Kind::Interface,
        delegate,
    ),
    case(
        "gc-silent",
        "GC that succeeds prints nothing",
        "No output on success, [\"error\" result structure](#Error) on error.",
        Demand::Must,
        Kind::Any,
        silent,
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
    Case { id, title, section: GC, sentence, demand, since: Version::V1_1_0, kind, judge }
}

fn ask<'s>(scene: &'s Scene<'s>, valid: &Value) -> Ask<'s> {
    Ask::of_network(scene, Command::Gc).key("cni.dev/valid-attachments", valid.clone())
}

/// The attachment of a container, as a runtime lists it.
fn listed(container: &Container) -> Value {
    json!([{ "containerID": container.name.to_string(), "ifname": IFNAME }])
}

fn releases(scene: &Scene<'_>) -> Judged {
    let conf = scene.subject.with_subnet(ONE_ADDRESS).ok_or_else(|| Stop::not_applicable(NO_RANGES))?;
    let (lost, next) = (scene.container("a")?, scene.container("b")?);
    let added = Added::of(scene.ask_add(&lost)?.conf(&conf).send()?)?;
    scene.delete_namespace(&lost)?;
    let collect = Ask::of_network(scene, Command::Gc).conf(&conf).key("cni.dev/valid-attachments", json!([]));
    collect.send()?.succeeded()?;
    let again = Added::of(scene.ask_add(&next)?.conf(&conf).send()?)?;
    if again.addresses()? == added.addresses()? {
        return Ok(());
    }
    Err(again.answer.fault("the only address was given out as another one"))
}

fn keeps(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    let added = scene.added(&container)?;
    let before = (scene.node()?, container.state()?);
    ask(scene, &listed(&container)).send()?.succeeded()?;
    scene.node()?.must_be(&before.0, "the node", "after GC")?;
    container.state()?.must_be(&before.1, "the listed container", "after GC")?;
    scene.ask(Command::Check, &container).previous(&added).send()?.succeeded()?;
    let next = scene.container("b")?;
    let other = scene.added(&next)?;
    let taken = added.addresses_in(&container)?;
    match other.addresses_in(&next)?.iter().find(|address| taken.contains(address)) {
        None => Ok(()),
        Some(twice) => Err(other.answer.fault(format!("{twice} is the listed container's"))),
    }
}

fn twice(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    ask(scene, &json!([])).send()?.succeeded()?;
    scene.added(&container)?;
    scene.delete_namespace(&container)?;
    for _ in 0..2 {
        ask(scene, &json!([])).send()?.succeeded()?;
    }
    Ok(())
}

fn null(scene: &Scene<'_>) -> Judged {
    scene.added(&scene.container("a")?)?;
    ask(scene, &Value::Null).send()?.succeeded()
}

fn delegate(scene: &Scene<'_>) -> Judged {
    let Some(delegate) = scene.subject.delegate() else {
        return Err(Stop::not_applicable("it calls no other plugin for addresses"));
    };
    let answer = ask(scene, &json!([])).set("CNI_PATH", "/nonexistent").send()?;
    answer.failed(&format!("and {delegate} is not in /nonexistent"))
}

fn silent(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    scene.added(&container)?;
    ask(scene, &listed(&container)).send()?.silent()
}
