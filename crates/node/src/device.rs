//! The device that a configuration or a runtime names for a container.

use cni::Failure;
use datapath::Device;
use linux::sysfs::{FunctionCard, NetSysfs};
use linux::{IfName, Netns};
use plan::{BookError, Kernel, SetFunction, Unit};

use crate::Home;
use crate::conf::Conf;
use crate::failures::{busy, invalid_conf, of_book, refused, unsupported};
use crate::unit::{Record, recorded, remove, undo};

/// The link of a device, by the device's address on its bus, and the rules that the configuration has for it. It is for
/// the attachment whose unit has the id `own`.
///
/// # Errors
/// Code 7: the node has no such device, or it has several links. Code 2: there are rules for what is no virtual
/// function, or for one whose card has no link here or cannot be found. Code 11: another process works on an attachment
/// that had it. What is wrong with such an attachment is an error that names it.
pub(crate) fn find(
    home: &Home,
    own: &str,
    id: &str,
    conf: &Conf,
    kernel: &mut Kernel,
) -> Result<Device, Failure> {
    let sysfs = Netns::current().and_then(|netns| NetSysfs::open(&netns)).map_err(|error| refused(&error))?;
    the_link(&sysfs, id)?;
    take_back_earlier(home, own, id, &sysfs, kernel)?;
    // It has its own name again.
    let link = the_link(&sysfs, id)?;
    if conf.vlan.is_none() && conf.spoof_check.is_none() {
        return Ok(Device { link, rules: None });
    }
    let refusal = |why: &str| {
        unsupported(format!(
            "`vlan` and `spoof_check` are for virtual functions whose card is in the node, and {why}"
        ))
    };
    let Some(function) = sysfs.function_of(&link) else {
        return Err(refusal(&format!("{link} ({id}) is none")));
    };
    let card = match function.card {
        FunctionCard::Here(card) => card,
        FunctionCard::Elsewhere => {
            return Err(refusal(&format!("the card of {link} ({id}) has no link here")));
        }
        FunctionCard::OneOf(links) => {
            let names = names(&links);
            return Err(refusal(&format!(
                "nothing says which link of its card is that of {link} ({id}): {names}"
            )));
        }
    };
    let (number, vlan, spoof_check) = (function.number, conf.vlan, conf.spoof_check);
    Ok(Device { link, rules: Some(SetFunction { link: card, number, vlan, spoof_check }) })
}

/// The only link of a device.
fn the_link(sysfs: &NetSysfs, id: &str) -> Result<IfName, Failure> {
    let links = sysfs.links_of(id).map_err(|error| refused(&error))?;
    match links.as_slice() {
        [link] => Ok(link.clone()),
        [] => {
            let why =
                format!("`deviceID` is {id:?}, and no link of this node belongs to a device of that address");
            Err(invalid_conf(why))
        }
        several => {
            let why = format!("`deviceID` is {id:?}, whose links are {}; one is expected", names(several));
            Err(invalid_conf(why))
        }
    }
}

fn names(links: &[IfName]) -> String {
    links.iter().map(IfName::as_str).collect::<Vec<_>>().join(" and ")
}

/// Takes back what earlier containers have done to a device whose link is in the node again: they are gone, and their
/// DEL has yet to come. Else the next container would find their rules, and they, later, take away its own. Their
/// addresses stay reserved until that DEL.
fn take_back_earlier(
    home: &Home,
    own: &str,
    device: &str,
    sysfs: &NetSysfs,
    kernel: &mut Kernel,
) -> Result<(), Failure> {
    let book = home.attachments();
    for found in book.units().map_err(|error| of_book(&error))? {
        let record = recorded(home, &found.id).filter(|record| record.device.as_deref() == Some(device));
        let Some(record) = record.filter(|_| found.id != own) else { continue };
        let taken_back = match book.take_over_dead(&found.id) {
            Ok(Some(unit)) => remove(home, unit, kernel, &mut Vec::new()),
            Ok(None) => match book.take_over(&found.id) {
                Ok(unit) => take_back_standing(device, sysfs, &record, unit, kernel),
                Err(error) => unless_gone(&error, &record),
            },
            Err(error) => unless_gone(&error, &record),
        };
        taken_back.map_err(|failure| of_earlier(failure, device, &record))?;
    }
    Ok(())
}

/// The unit is locked from here on. Its ADD may have ended since the device was looked for: then its container has it.
fn take_back_standing(
    device: &str,
    sysfs: &NetSysfs,
    record: &Record,
    unit: Unit,
    kernel: &mut Kernel,
) -> Result<(), Failure> {
    the_link(sysfs, device)?;
    undo(&unit, kernel, &mut Vec::new())?;
    unit.leave_standing(&record.network).map_err(|error| of_book(&error))
}

fn unless_gone(error: &BookError, record: &Record) -> Result<(), Failure> {
    match error {
        BookError::Unknown { .. } => Ok(()),
        BookError::Held { pid, .. } => Err(busy(&record.container_id, &record.ifname, *pid)),
        error => Err(of_book(error)),
    }
}

/// A failure, and whose the device was.
fn of_earlier(failure: Failure, device: &str, record: &Record) -> Failure {
    let Record { container_id, ifname, network, .. } = record;
    let whose = format!(
        "device {device} was given to interface {ifname} of container {container_id} in network {network}"
    );
    let details = failure.details.into_iter().chain([whose]).collect::<Vec<_>>().join("; ");
    Failure { details: Some(details), ..failure }
}
