//! The attachment of a container to a network: made, looked at, and taken back by its journal.

use std::collections::BTreeSet;
use std::str::FromStr;

use cni::{AddResult, Attached, Attachment, ErrorCode, Failure};
use ipam::Holder;
use ipnet::IpNet;
use linux::{LinkKind, Netns, NetnsPath, Route};
use plan::{BookError, FoundUnit, Keeper, Kernel, Place, Plan, Set, Step, UnitState};
use serde_json::Value;

use crate::addresses::Leases;
use crate::conf::Conf;
use crate::container_args::ContainerArgs;
use crate::delegate::Delegate;
use crate::failures::{busy, changed, invalid_call, of_book, refused, with_consequence};
use crate::making::{Making, released};
use crate::network_unit::NetworkUnit;
use crate::numbers::Numbers;
use crate::unit::{JOURNAL, Record, begin, id_of, recorded, remove};
use crate::{Home, drift};

/// Where the addresses of an attachment come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivenBy {
    /// The store of the plugin itself.
    OwnStore,
    /// The plugin that the configuration leaves them to.
    AnotherPlugin,
}

/// Joins a container to a network, with the addresses of a plugin for them if there is one.
///
/// # Errors
/// Whatever was done until then is taken back, and the plugin has released what it gave.
pub(crate) fn add(
    home: &Home,
    leases: &Leases,
    conf: &Conf,
    wanted: &ContainerArgs,
    (attachment, delegate): (&Attachment, Option<&Delegate<'_>>),
) -> Result<Attached, Failure> {
    let dns = match &wanted.dns {
        Some(dns) => Some(dns.clone()),
        None => conf.name_resolution()?,
    };
    let mut kernel = home.kernel()?;
    let place = place_of(attachment)?;
    let network = NetworkUnit::of(leases.network(), conf);
    // What a killed ADD was given is given back as its DEL would, before its interface goes: the plugin
    // may speak by that.
    if let Some(delegate) = delegate.filter(|_| is_dead(home, attachment)) {
        delegate.del(attachment)?;
    }
    let (unit, record) = begin(home, leases, &network, (attachment, wanted.device.as_deref()), &mut kernel)?;
    let making = Making { home, wanted, attachment, record: &record, place: &place, unit: &unit };
    let (failure, taken_back) = match making.join(conf, delegate, &mut kernel) {
        Ok(attached) => match unit.leave_standing(leases.network()) {
            Ok(()) => return Ok(Attached { dns: dns.or(attached.dns), ..attached }),
            Err(error) => {
                let failure = released(of_book(&error), delegate, attachment);
                (failure, remove_dead(home, &record, &mut kernel))
            }
        },
        Err(failure) => (failure, remove(home, unit, &mut kernel, &mut Vec::new())),
    };
    Err(with_consequence(failure, taken_back))
}

/// Whether an attachment is there of which the process died.
fn is_dead(home: &Home, attachment: &Attachment) -> bool {
    let found = home.attachments().find(&id_of(&attachment.container_id, &attachment.ifname));
    found.is_ok_and(|found| found.is_some_and(|found| found.state == UnitState::Dead))
}

/// Takes back a unit that could not be left standing, which counts as that of a dead process.
fn remove_dead(home: &Home, record: &Record, kernel: &mut Kernel) -> Result<(), Failure> {
    let dead = home.attachments().take_over_dead(&id_of(&record.container_id, &record.ifname));
    let unit = dead.map_err(|error| of_book(&error))?;
    unit.map_or(Ok(()), |unit| remove(home, unit, kernel, &mut Vec::new()))
}

/// Takes an attachment back. What did not become as before goes to `left`. It is no failure if there is none,
/// or none any more.
///
/// # Errors
/// Another process works on it, a step cannot be undone, or an address cannot be released.
pub(crate) fn del(
    home: &Home,
    leases: &Leases,
    container_id: &str,
    ifname: &str,
    left: &mut Vec<String>,
) -> Result<(), Failure> {
    let id = id_of(container_id, ifname);
    // The interface may be another network's: an ADD that was refused for that is followed by a DEL.
    let is_ours = recorded(home, &id).is_none_or(|record| record.network == leases.network());
    if is_ours {
        match home.attachments().take_over(&id) {
            Ok(unit) => {
                let mut kernel = home.kernel()?;
                remove(home, unit, &mut kernel, left)?;
            }
            Err(BookError::Unknown { .. }) => {}
            Err(BookError::Held { pid, .. }) => return Err(busy(container_id, ifname, pid)),
            Err(error) => return Err(of_book(&error)),
        }
    }
    // What host-local reserved, or what was reserved before the machine was restarted.
    leases.release(container_id, ifname)
}

/// Compares an attachment and its network with what ADD left and plugins behind ours have made of it, by the result of
/// them all, and its addresses with those that are reserved where ADD did so, unless they are another plugin's.
///
/// # Errors
/// There is none, or the first thing that is otherwise.
pub(crate) fn check(
    home: &Home,
    network: &str,
    attachment: &Attachment,
    result: &AddResult,
    given_by: GivenBy,
) -> Result<(), Failure> {
    let Attachment { container_id, ifname, .. } = attachment;
    let what = format!("interface {ifname} of container {container_id}");
    let id = id_of(container_id, ifname);
    let found = home.attachments().find(&id).map_err(|error| of_book(&error))?;
    let record = recorded(home, &id).filter(|record| record.network == network);
    let (Some(record), Some(found)) = (record, found) else {
        let why = format!("{what} was not added to {network} here");
        return Err(Failure::new(ErrorCode::UNKNOWN_CONTAINER, why));
    };
    match found.state {
        UnitState::Standing => {}
        UnitState::Alive => return Err(busy(container_id, ifname, found.pid)),
        UnitState::Dead => {
            return Err(changed(format!("{what} was left by a process that died; DEL takes it back")));
        }
    }
    place_of(attachment)?;
    let mut kernel = home.kernel()?;
    let own = Keeper::part(&home.attachments(), &id, JOURNAL).map_err(|error| refused(&error))?;
    let mut made = Plan::new();
    for (part, whose) in [(drift::made(home, &record.network_unit())?, network), (own, id.as_str())] {
        made = part.ok_or_else(|| changed(format!("{what}: the journal of {whose} is gone")))?;
        allow_for_others(&mut made, attachment, result);
        if let Some(first) = plan::changed(&made, &mut kernel).map_err(|error| refused(&error))? {
            return Err(changed(format!("{what}: {first}")));
        }
    }
    if given_by == GivenBy::AnotherPlugin {
        return Ok(());
    }
    let reserved = record.leases(home).reserved(container_id, ifname)?;
    let lost = made.steps.iter().find_map(|placed| match &placed.step {
        Step::AddAddress { address, .. } if placed.place != Place::Host => {
            (!reserved.contains(&address.addr())).then_some(address)
        }
        _ => None,
    });
    lost.map_or(Ok(()), |address| Err(changed(format!("{what}: {address} is no longer reserved for it"))))
}

/// A plugin behind ours may have given the container's interface another Ethernet address, which its result has, and
/// another MTU, which it need not say (both are what `tuning` does). It may have taken addresses and routes away or
/// replaced them; its result does not list them then, as with `route-override`. The link that holds back what the
/// interface receives is ours alone, but for whether it has IPv6: a program that sets that for all links of the
/// container sets it there, too.
fn allow_for_others(made: &mut Plan, attachment: &Attachment, result: &AddResult) {
    let list = |key: &str| result.as_json().get(key).and_then(Value::as_array).into_iter().flatten();
    let text = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).map(str::to_owned);
    let of_container = list("interfaces").find(|one| {
        text(one, "name").as_ref() == Some(&attachment.ifname) && text(one, "sandbox") == attachment.netns
    });
    let mac = of_container.and_then(|one| text(one, "mac")?.parse().ok());
    let mut holds_back = None;
    for placed in made.steps.iter_mut().filter(|placed| placed.place != Place::Host) {
        match &mut placed.step {
            Step::AddLink(link) if link.kind == LinkKind::Ifb => holds_back = Some(link.name.clone()),
            Step::AddLink(link) | Step::AddLinkOn { link, .. } => {
                link.mtu = None;
                link.mac = mac.or(link.mac);
            }
            _ => {}
        }
    }
    let for_all = holds_back.map(|link| format!("net/ipv6/conf/{link}/disable_ipv6"));
    let has_address =
        |address: &IpNet| list("ips").any(|ip| parsed(ip.get("address")).as_ref() == Some(address));
    // Where none is said, the next hop may be the gateway of an address.
    let has_route = |route: &Route| {
        list("routes").any(|one| {
            parsed(one.get("dst")).is_some_and(|dst: IpNet| dst.trunc() == route.dst.trunc())
                && parsed(one.get("gw")).is_none_or(|gw| Some(gw) == route.via)
        })
    };
    made.steps.retain(|placed| match &placed.step {
        Step::Set(Set::Sysctl(set)) => for_all.as_deref() != Some(set.key.as_str()),
        Step::AddAddress { address, .. } if placed.place != Place::Host => has_address(address),
        Step::AddRoute(route) if placed.place != Place::Host => has_route(route),
        _ => true,
    });
}

