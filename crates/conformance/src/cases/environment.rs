//! The variables of the environment: what a plugin does with those that are missing, wrong, or not for it.

use cni::Command;

use crate::ask::Ask;
use crate::case::{Case, Kind};
use crate::outcome::Judged;
use crate::scene::{Container, Scene};

const PARAMETERS: &str = "section 2, Parameters";
const CODES: &str = "section 5, Error";
/// The sentence of code 4.
const NAMED: &str = "`4`|Invalid necessary environment variables, like CNI_COMMAND, CNI_CONTAINERID, etc. The error message must contain the names of invalid variables.";

pub(super) const CASES: &[Case] = &[
    Case::must(
        "env-command",
        "an unknown CNI_COMMAND is refused with code 4, by name",
        CODES,
        NAMED,
        command,
    ),
    Case::must(
        "env-containerid-missing",
        "ADD and DEL without CNI_CONTAINERID are refused with code 4, by name",
        CODES,
        NAMED,
        containerid_missing,
    ),
    Case::must(
        "env-containerid-bad",
        "CNI_CONTAINERID with other signs than it may have is refused",
        PARAMETERS,
        "Must start with an alphanumeric character, optionally followed by any combination of one or more alphanumeric characters, underscore (), dot (.) or hyphen (-).",
        containerid_bad,
    ),
    Case::must(
        "env-ifname-missing",
        "ADD and DEL without CNI_IFNAME are refused with code 4, by name",
        CODES,
        NAMED,
        ifname_missing,
    ),
    Case::must(
        "env-ifname-bad",
        "CNI_IFNAME that the kernel would refuse is refused, and nothing is made",
        PARAMETERS,
        "`CNI_IFNAME`: Name of the interface to create inside the container; if the plugin is unable to use this interface name it must return an error.",
        ifname_bad,
    ),
    Case::must(
        "env-names",
        "wrong CNI_CONTAINERID and CNI_IFNAME are refused with code 4, by name",
        CODES,
        NAMED,
        names,
    ),
    Case::must(
        "env-netns-missing",
        "ADD without CNI_NETNS is refused with code 4, by name",
        CODES,
        NAMED,
        netns_missing,
    ),
    // One behind another plugin need not enter the namespace.
    Case {
        kind: Kind::Interface,
        ..Case::must(
            "env-netns-gone",
            "ADD for a namespace that does not exist fails, and nothing is made",
            "section 2, Errors",
            "A plugin must exit with a return code of 0 on success, and non-zero on failure.",
            netns_gone,
        )
    },
    Case::must(
        "env-args-kubelet",
        "CNI_ARGS that are for others do not disturb it, as those that kubelet passes",
        "section 3, Deriving runtimeConfig",
        "Whereas CNI_ARGS are provided to all plugins, with no indication if they are going to be consumed, _Capability arguments_ need to be declared explicitly in configuration.",
        args_kubelet,
    ),
];

fn command(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    let answer = Ask::of_container(scene, "REMOVE", &container).send()?;
    answer.refused("and there is no such command")?.code(4, "an invalid variable")?.names("CNI_COMMAND")
}

fn containerid_missing(scene: &Scene<'_>) -> Judged {
    missing(scene, "CNI_CONTAINERID", &[Command::Add, Command::Del])
}

fn ifname_missing(scene: &Scene<'_>) -> Judged {
    missing(scene, "CNI_IFNAME", &[Command::Add, Command::Del])
}

fn netns_missing(scene: &Scene<'_>) -> Judged {
    missing(scene, "CNI_NETNS", &[Command::Add])
}

/// Without a variable, and with an empty one.
fn missing(scene: &Scene<'_>, name: &'static str, commands: &[Command]) -> Judged {
    let container = scene.container("a")?;
    for command in commands {
        let ask = scene.ask(*command, &container);
        for ask in [ask.clone().unset(name), ask.set(name, "")] {
            let refusal = ask.send()?.refused(&format!("and {name} is required"))?;
            refusal.code(4, "an invalid variable")?.names(name)?;
        }
    }
    Ok(())
}

fn containerid_bad(scene: &Scene<'_>) -> Judged {
    bad(scene, "CNI_CONTAINERID", &["-a", "../a", "a/b", "a b", "a:b"])
}

fn ifname_bad(scene: &Scene<'_>) -> Judged {
    bad(scene, "CNI_IFNAME", &[".", "..", "a/b", "a:b", "a b", "sixteen-letters-"])
}

fn bad(scene: &Scene<'_>, name: &'static str, values: &[&str]) -> Judged {
    let container = scene.container("a")?;
    let ask = scene.ask_add(&container)?;
    let before = (scene.node()?, container.state()?);
    for value in values {
        ask.clone().set(name, *value).send()?.failed(&format!("and {name} is {value:?}"))?;
        unchanged(scene, &container, &before)?;
    }
    Ok(())
}

/// What is wrong, and not only missing.
fn names(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    let ask = scene.ask_add(&container)?;
    for (name, value) in [("CNI_CONTAINERID", "a/b"), ("CNI_IFNAME", "a/b")] {
        let refusal = ask.clone().set(name, value).send()?.refused(&format!("and {name} is {value:?}"))?;
        refusal.code(4, "an invalid variable")?.names(name)?;
    }
    Ok(())
}

fn netns_gone(scene: &Scene<'_>) -> Judged {
    let container = scene.container("a")?;
    let ask = scene.ask_add(&container)?;
    let before = container.state()?;
    ask.set("CNI_NETNS", "/run/netns/nowhere").send()?.failed("and /run/netns/nowhere does not exist")?;
    container.state()?.must_be(&before, "the container", "after an ADD for another namespace")
}

fn unchanged(
    scene: &Scene<'_>,
    container: &Container,
    before: &(crate::state::State, crate::state::State),
) -> Judged {
    scene.node()?.must_be(&before.0, "the node", "after the refusal")?;
    container.state()?.must_be(&before.1, "the container", "after the refusal")
}

fn args_kubelet(scene: &Scene<'_>) -> Judged {
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-1;K8S_POD_INFRA_CONTAINER_ID=a;K8S_POD_UID=8d0a1c1e-0f3b-4a57-9b3f-6b8f3c1d2e4f";
    let container = scene.container("a")?;
    scene.ask_add(&container)?.set("CNI_ARGS", args).send()?.result()?;
    scene.ask(Command::Del, &container).set("CNI_ARGS", args).send()?.succeeded()
}
