//! ADD: what it makes, what it refuses, and what a failed one leaves.

use std::collections::BTreeSet;

use cni::{Command, Version};
use serde_json::{Value, json};

use crate::answer::Added;
use crate::case::{Case, Demand, Kind};
use crate::outcome::{Judged, Stop};
use crate::scene::{IFNAME, Scene};

const ADD: &str = "section 2, ADD";
/// A subnet with one address beside the gateway's.
pub(super) const ONE_ADDRESS: &str = "10.99.0.0/30";
/// Why a case does not apply where that cannot be configured.
pub(super) const NO_RANGES: &str = "its configuration has no `ipam.ranges` to make small";

pub(super) const CASES: &[Case] = &[
    Case {
        id: "add-interface",
        title: "ADD creates the interface under the name that was asked for",
        section: ADD,
        sentence: "create the interface defined by `CNI_IFNAME` inside the container at `CNI_NETNS`, or",
        demand: Demand::Should,
        since: Version::V0_3_0,
        kind: Kind::Interface,
        judge: interface,
    },
    Case {
        id: "add-name-taken",
        title: "ADD fails if the container has an interface of that name, and leaves it alone",
        section: ADD,
        sentence: "If an interface of the requested name already exists in the container, the CNI plugin MUST return with an error.",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Interface,
        judge: name_taken,
    },
    Case {
        id: "add-distinct",
        title: "two containers get different addresses",
        section: "overview",
        sentence: "_network_ refers to a group of endpoints that are uniquely addressable that can communicate amongst each other.",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Any,
        judge: distinct,
    },
    Case {
        id: "add-two-interfaces",
        title: "a second interface in the same network is refused, or goes without the first",
        section: ADD,
        sentence: "This implies that a given container ID may be added to a specific network more than once only if each addition is done with a different interface name.",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Interface,
        judge: two_interfaces,
    },
    Case {
        id: "add-previous-result",
        title: "ADD with a `prevResult` has it in its own result",
        section: ADD,
        sentence: "If the plugin was supplied a `prevResult` as part of its input configuration, it MUST handle `prevResult` by either passing it through, or modifying it appropriately.",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Any,
        judge: previous_result,
    },
    Case {
        id: "add-failed-then-del",
        title: "after a failed ADD and its DEL the node is as before, and the address is free",
        section: "section 3, Lifecycle & Ordering",
        sentence: "A _delete_ must still be executed even if the _add_ fails.",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Interface,
        judge: failed_then_del,
    },
    Case {
        id: "add-delegate-missing",
        title: "ADD fails if the plugin for addresses is in no directory of CNI_PATH",
        section: "section 4, Delegated Plugin protocol",
        sentence: "The executable is searched for in a predefined list of paths, indicated to the CNI plugin via `CNI_PATH`.",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Interface,
        judge: delegate_missing,
    },
];

fn interface(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    let answer = scene.ask_add(&container)?.set("CNI_IFNAME", "net-7.x_y").send()?;
    answer.result()?;
    match container.link("net-7.x_y")? {
        Some(link) if link.up => Ok(()),
        Some(_) => Err(answer.fault("the interface is down")),
        None => Err(answer.fault("there is no interface net-7.x_y in the container")),
    }
}

fn name_taken(scene: &Scene<'_>) -> Judged {
    let before_node = scene.settled_node()?;
    let container = scene.container("a")?;
    scene.occupy(&container)?;
    let before = container.state()?;
    let answer = scene.ask_add(&container)?.send()?;
    answer.failed(&format!("and the container has an interface {IFNAME} already"))?;
    container.state()?.must_be(&before, "the container", "after the refusal")?;
    scene.node()?.must_be(&before_node, "the node", "after the refusal")
}

fn distinct(scene: &Scene<'_>) -> Judged {
    let mut seen = BTreeSet::new();
    for name in ["a", "b", "c"] {
        let container = scene.container(name)?;
        let added = scene.added(&container)?;
        let addresses = added.addresses_in(&container)?;
        if addresses.is_empty() {
            return Err(Stop::not_applicable("it gives containers no addresses"));
        }
        for address in addresses {
            if !seen.insert(address.addr()) {
                return Err(added.answer.fault(format!("{} is another container's already", address.addr())));
            }
        }
    }
    Ok(())
}