/// What a text of a result says; `None` if there is none, or it says something else.
fn parsed<T: FromStr>(value: Option<&Value>) -> Option<T> {
    value?.as_str()?.parse().ok()
}

/// What became of attachments that were taken back together, as phrases.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    /// What could not be done.
    pub(crate) failures: Vec<String>,
    /// What did not become as before, as [`remove`] says it.
    pub(crate) left: Vec<String>,
}

/// Takes back all attachments to a network but those that are valid.
pub(crate) fn keep_only(home: &Home, leases: &Leases, valid: &[(String, String)]) -> Removed {
    let ids: BTreeSet<String> = valid.iter().map(|(container, ifname)| id_of(container, ifname)).collect();
    let mut removed = remove_units(home, leases.network(), |found| ids.contains(&found.id));
    let failures = &mut removed.failures;
    let book = home.attachments();
    // One that cannot be looked at may be there, and what it has must not become another's.
    let has_unit = |id: &str| book.find(id).map_or(true, |found| found.is_some());
    // What is being attached has a unit before it has an address. What could not be taken back keeps its own.
    let is_kept = |Holder { container, ifname }: &Holder| match ifname {
        Some(ifname) => {
            let id = id_of(container, ifname);
            ids.contains(&id) || has_unit(&id)
        }
        // Old versions of host-local wrote no interface.
        None => valid.iter().any(|(valid, _)| valid == container),
    };
    let released = leases.keep_only(is_kept);
    failures.extend(released.err().map(|failure| failure.to_string()));
    // Numbers of processes that died between their unit and its record.
    let swept = Numbers::at(home.attachment_numbers()).sweep(has_unit);
    failures.extend(swept.err().map(|error| format!("give back numbers: {error}")));
    removed
}

