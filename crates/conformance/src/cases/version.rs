//! VERSION, and what a plugin does with versions.

use cni::{Command, Version};
use serde_json::Value;

use crate::ask::{Ask, ask_version};
use crate::case::{Case, Demand, Kind};
use crate::outcome::Judged;
use crate::scene::Scene;

const VERSION: &str = "section 2, VERSION";

pub(super) const CASES: &[Case] = &[
    Case {
        id: "version-alone",
        title: "VERSION works with no other variable in the environment",
        section: VERSION,
        sentence: "The plugin should output via standard-out a json-serialized version result object (see below).",
        demand: Demand::Should,
        since: Version::V0_3_0,
        kind: Kind::Any,
        judge: alone,
    },
    Case {
        id: "version-list",
        title: "`supportedVersions` is a list of versions, among them the one that was asked in",
        section: "section 5, VERSION Success",
        sentence: "`supportedVersions`: A list of supported specification versions",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Any,
        judge: list,
    },
    Case {
        id: "version-echo",
        title: "VERSION answers in the version that it was asked in",
        section: "section 5, VERSION Success",
        sentence: "`cniVersion`: The value of `cniVersion` specified on input",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Any,
        judge: echo,
    },
    Case {
        id: "version-unknown",
        title: "an unknown version is refused with code 1, and nothing is made",
        section: "section 5, Error",
        sentence: "`1`|Incompatible CNI version",
        demand: Demand::Must,
        since: Version::V0_3_0,
        kind: Kind::Any,
        judge: unknown,
    },
];

fn alone(scene: &Scene<'_>) -> Judged {
    ask_version(scene, scene.version).send()?.result().map(drop)
}

fn list(scene: &Scene<'_>) -> Judged {
    let answer = ask_version(scene, scene.version).send()?;
    let result = answer.result()?;
    let Some(list) = result["supportedVersions"].as_array().filter(|list| !list.is_empty()) else {
        return Err(answer.fault(format!(
            "`supportedVersions` is {}, and a list is expected",
            result["supportedVersions"]
        )));
    };
    let is_version =
        |text: &str| text.split('.').count() == 3 && text.split('.').all(|part| part.parse::<u32>().is_ok());
    if let Some(other) = list.iter().find(|one| !one.as_str().is_some_and(is_version)) {
        return Err(answer.fault(format!("`supportedVersions` has {other}, which is no version")));
    }
    let is_asked = |one: &&Value| one.as_str() == Some(scene.version.as_str());
    if list.iter().any(|one| is_asked(&one)) {
        return Ok(());
    }
    Err(answer.fault(format!("`supportedVersions` does not have {}", scene.version)))
}

/// Each that the plugin lists: in its newest version it may be right by chance.
fn echo(scene: &Scene<'_>) -> Judged {
    for version in Version::ALL.into_iter().filter(|version| scene.speaks(version.as_str())) {
        let answer = ask_version(scene, version).send()?;
        let reported = &answer.result()?["cniVersion"];
        if reported != version.as_str() {
            return Err(answer.fault(format!("it was asked in {version}, and answers {reported}")));
        }
    }
    Ok(())
}

fn unknown(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    let before = (scene.node()?, container.state()?);
    let answer = Ask::of_container(scene, &Command::Add.to_string(), &container).version("99.0.0").send()?;
    answer.refused("and there is no version 99.0.0")?.code(1, "an incompatible version")?;
    scene.node()?.must_be(&before.0, "the node", "after the refusal")?;
    container.state()?.must_be(&before.1, "the container", "after the refusal")
}
