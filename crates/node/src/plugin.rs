//! The verbs of the Container Network Interface.

use std::path::PathBuf;

use cni::{AddResult, Attachment, Command, ErrorCode, Failure, Invocation, Request, Version};
use serde_json::{Value, json};

use crate::Home;
use crate::addresses::Leases;
use crate::attachment::GivenBy;
use crate::conf::{AddressSource, Conf};
use crate::container_args::ContainerArgs;
use crate::delegate::{self, Delegate};
use crate::dropin::HOST_LOCAL;
use crate::failures::{invalid_conf, refused, with_consequence};
use crate::network_unit::NetworkUnit;
use crate::{attachment, host_local, network, node_spec, readiness};

/// What a call prints on its standard output, and whether it worked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The result of ADD and VERSION, or the error object; nothing for the other verbs.
    pub printed: Option<Value>,
    /// Whether the process ends with 0.
    pub is_success: bool,
    /// What did not become as before when DEL or GC took it back, and what STATUS has made again, a phrase each:
    /// for the runtime's log.
    pub left: Vec<String>,
}

/// Does what a call asks for. `name` is that by which the program was called: `bridge`, `ptp`, `macvlan` and `ipvlan`
/// take the configurations of the CNI project's plugins, `host-local` is the one for addresses alone, and any other is
/// hostgap's own. `variable` gives the value of a variable of the environment, `input` is what came on the standard
/// input. The calling thread's network namespace is the node's.
pub fn call(home: &Home, name: &str, variable: impl Fn(&str) -> Option<String>, input: &str) -> Reply {
    let spoken = Request::read(input).ok().and_then(|request| request.version().ok());
    let mut left = Vec::new();
    match answer(home, name, variable, input, &mut left) {
        Ok(printed) => Reply { printed, is_success: true, left },
        Err(failure) => {
            let version = spoken.unwrap_or(Version::V1_1_0);
            Reply { printed: Some(failure.to_json(version)), is_success: false, left }
        }
    }
}

fn answer(
    home: &Home,
    name: &str,
    variable: impl Fn(&str) -> Option<String>,
    input: &str,
    left: &mut Vec<String>,
) -> Result<Option<Value>, Failure> {
    let invocation = Invocation::read(variable)?;
    if invocation == Invocation::Version {
        return Ok(Some(versions(input)));
    }
    let request = Request::read(input)?;
    let (command, version) = (invocation.command(), request.version()?);
    if version < command.since() {
        let why = format!("`cniVersion` is {version}, and {command} came with {}", command.since());
        return Err(Failure::new(ErrorCode::INCOMPATIBLE_VERSION, why));
    }
    if name == HOST_LOCAL {
        return answer_for_addresses(home, &request, invocation);
    }
    match invocation {
        Invocation::Add(attachment) => {
            let result = add(home, &request, name, &attachment)?;
            Ok(Some(Value::from(result.as_json().clone())))
        }
        Invocation::Del(attachment) => {
            del(home, &request, name, &attachment, left)?;
            Ok(None)
        }
        Invocation::Check(attachment) => check(home, &request, name, &attachment).map(|()| None),
        Invocation::Gc { path } => gc(home, &request, name, &path, left).map(|()| None),
        Invocation::Status { path } => status(home, &request, name, &path, left).map(|()| None),
        Invocation::Version => Ok(Some(versions(input))),
    }
}