/// Takes back the attachments to a network whose ADD died.
pub(crate) fn remove_all_dead(home: &Home, network: &str) -> Removed {
    remove_units(home, network, |found| found.state == UnitState::Standing)
}

fn remove_units(home: &Home, network: &str, is_valid: impl Fn(&FoundUnit) -> bool) -> Removed {
    let removed = try_remove_units(home, network, is_valid);
    removed.unwrap_or_else(|failure| Removed { failures: vec![failure.to_string()], left: Vec::new() })
}

fn try_remove_units(
    home: &Home,
    network: &str,
    is_valid: impl Fn(&FoundUnit) -> bool,
) -> Result<Removed, Failure> {
    let book = home.attachments();
    let mut kernel = home.kernel()?;
    let mut removed = Removed::default();
    for found in book.units().map_err(|error| of_book(&error))? {
        let record = recorded(home, &found.id);
        // An ADD that died before it said for which network it was belongs to none.
        let is_ours = record.as_ref().is_none_or(|record| record.network == network);
        if found.state == UnitState::Alive || !is_ours || is_valid(&found) {
            continue;
        }
        let failed = match book.take_over(&found.id) {
            Ok(unit) => {
                remove(home, unit, &mut kernel, &mut removed.left).err().map(|failure| failure.to_string())
            }
            // Another process was faster.
            Err(BookError::Unknown { .. } | BookError::Held { .. }) => None,
            Err(error) => Some(error.to_string()),
        };
        let whose = || match &record {
            Some(record) => format!("interface {} of container {}", record.ifname, record.container_id),
            None => found.id.clone(),
        };
        removed.failures.extend(failed.map(|why| format!("{}: {why}", whose())));
    }
    Ok(removed)
}

/// Where the container's namespace is, which is there and is not the node's.
fn place_of(attachment: &Attachment) -> Result<Place, Failure> {
    let path = attachment.netns.clone().unwrap_or_default();
    let wrong = |why: String| invalid_call(format!("CNI_NETNS: {why}"));
    let path = NetnsPath::new(path).map_err(|error| wrong(error.to_string()))?;
    let netns = Netns::open_path(&path).map_err(|error| wrong(error.to_string()))?;
    match Netns::current().and_then(|own| Ok(own.inode()? == netns.inode()?)) {
        Ok(false) => Ok(Place::Path(path)),
        Ok(true) => Err(wrong(format!("{path} is the node's own namespace"))),
        Err(error) => Err(wrong(error.to_string())),
    }
}
