//! The verbs of the Container Network Interface.

use cni::{AddResult, Attachment, ErrorCode, Failure, Invocation, Request, Version};
use ipam::Store;
use serde_json::{Value, json};

use crate::Home;
use crate::attachment;
use crate::conf::Conf;
use crate::failures::{invalid_conf, of_addresses, refused};
use crate::network;

/// What a call prints on its standard output, and whether it worked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The result of ADD and VERSION, or the error object; nothing for the other verbs.
    pub printed: Option<Value>,
    /// Whether the process ends with 0.
    pub is_success: bool,
}

/// Does what a call asks for. `variable` gives the value of a variable of the environment, `input` is what came on the
/// standard input. The calling thread's network namespace is the node's.
pub fn call(home: &Home, variable: impl Fn(&str) -> Option<String>, input: &str) -> Reply {
    let spoken = Request::read(input).ok().and_then(|request| request.version().ok());
    match answer(home, variable, input) {
        Ok(printed) => Reply { printed, is_success: true },
        Err(failure) => {
            let version = spoken.unwrap_or(Version::V1_1_0);
            Reply { printed: Some(failure.to_json(version)), is_success: false }
        }
    }
}

fn answer(
    home: &Home,
    variable: impl Fn(&str) -> Option<String>,
    input: &str,
) -> Result<Option<Value>, Failure> {
    let invocation = Invocation::read(variable)?;
    if invocation == Invocation::Version {
        return Ok(Some(versions(input)));
    }
    let request = Request::read(input)?;
    let network = request.name()?;
    match invocation {
        Invocation::Add(attachment) => {
            let result = add(home, &request, network, &attachment)?;
            Ok(Some(Value::from(result.as_json().clone())))
        }
        Invocation::Del(Attachment { container_id, ifname, .. }) => {
            attachment::del(home, network, &container_id, &ifname).map(|()| None)
        }
        Invocation::Check(attachment) => check(home, &request, network, &attachment).map(|()| None),
        Invocation::Gc { .. } => gc(home, &request, network).map(|()| None),
        Invocation::Status { .. } => status(home, &request, network).map(|()| None),
        Invocation::Version => Ok(Some(versions(input))),
    }
}

/// The versions that are spoken, in the version of the question if it names one of them.
fn versions(input: &str) -> Value {
    let asked: Option<Version> = serde_json::from_str::<Value>(input)
        .ok()
        .and_then(|question| question.get("cniVersion")?.as_str()?.parse().ok());
    let spoken = asked.unwrap_or(Version::V1_1_0);
    json!({ "cniVersion": spoken.as_str(), "supportedVersions": Version::ALL.map(Version::as_str) })
}

fn add(home: &Home, request: &Request, network: &str, attachment: &Attachment) -> Result<AddResult, Failure> {
    let conf = Conf::read(request)?;
    let attached = attachment::add(home, network, &conf, attachment)?;
    Ok(attached.result(request.version()?, request.previous().as_ref()))
}

fn check(home: &Home, request: &Request, network: &str, attachment: &Attachment) -> Result<(), Failure> {
    if request.previous().is_none() {
        return Err(invalid_conf("`prevResult` is missing; CHECK compares with the result of ADD"));
    }
    attachment::check(home, network, attachment)
}

fn gc(home: &Home, request: &Request, network: &str) -> Result<(), Failure> {
    let failures = attachment::keep_only(home, network, &request.valid_attachments()?);
    match failures.as_slice() {
        [] => Ok(()),
        [one] => Err(refused(one)),
        all => Err(Failure {
            details: Some(all.join("; ")),
            ..refused(&format!("{} things could not be removed", all.len()))
        }),
    }
}

/// ADD can be done if a plan can be made, so that the link to other nodes is there, and each set of ranges has an address
/// left. Nothing is written.
fn status(home: &Home, request: &Request, network: &str) -> Result<(), Failure> {
    let unavailable = |why: String| Failure::new(ErrorCode::NOT_AVAILABLE, why);
    if Conf::awaits_ranges(request) {
        return Ok(());
    }
    let conf = Conf::read(request)?;
    // Whatever the network's number is, the plan is of the same steps.
    let node = network::spec(&conf, 1).map_err(|failure| unavailable(failure.to_string()))?;
    conf.path.node_plan(&node).map_err(|error| unavailable(error.to_string()))?;
    let left = Store::open(home.leases(), network).and_then(|store| store.left(&conf.ranges));
    match left.map_err(|error| of_addresses(&error))?.iter().position(|left| *left == 0) {
        Some(set) => Err(unavailable(format!("no address is left in range set {set} of network {network}"))),
        None => Ok(()),
    }
}
