//! Whether a step is so now, one answer for every kind of step.

use std::path::{Path, PathBuf};

use bpf::{forward, pins};
use linux::netlink::LinkInfo;
use linux::sysctl::Key;
use linux::{IfName, Link, Netns, netns};
use rustix::io::Errno;

use super::{after, link, nic, object, parameter, program, verify};
use crate::entry::{After, Before};
use crate::error::StepError;
use crate::forwarding::{Attachment, Endpoint, Member, Splice, Tunnel};
use crate::kernel::Opened;
use crate::listing::Listing;
use crate::look::Look;
use crate::{Kernel, Place, Placed, Step};

/// Looks at a step. `listing` is what its namespace holds.
pub(crate) fn look(kernel: &mut Kernel, listing: &Listing, placed: &Placed) -> Result<Look, StepError> {
    let Placed { place, step } = placed;
    match step {
        Step::AddNetns => at_netns(kernel, place),
        Step::AddLink(wanted) => {
            at_link(kernel.at(place)?, listing, &wanted.name, |found| made(wanted, found))
        }
        Step::MoveLink { to, name, .. } => at_link(kernel.at(to)?, &Listing::default(), name, |_| Look::So),
        Step::SetLinkUp { link } => {
            at_link(kernel.at(place)?, listing, link, |found| Look::of(found.up, || "down".to_owned()))
        }
        Step::SetLinkMtu { link, mtu } => at_link(kernel.at(place)?, listing, link, |found| {
            Look::of(found.mtu == *mtu, || found.mtu.to_string())
        }),
        Step::SetLinkMaster { link, master } => at_port(kernel.at(place)?, listing, link, master),
        Step::SetHairpin { link } => at_link(kernel.at(place)?, listing, link, |found| {
            Look::of(found.hairpin == Some(true), || "off".to_owned())
        }),
        Step::SetGsoMaxSegs { link, segments } => at_link(kernel.at(place)?, listing, link, |found| {
            Look::of(found.gso_max_segs == *segments, || format!("up to {}", found.gso_max_segs))
        }),
        Step::AddAddress { .. }
        | Step::AddRoute(_)
        | Step::AddNeighbour(_)
        | Step::AddFdb(_)
        | Step::AddNftTable(_) => object::look(kernel.at(place)?, listing, step),
        Step::SetSysctl { key, value } => at_parameter(kernel.at(place)?, listing, key, value),
        Step::SetQueueCpus { .. }
        | Step::SetQueueFlows { .. }
        | Step::SetRouteMetric { .. }
        | Step::SetRootQdisc { .. }
        | Step::SetNic { .. }
        | Step::SetIndirection { .. }
        | Step::SetRssHash { .. }
        | Step::SetLinkAttribute { .. }
        | Step::SetDebug { .. }
        | Step::SetModule { .. }
        | Step::SetIrqCpus { .. } => at_setting(kernel, placed),
        Step::LoadPrograms(programs) => {
            Ok(at_pins(forward::Program::ALL.iter().map(|program| program.pin(&programs.folder()))))
        }
        Step::AttachProgram(attachment) => at_program(kernel.at(place)?, listing, attachment),
        Step::AddEndpoint(endpoint) => at_endpoint(kernel.at(place)?, listing, endpoint),
        Step::AddTunnel(tunnel) => at_tunnel(kernel.at(place)?, listing, tunnel),
        Step::AddCgroup(splice) => Ok(if splice.cgroup()?.exists() { Look::So } else { Look::Absent }),
        Step::LoadSplice(splice) => {
            let loaded = bpf::splice::is_loaded(&splice.folder());
            Ok(if loaded { Look::So } else { Look::Absent })
        }
        Step::AttachSplice(splice) => at_cgroup(splice),
        Step::AddMember(member) => at_member(kernel.at(place)?, member),
    }
}

/// The name must lead to the namespace that is held open: others would be led elsewhere.
fn at_netns(kernel: &mut Kernel, place: &Place) -> Result<Look, StepError> {
    let Place::Netns(name) = place else { return Ok(Look::So) };
    if !netns::exists(name) {
        return Ok(Look::Absent);
    }
    let same = Netns::open(name)?.inode()? == kernel.at(place)?.netns.inode()?;
    Ok(Look::of(same, || "another one of that name".to_owned()))
}

fn at_link(
    opened: &Opened,
    listing: &Listing,
    name: &IfName,
    judge: impl FnOnce(&LinkInfo) -> Look,
) -> Result<Look, StepError> {
    Ok(listing.link(opened, name)?.as_ref().map_or(Look::Absent, judge))
}

fn made(wanted: &Link, found: &LinkInfo) -> Look {
    Look::of(link::is_as_made(wanted, found), || {
        let kind = found.kind.as_deref().unwrap_or("hardware");
        let mac = found.mac.map_or(String::new(), |mac| format!(" and address {mac}"));
        format!("a {kind} link with MTU {}{mac}", found.mtu)
    })
}

