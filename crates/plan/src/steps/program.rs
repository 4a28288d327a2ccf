//! Our own programs: loaded and pinned, attached to links, told of pods and tunnels.

use bpf::forward::{self, Config};
use bpf::{Attached, pins};
use linux::IfName;

use super::{absent, existing};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::forwarding::{Attachment, Endpoint, Programs, Tunnel};
use crate::{Kernel, Place};

/// The qdisc on which filters hang where the kernel has no bpf links at tc.
const CLSACT: &str = "clsact";

pub(super) fn before_load(programs: &Programs) -> Result<Before, StepError> {
    let folder = programs.folder();
    if pins::exists(&folder) {
        let what = folder.display().to_string();
        let remedy = format!("if nobody needs these programs: hostgap bpf unload {}", programs.node);
        return Err(StepError::Exists { what, remedy });
    }
    Ok(Before::Absent)
}

pub(super) fn load(kernel: &mut Kernel, place: &Place, programs: &Programs) -> Result<(), StepError> {
    let Programs { wire, .. } = programs;
    let wire = existing(kernel, place, wire)?.index;
    let config = Config {
        wire,
        mtu: programs.mtu,
        gateway: programs.gateway,
        gateway_mac: programs.gateway_mac,
        pods: programs.pods,
        cluster: programs.cluster,
        tunnel: programs.tunnel,
        route_seconds: forward::ROUTE_SECONDS,
    };
    let folder = programs.folder();
    pins::make(&folder)?;
    forward::load(&folder, &config).or_else(|error| pins::remove(&folder).and(Err(error)))?;
    Ok(())
}

/// One unmount takes programs, maps and bpf links. What stands there is ours: the step refuses a folder that exists.
pub(super) fn undo_load(programs: &Programs, after: Option<&After>) -> Result<Undone, StepError> {
    let folder = programs.folder();
    if !pins::exists(&folder) {
        return Ok(absent(after));
    }
    pins::remove(&folder)?;
    Ok(Undone::Restored)
}

pub(super) fn before_attach(
    kernel: &mut Kernel,
    place: &Place,
    attachment: &Attachment,
) -> Result<Before, StepError> {
    let index = existing(kernel, place, &attachment.link)?.index;
    if look(kernel, place, attachment, index)?.is_some() {
        let what = format!("program {} at link {}", attachment.program.name(), attachment.link);
        let remedy = format!("if nobody needs it: hostgap bpf unload {}", attachment.node);
        return Err(StepError::Exists { what, remedy });
    }
    let clsact = kernel.at(place)?.netlink.has_qdisc(index, CLSACT)?;
    Ok(Before::Unattached { index, clsact })
}

pub(super) fn attach(
    kernel: &mut Kernel,
    place: &Place,
    attachment: &Attachment,
    before: &Before,
) -> Result<(), StepError> {
    let Before::Unattached { index, .. } = before else { return Err(mistaken(before)) };
    let (program, pin) = (attachment.program_pin(), attachment.link_pin());
    let hook = attachment.program.hook();
    kernel.at(place)?.netns.run(|| bpf::attach(&program, hook, *index, &pin))??;
    Ok(())
}

pub(super) fn undo_attach(
    kernel: &mut Kernel,
    place: &Place,
    attachment: &Attachment,
    before: &Before,
    after: Option<&After>,
) -> Result<Undone, StepError> {
    let Before::Unattached { index, clsact } = before else { return Err(mistaken(before)) };
    let there = is_there(kernel, place, &attachment.link, *index)?;
    match look(kernel, place, attachment, *index)? {
        Some(how) if there || how == Attached::Link => {
            let pin = attachment.link_pin();
            let opened = kernel.at(place)?;
            // Others may have found the qdisc there and put their filters on it.
            let with_qdisc = how == Attached::Filter
                && !clsact
                && opened.netlink.filters(*index)?.into_iter().all(bpf::is_our_place);
            opened.netns.run(|| bpf::detach(how, *index, &pin, with_qdisc))??;
            Ok(Undone::Restored)
        }
        _ => {
            // Between the qdisc and the filter, power may have failed.
            let opened = kernel.at(place)?;
            let is_begun = there && !clsact && after.is_none() && opened.netlink.has_qdisc(*index, CLSACT)?;
            if is_begun && opened.netlink.filters(*index)?.is_empty() {
                opened.netns.run(|| bpf::remove_qdisc(*index))??;
                return Ok(Undone::Restored);
            }
            Ok(absent(after))
        }
    }
}