fn two_interfaces(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    let first = scene.added(&container)?;
    let before = container.state()?;
    let answer = scene.ask_add(&container)?.set("CNI_IFNAME", "net1").send()?;
    if !answer.exchange.ended.is_success() {
        scene.ask(Command::Del, &container).set("CNI_IFNAME", "net1").send()?.succeeded()?;
        container.state()?.must_be(&before, "the container", "after a refused second ADD and its DEL")?;
        let why = format!("it refuses a second interface in one network: {}", answer.reason());
        return Err(Stop::not_applicable(why));
    }
    let second = Added::of(answer)?;
    let own: BTreeSet<_> = first.addresses_in(&container)?.into_iter().collect();
    if second.addresses_in(&container)?.iter().any(|address| own.contains(address)) {
        return Err(second.answer.fault("both interfaces have one address"));
    }
    let answer = scene.ask(Command::Del, &container).previous(&second).set("CNI_IFNAME", "net1").send()?;
    answer.succeeded()?;
    if container.link("net1")?.is_some() {
        return Err(answer.fault("net1 is still there after its DEL"));
    }
    if container.link(IFNAME)?.is_none() || container.addresses(IFNAME)? != own {
        return Err(answer.fault(format!("the DEL of net1 took {IFNAME} or its address")));
    }
    Ok(())
}

/// A plugin that is called alone gets the result of one that does not exist, with an interface of the node. One behind
/// others may be there to take addresses and routes away.
fn previous_result(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    let mut ask = scene.ask_add(&container)?;
    let is_alone = scene.subject.before.is_empty();
    if is_alone {
        ask = ask.key("prevResult", result_before(scene.version));
    }
    let answer = ask.send()?;
    let result = answer.result()?;
    let sent: Value = serde_json::from_str(&answer.exchange.input).unwrap_or_default();
    let before = &sent["prevResult"];
    let keys = [("interfaces", "name"), ("ips", "address"), ("routes", "dst")];
    for (list, key) in keys.into_iter().take(if is_alone { keys.len() } else { 1 }) {
        let has = |one: &Value| {
            result[list].as_array().is_some_and(|found| found.iter().any(|other| other[key] == one[key]))
        };
        let lost = before[list].as_array().and_then(|sent| sent.iter().find(|one| !has(one)));
        if let Some(lost) = lost {
            return Err(answer.fault(format!("`{list}` of `prevResult` has {lost}, and the result does not")));
        }
    }
    let says = |result: &Value| result["dns"].as_object().is_some_and(|dns| !dns.is_empty());
    if is_alone && says(before) && !says(&result) {
        return Err(
            answer.fault(format!("`dns` of `prevResult` is {}, and the result has none", before["dns"]))
        );
    }
    Ok(())
}

/// Before 1.0.0 the family stands beside an address.
fn result_before(version: Version) -> Value {
    let mut ip = json!({ "address": "198.51.100.7/32" });
    if version < Version::V1_0_0 {
        ip["version"] = "4".into();
    }
    json!({
        "cniVersion": version.as_str(), "interfaces": [{ "name": "before0" }], "ips": [ip],
        "routes": [{ "dst": "198.51.100.0/24" }], "dns": { "nameservers": ["192.0.2.53"] },
    })
}

fn failed_then_del(scene: &Scene<'_>) -> Judged {
    let conf = scene.subject.with_subnet(ONE_ADDRESS).unwrap_or_else(|| scene.subject.conf.clone());
    let (first, container) = (scene.container("first")?, scene.container("a")?);
    let added = Added::of(scene.ask_add(&first)?.conf(&conf).send()?)?;
    scene.ask(Command::Del, &first).conf(&conf).previous(&added).send()?.succeeded()?;
    let before = scene.node()?;
    scene.occupy(&container)?;
    let answer = scene.ask_add(&container)?.conf(&conf).send()?;
    answer.failed(&format!("and the container has an interface {IFNAME} already"))?;
    scene.ask(Command::Del, &container).conf(&conf).send()?.succeeded()?;
    scene.node()?.must_be(&before, "the node", "after the failed ADD and its DEL")?;
    let other = scene.container("b")?;
    scene.ask_add(&other)?.conf(&conf).send()?.result().map(drop)
}

fn delegate_missing(scene: &Scene<'_>) -> Judged {
    let Some(delegate) = scene.subject.delegate() else {
        return Err(Stop::not_applicable("it calls no other plugin for addresses"));
    };
    let before = scene.settled_node()?;
    let container = scene.container("a")?;
    let answer = scene.ask_add(&container)?.set("CNI_PATH", "/nonexistent").send()?;
    answer.failed(&format!("and {delegate} is not in /nonexistent"))?;
    scene.ask(Command::Del, &container).send()?.succeeded()?;
    scene.node()?.must_be(&before, "the node", "after the failed ADD and its DEL")
}
