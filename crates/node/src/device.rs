//! The device that a configuration or a runtime names for a container.

use cni::Failure;
use datapath::Device;
use linux::Netns;
use linux::sysfs::{FunctionCard, NetSysfs};
use plan::SetFunction;

use crate::conf::Conf;
use crate::failures::{invalid_conf, refused, unsupported};

/// The link of a device, by the device's address on its bus, and the rules that the configuration has for it.
///
/// # Errors
/// Code 7: the node has no such device, or it has several links. Code 2: there are rules for what is no virtual function, or
/// for one whose card has no link here.
pub(crate) fn find(id: &str, conf: &Conf) -> Result<Device, Failure> {
    let sysfs = Netns::current().and_then(|netns| NetSysfs::open(&netns)).map_err(|error| refused(&error))?;
    let links = sysfs.links_of(id).map_err(|error| refused(&error))?;
    let link = match links.as_slice() {
        [link] => link.clone(),
        [] => {
            let why =
                format!("`deviceID` is {id:?}, and no link of this node belongs to a device of that address");
            return Err(invalid_conf(why));
        }
        several => {
            let names: Vec<&str> = several.iter().map(linux::IfName::as_str).collect();
            let why =
                format!("`deviceID` is {id:?}, whose links are {}; one is expected", names.join(" and "));
            return Err(invalid_conf(why));
        }
    };
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
            let names = links.iter().map(linux::IfName::as_str).collect::<Vec<_>>().join(" and ");
            return Err(refusal(&format!(
                "nothing says which link of its card is that of {link} ({id}): {names}"
            )));
        }
    };
    let number = function.number;
    let (vlan, spoof_check) = (conf.vlan, conf.spoof_check);
    Ok(Device { link, rules: Some(SetFunction { link: card, number, vlan, spoof_check }) })
}