pub(super) fn before_endpoint(
    kernel: &mut Kernel,
    place: &Place,
    endpoint: &Endpoint,
) -> Result<Before, StepError> {
    let index = existing(kernel, place, &endpoint.link)?.index;
    let entry = pod(endpoint, index);
    if forward::has_endpoint(&pins::folder(&endpoint.node), &entry)?.is_some() {
        let what = format!("a pod with one of the addresses, or at link {}", endpoint.link);
        let remedy = "undo the plan that added it".to_owned();
        return Err(StepError::Exists { what, remedy });
    }
    Ok(Before::Unlisted { index })
}

pub(super) fn add_endpoint(endpoint: &Endpoint, before: &Before) -> Result<(), StepError> {
    let Before::Unlisted { index } = before else { return Err(mistaken(before)) };
    Ok(forward::add_endpoint(&pins::folder(&endpoint.node), &pod(endpoint, *index))?)
}

pub(super) fn undo_endpoint(
    endpoint: &Endpoint,
    before: &Before,
    after: Option<&After>,
) -> Result<Undone, StepError> {
    let Before::Unlisted { index } = before else { return Err(mistaken(before)) };
    let (folder, entry) = (pins::folder(&endpoint.node), pod(endpoint, *index));
    if !pins::exists(&folder) || forward::has_endpoint(&folder, &entry)?.is_none() {
        return Ok(absent(after));
    }
    forward::remove_endpoint(&folder, &entry)?;
    Ok(Undone::Restored)
}

pub(super) fn before_tunnel(
    kernel: &mut Kernel,
    place: &Place,
    tunnel: &Tunnel,
) -> Result<Before, StepError> {
    let index = existing(kernel, place, &tunnel.device)?.index;
    if forward::has_tunnel(&pins::folder(&tunnel.node), &way(tunnel, index))? {
        let what = format!("the tunnel to {}", tunnel.prefix);
        return Err(StepError::Exists { what, remedy: "undo the plan that added it".to_owned() });
    }
    Ok(Before::Unlisted { index })
}

pub(super) fn add_tunnel(tunnel: &Tunnel, before: &Before) -> Result<(), StepError> {
    let Before::Unlisted { index } = before else { return Err(mistaken(before)) };
    Ok(forward::add_tunnel(&pins::folder(&tunnel.node), &way(tunnel, *index))?)
}

pub(super) fn undo_tunnel(
    tunnel: &Tunnel,
    before: &Before,
    after: Option<&After>,
) -> Result<Undone, StepError> {
    let Before::Unlisted { index } = before else { return Err(mistaken(before)) };
    let (folder, entry) = (pins::folder(&tunnel.node), way(tunnel, *index));
    if !pins::exists(&folder) || !forward::has_tunnel(&folder, &entry)? {
        return Ok(absent(after));
    }
    forward::remove_tunnel(&folder, &entry)?;
    Ok(Undone::Restored)
}

fn look(
    kernel: &mut Kernel,
    place: &Place,
    attachment: &Attachment,
    index: u32,
) -> Result<Option<Attached>, StepError> {
    let (program, pin) = (attachment.program_pin(), attachment.link_pin());
    Ok(kernel.at(place)?.netns.run(|| bpf::attached(&program, index, &pin))??)
}

/// Whether the link of then is still there, and not a later one of its name.
fn is_there(kernel: &mut Kernel, place: &Place, link: &IfName, index: u32) -> Result<bool, StepError> {
    Ok(kernel.at(place)?.netlink.link(link)?.is_some_and(|link| link.index == index))
}

pub(super) fn pod(endpoint: &Endpoint, link: u32) -> forward::Endpoint {
    forward::Endpoint { link, mac: endpoint.mac, addresses: endpoint.addresses.clone() }
}

pub(super) fn way(tunnel: &Tunnel, device: u32) -> forward::Tunnel {
    forward::Tunnel { prefix: tunnel.prefix, device, remote: tunnel.remote }
}

/// A journal that says something else than was written for this step.
fn mistaken(before: &Before) -> StepError {
    StepError::Refused { why: format!("the journal has {before:?} for a step of another kind") }
}