fn at_port(opened: &Opened, listing: &Listing, link: &IfName, master: &IfName) -> Result<Look, StepError> {
    let Some(bridge) = listing.link(opened, master)? else { return Ok(Look::otherwise("of none")) };
    let Some(found) = listing.link(opened, link)? else { return Ok(Look::Absent) };
    if found.master == Some(bridge.index) {
        return Ok(Look::So);
    }
    let links = listing.links(opened)?;
    let other = found.master.and_then(|index| links.iter().find(|link| link.index == index));
    Ok(Look::otherwise(other.map_or("of none".to_owned(), |other| format!("of {}", other.name))))
}

/// What is read back after a step tells whether it is so at any later time.
fn at_setting(kernel: &mut Kernel, placed: &Placed) -> Result<Look, StepError> {
    let after = match read_back(kernel, placed) {
        Err(StepError::NoLink { .. } | StepError::Refused { .. }) => return Ok(Look::Absent),
        Err(StepError::Kernel(error)) if error.errno() == Some(Errno::NOENT.raw_os_error()) => {
            return Ok(Look::Absent);
        }
        Err(StepError::NotTaken { found, .. }) => return Ok(Look::Otherwise { found }),
        after => after?,
    };
    judged(verify(&placed.step, &after))
}

fn read_back(kernel: &mut Kernel, placed: &Placed) -> Result<After, StepError> {
    match &placed.step {
        // What the kernel changed together with it is not what the step asks for.
        Step::SetNic { link, parameter, .. } => {
            let value = nic::now(kernel, &placed.place, link, *parameter)?;
            Ok(After::Nic { value, queues: None })
        }
        _ => after(kernel, placed, &Before::Absent),
    }
}

fn at_parameter(opened: &Opened, listing: &Listing, key: &Key, value: &str) -> Result<Look, StepError> {
    match listing.parameter(opened, key)? {
        Some(found) => judged(parameter::verify(key, value, &found)),
        None => Ok(Look::Absent),
    }
}

fn judged(verified: Result<(), StepError>) -> Result<Look, StepError> {
    match verified {
        Ok(()) => Ok(Look::So),
        Err(StepError::NotTaken { found, .. }) => Ok(Look::Otherwise { found }),
        Err(error) => Err(error),
    }
}

/// Several pins that belong together.
fn at_pins(pins: impl IntoIterator<Item = PathBuf>) -> Look {
    let (there, missing): (Vec<PathBuf>, Vec<PathBuf>) = pins.into_iter().partition(|pin| pin.exists());
    match (there.as_slice(), missing.as_slice()) {
        (_, []) => Look::So,
        ([], _) => Look::Absent,
        (_, [first, ..]) => Look::otherwise(format!("without {}", first.display())),
    }
}

/// Where the kernel has no list of programs at a link, another program is a filter.
fn at_program(opened: &Opened, listing: &Listing, attachment: &Attachment) -> Result<Look, StepError> {
    let Some(index) = listing.link(opened, &attachment.link)?.map(|link| link.index) else {
        return Ok(Look::Absent);
    };
    let (program, hook) = (attachment.program_pin(), attachment.program.hook());
    let beside = match opened.netns.run(|| bpf::met(&program, hook, index))?? {
        None => return Ok(Look::Absent),
        Some(others) => others,
    };
    let filters = opened.netlink.filters(index)?.into_iter().filter(|filter| !bpf::is_our_place(*filter));
    let others = beside + filters.count();
    Ok(Look::of(others == 0, || format!("one of {} programs or filters there", others + 1)))
}

fn at_endpoint(opened: &Opened, listing: &Listing, endpoint: &Endpoint) -> Result<Look, StepError> {
    let folder = pins::folder(&endpoint.node);
    let Some(link) = listing.link(opened, &endpoint.link)? else { return Ok(Look::Absent) };
    if !is_loaded(&folder) {
        return Ok(Look::Absent);
    }
    Ok(match forward::has_endpoint(&folder, &program::pod(endpoint, link.index))? {
        None => Look::Absent,
        Some(true) => Look::So,
        Some(false) => Look::otherwise("another pod's, in part"),
    })
}

fn at_tunnel(opened: &Opened, listing: &Listing, tunnel: &Tunnel) -> Result<Look, StepError> {
    let folder = pins::folder(&tunnel.node);
    let Some(device) = listing.link(opened, &tunnel.device)? else { return Ok(Look::Absent) };
    let is_so = is_loaded(&folder) && forward::has_tunnel(&folder, &program::way(tunnel, device.index))?;
    Ok(if is_so { Look::So } else { Look::Absent })
}

/// Whether a node's maps can be asked: they are pinned beside its programs.
fn is_loaded(folder: &Path) -> bool {
    forward::Program::ALL.iter().any(|program| program.pin(folder).exists())
}

fn at_cgroup(splice: &Splice) -> Result<Look, StepError> {
    let cgroup = splice.cgroup()?;
    let met = cgroup.exists() && bpf::splice::is_met(&splice.folder(), cgroup.path())?;
    Ok(if met { Look::So } else { Look::Absent })
}

fn at_member(opened: &Opened, member: &Member) -> Result<Look, StepError> {
    let folder = member.folder();
    if !bpf::splice::is_loaded(&folder) {
        return Ok(Look::Absent);
    }
    Ok(match bpf::splice::has_member(&folder, opened.cookie, &member.addresses)? {
        None => Look::Absent,
        Some(true) => Look::So,
        Some(false) => Look::otherwise("another pod's, in part"),
    })
}