fn answer_for_addresses(
    home: &Home,
    request: &Request,
    invocation: Invocation,
) -> Result<Option<Value>, Failure> {
    let leases = Leases::of(home, request, HOST_LOCAL)?;
    match invocation {
        Invocation::Add(attachment) => host_local::add(&leases, request, &attachment).map(Some),
        Invocation::Del(Attachment { container_id, ifname, .. }) => {
            leases.release(&container_id, &ifname).map(|()| None)
        }
        Invocation::Check(attachment) => host_local::check(&leases, &attachment).map(|()| None),
        Invocation::Gc { .. } => {
            let valid = request.valid_attachments()?;
            // Without a list, each address may be a container's.
            valid.map_or(Ok(()), |valid| host_local::keep_only(&leases, &valid)).map(|()| None)
        }
        Invocation::Status { .. } => host_local::status(&leases, request).map(|()| None),
        Invocation::Version => Ok(None),
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

fn add(home: &Home, request: &Request, name: &str, attachment: &Attachment) -> Result<AddResult, Failure> {
    let conf = Conf::read(request, name)?;
    let wanted = ContainerArgs::read(request, attachment, &conf)?;
    let (leases, version) = (Leases::of(home, request, name)?, request.version()?);
    let delegate = Delegate::find(request, name, &attachment.path)?;
    if let Some(delegate) = &delegate {
        delegate.require_way(conf.path)?;
    }
    let attached = attachment::add(home, &leases, &conf, &wanted, (attachment, delegate.as_ref()))?;
    Ok(attached.result(version, request.previous().as_ref()))
}

/// Another plugin releases what it gave, whatever became of the rest.
fn del(
    home: &Home,
    request: &Request,
    name: &str,
    attachment: &Attachment,
    left: &mut Vec<String>,
) -> Result<(), Failure> {
    let Attachment { container_id, ifname, path, .. } = attachment;
    let leases = Leases::of(home, request, name)?;
    let release = || {
        Delegate::find(request, name, path)
            .and_then(|delegate| delegate.map_or(Ok(()), |delegate| delegate.del(attachment)))
    };
    let mut remove = || attachment::del(home, &leases, container_id, ifname, left);
    let (removed, released) = if delegate::kind(request, name).is_some_and(delegate::speaks_by_interface) {
        let released = release();
        (remove(), released)
    } else {
        (remove(), release())
    };
    match removed {
        Ok(()) => released,
        Err(failure) => Err(with_consequence(failure, released)),
    }
}

fn check(home: &Home, request: &Request, name: &str, attachment: &Attachment) -> Result<(), Failure> {
    let result = request
        .previous()
        .ok_or_else(|| invalid_conf("`prevResult` is missing; CHECK compares with the result of ADD"))?;
    let delegate = Delegate::find(request, name, &attachment.path)?;
    let leases = Leases::of(home, request, name)?;
    let given_by = if delegate.is_some() { GivenBy::AnotherPlugin } else { GivenBy::OwnStore };
    attachment::check(home, leases.network(), attachment, &result, given_by)?;
    delegate.map_or(Ok(()), |delegate| delegate.check(attachment))
}

fn gc(
    home: &Home,
    request: &Request,
    name: &str,
    path: &[PathBuf],
    left: &mut Vec<String>,
) -> Result<(), Failure> {
    let leases = Leases::of(home, request, name)?;
    let removed = match request.valid_attachments()? {
        Some(valid) => attachment::keep_only(home, &leases, &valid),
        None => attachment::remove_all_dead(home, leases.network()),
    };
    *left = removed.left;
    let mut failures = removed.failures;
    let released = Delegate::find(request, name, path)
        .and_then(|delegate| delegate.map_or(Ok(()), |delegate| delegate.hand_over(Command::Gc)));
    failures.extend(released.err().map(|failure| failure.to_string()));
    match failures.as_slice() {
        [] => Ok(()),
        [one] => Err(refused(one)),
        all => Err(Failure {
            details: Some(all.join("; ")),
            ..refused(&format!("{} things could not be removed", all.len()))
        }),
    }
}

/// ADD can be done if the file that the configuration waits for is there, a plan can be made, so that the link to other
/// nodes is there, and each set of ranges has an address left, or the plugin that gives addresses says so of itself.
///
/// What another program has taken away of a network that stands is made again, as ADD does it, and said in `left`. A
/// runtime asks every few seconds, and a node that is not ready for such a reason would get no ADD that could mend it.
fn status(
    home: &Home,
    request: &Request,
    name: &str,
    path: &[PathBuf],
    left: &mut Vec<String>,
) -> Result<(), Failure> {
    readiness::require(request)?;
    let unavailable = |why: String| Failure::new(ErrorCode::NOT_AVAILABLE, why);
    if delegate::kind(request, name).is_none() && Conf::awaits_ranges(request) {
        return Ok(());
    }
    let conf = Conf::read(request, name)?;
    let network = &NetworkUnit::of(request.name()?, &conf);
    let unmade = |failure: Failure| unavailable(failure.to_string());
    conf.name_resolution().map_err(unmade)?;
    let mended = network::mend_standing(home, network);
    left.extend(mended.map_err(|failure| Failure { code: Some(ErrorCode::LIMITED), ..failure })?);
    match (&conf.addresses, Delegate::find(request, name, path).map_err(unmade)?) {
        (AddressSource::Store(ranges), _) => {
            network::could_be_made(home, network, &conf).map_err(unmade)?;
            Leases::of(home, request, name)?.require_left(ranges)
        }
        // Its subnets are not known before ADD.
        (AddressSource::Delegate(_), delegate) => {
            node_spec::spec(home, network, &conf, (1, "")).map_err(unmade)?;
            delegate.map_or(Ok(()), |delegate| {
                delegate.require_way(conf.path).map_err(unmade)?;
                delegate.hand_over(Command::Status)
            })
        }
    }
}
