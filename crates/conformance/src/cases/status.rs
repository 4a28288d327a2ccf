//! STATUS: whether it says that ADD could be done.

use std::path::PathBuf;

use cni::{Command, Plugin, Version};

use super::add::{NO_RANGES, ONE_ADDRESS};
use crate::answer::Answer;
use crate::ask::Ask;
use crate::case::{Case, Demand, Kind};
use crate::outcome::{Judged, Stop};
use crate::scene::Scene;

const STATUS: &str = "section 2, STATUS";

pub(super) const CASES: &[Case] = &[
    case(
        "status-ready",
        "STATUS succeeds if ADD can be done",
        "A plugin must exit with a zero (success) return code if the plugin is ready to service ADD requests.",
        Demand::Must,
        ready,
    ),
    case(
        "status-exhausted",
        "STATUS fails with code 50 or 51 if no address is left",
        "Likewise, if a plugin has a limited number of resources (e.g. IP addresses, hardware queues), it should return an error if those resources are exhausted and no new `ADD` requests can be serviced.",
        Demand::Should,
        exhausted,
    ),
    case(
        "status-delegate",
        "STATUS fails if the plugin for addresses is in no directory of CNI_PATH",
        "If a plugin relies on a delegated plugin (e.g. IPAM) to service `ADD` requests, it must also execute a `STATUS` request to that plugin when it receives a `STATUS` request for itself.",
        Demand::Must,
        delegate,
    ),
];

const fn case(
    id: &'static str,
    title: &'static str,
    sentence: &'static str,
    demand: Demand,
    judge: fn(&Scene<'_>) -> Judged,
) -> Case {
    Case {
        id,
        title,
        section: STATUS,
        sentence,
        demand,
        since: Version::V1_1_0,
        kind: Kind::Interface,
        judge,
    }
}

fn ready(scene: &Scene<'_>) -> Judged {
    Ask::of_network(scene, Command::Status).send()?.succeeded()?;
    scene.added(&scene.container("a")?)?;
    Ask::of_network(scene, Command::Status).send()?.succeeded()
}

/// A plugin that calls another one for addresses passes on what that one says, so it is judged only where that one says
/// that none is left.
fn exhausted(scene: &Scene<'_>) -> Judged {
    let conf = scene.subject.with_subnet(ONE_ADDRESS).ok_or_else(|| Stop::not_applicable(NO_RANGES))?;
    let container = scene.container("a")?;
    scene.ask_add(&container)?.conf(&conf).send()?.result()?;
    let ask = Ask::of_network(scene, Command::Status).conf(&conf);
    if let Some(delegate) = scene.subject.delegate() {
        let answer = ask_delegate(scene, &ask, delegate)?;
        if answer.exchange.ended.is_success() {
            let why =
                format!("addresses are those of {delegate}, whose own STATUS succeeds though none is left");
            return Err(Stop::not_applicable(why));
        }
        return ask.send()?.failed(&format!("and the STATUS of {delegate} failed"));
    }
    let refusal = ask.send()?.refused("and no address is left")?;
    match refusal.object["code"].as_u64() {
        Some(50 | 51) => Ok(()),
        _ => Err(refusal.fault(format!(
            "the code is {}, and 50 or 51 mean that it is not available",
            refusal.object["code"]
        ))),
    }
}

fn ask_delegate(scene: &Scene<'_>, ask: &Ask<'_>, delegate: &str) -> Judged<Answer> {
    let program = scene.subject.dirs.iter().map(|dir| dir.join(delegate)).find(|path| path.is_file());
    let program: PathBuf =
        program.ok_or_else(|| Stop::undecided(&format!("{delegate} is in none of the directories")))?;
    let conf = scene.subject.with_subnet(ONE_ADDRESS).unwrap_or_default();
    ask.for_predecessor(&program, &Plugin { kind: delegate.to_owned(), conf }).send()
}

fn delegate(scene: &Scene<'_>) -> Judged {
    let Some(delegate) = scene.subject.delegate() else {
        return Err(Stop::not_applicable("it calls no other plugin for addresses"));
    };
    let answer = Ask::of_network(scene, Command::Status).set("CNI_PATH", "/nonexistent").send()?;
    answer.failed(&format!("and {delegate} is not in /nonexistent"))
}
