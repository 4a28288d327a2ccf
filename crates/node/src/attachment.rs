//! The attachment of a container to a network: made, looked at, and taken back by its journal.

use std::fmt::Display;
use std::fs;

use cni::{Attached, AttachedAddress, AttachedRoute, Attachment, ErrorCode, Failure, Interface};
use datapath::{NodeSpec, Pod};
use ipam::{IpamError, Key, Reserved, Store};
use linux::netlink::Netlink;
use linux::{IfName, LinkKind, Netns, NetnsPath};
use plan::{BookError, Journal, Kernel, Made, Place, Plan, Step, Unit, UnitState, apply, outstanding};

use crate::Home;
use crate::conf::Conf;
use crate::network::{self, book_failure};
use crate::numbers::Numbers;

/// The file of a unit that holds its number.
const NUMBER: &str = "number";
/// The code of our own failures: the kernel refused a step.
const REFUSED_BY_KERNEL: ErrorCode = ErrorCode(100);
/// The code of our own failures: something is not as ADD left it.
const CHANGED: ErrorCode = ErrorCode(101);

/// Joins a container to a network.
///
/// # Errors
/// Whatever was done until then is taken back.
pub(crate) fn add(
    home: &Home,
    network: &str,
    conf: &Conf,
    attachment: &Attachment,
) -> Result<Attached, Failure> {
    let mut kernel = Kernel::new().map_err(|error| kernel_failure(&error))?;
    let (place, netns) = open(attachment)?;
    let unit = begin(home, &id_of(&attachment.container_id, &attachment.ifname), &mut kernel)?;
    match join(home, network, conf, attachment, &place, &unit, &mut kernel) {
        Ok((plan, reserved)) => {
            let attached = describe(&plan, &reserved, attachment, &netns)?;
            unit.leave_standing(network).map_err(|error| book_failure(&error))?;
            Ok(attached)
        }
        Err(failure) => {
            remove(home, unit, &mut kernel)?;
            release(home, network, &attachment.container_id, &attachment.ifname)?;
            Err(failure)
        }
    }
}

fn join(
    home: &Home,
    network: &str,
    conf: &Conf,
    attachment: &Attachment,
    place: &Place,
    unit: &Unit,
    kernel: &mut Kernel,
) -> Result<(Plan, Vec<Reserved>), Failure> {
    let ifname = IfName::new(&attachment.ifname)
        .map_err(|error| Failure::new(ErrorCode::INVALID_ENVIRONMENT, format!("CNI_IFNAME: {error}")))?;
    let node = network::spec(home, network, conf)?;
    network::stand(home, network, conf, &node, kernel)?;
    let id = number(home, unit)?;
    let reserved = key(attachment).and_then(|key| store(home, network)?.reserve(&key, &conf.ranges, &[]));
    let reserved = reserved.map_err(|error| address_failure(&error))?;
    let pod = Pod {
        id,
        place: place.clone(),
        ifname,
        addresses: reserved.iter().map(|one| one.address.addr()).collect(),
        default_route: conf.default_route,
        published: Vec::new(),
    };
    let plan = pod_plan(conf, &node, &pod)?;
    let mut journal = unit.journal("pod").map_err(|error| kernel_failure(&error))?;
    apply(&plan, &mut journal, kernel).map_err(|error| kernel_failure(&error))?;
    Ok((plan, reserved))
}

fn pod_plan(conf: &Conf, node: &NodeSpec, pod: &Pod) -> Result<Plan, Failure> {
    let invalid =
        |error: datapath::SpecError| Failure::new(ErrorCode::INVALID_NETWORK_CONFIG, error.to_string());
    conf.path.pod_plan(node, pod).map_err(invalid)
}

/// Takes an attachment back. It is no failure if there is none, or none any more.
///
/// # Errors
/// Another process works on it, a step cannot be undone, or an address cannot be released.
pub(crate) fn del(home: &Home, network: &str, container_id: &str, ifname: &str) -> Result<(), Failure> {
    let book = home.attachments();
    match book.take_over(&id_of(container_id, ifname)) {
        Ok(unit) => {
            let mut kernel = Kernel::new().map_err(|error| kernel_failure(&error))?;
            remove(home, unit, &mut kernel)?;
        }
        Err(BookError::Unknown { .. }) => {}
        Err(BookError::Held { pid, .. }) => return Err(busy(container_id, ifname, pid)),
        Err(error) => return Err(book_failure(&error)),
    }
    release(home, network, container_id, ifname)
}

fn release(home: &Home, network: &str, container_id: &str, ifname: &str) -> Result<(), Failure> {
    let released = Key::new(container_id, ifname).and_then(|key| store(home, network)?.release(&key));
    released.map(drop).map_err(|error| address_failure(&error))
}

/// Compares an attachment with what ADD left.
///
/// # Errors
/// There is none, or the first thing that is otherwise.
pub(crate) fn check(home: &Home, network: &str, attachment: &Attachment) -> Result<(), Failure> {
    let changed = |why: String| Failure::new(CHANGED, why);
    let what = format!("interface {} of container {}", attachment.ifname, attachment.container_id);
    let id = id_of(&attachment.container_id, &attachment.ifname);
    let found = home.attachments().find(&id).map_err(|error| book_failure(&error))?;
    if !found.is_some_and(|found| found.state == UnitState::Standing) {
        return Err(Failure::new(ErrorCode::UNKNOWN_CONTAINER, format!("{what} was not added here")));
    }
    open(attachment)?;
    let mut kernel = Kernel::new().map_err(|error| kernel_failure(&error))?;
    let path = home.attachments().path().join(&id).join("pod.journal");
    let journal = Journal::open(&path).map_err(|error| kernel_failure(&error))?;
    let steps = outstanding(&journal).into_iter().rev().cloned().collect();
    let (_, drifts) = Made::of(&Plan { steps }, &mut kernel).map_err(|error| kernel_failure(&error))?;
    if let Some(drift) = drifts.first() {
        return Err(changed(format!("{what}: {drift}")));
    }
    let reserved = key(attachment).and_then(|key| store(home, network)?.reserved(&key));
    let reserved = reserved.map_err(|error| address_failure(&error))?;
    if reserved.is_empty() {
        return Err(changed(format!("{what}: its addresses are no longer reserved")));
    }
    Ok(())
}

/// Takes back all attachments to a network but those that are valid. Returns what could not be done.
pub(crate) fn keep_only(home: &Home, network: &str, valid: &[(String, String)]) -> Vec<String> {
    let valid_ids: Vec<String> = valid.iter().map(|(container, ifname)| id_of(container, ifname)).collect();
    let mut failures = Vec::new();
    let units = match home.attachments().units() {
        Ok(units) => units,
        Err(error) => return vec![error.to_string()],
    };
    // A dead ADD has no note; whichever network it was for, nothing of it is valid.
    let of_network = units.into_iter().filter(|unit| match unit.state {
        UnitState::Alive => false,
        UnitState::Dead => true,
        UnitState::Standing => unit.note.as_deref() == Some(network),
    });
    let mut kernel = match Kernel::new() {
        Ok(kernel) => kernel,
        Err(error) => return vec![error.to_string()],
    };
    for found in of_network.filter(|unit| !valid_ids.contains(&unit.id)) {
        match home.attachments().take_over(&found.id) {
            Ok(unit) => {
                failures.extend(remove(home, unit, &mut kernel).err().map(|failure| failure.to_string()));
            }
            Err(BookError::Unknown { .. } | BookError::Held { .. }) => {}
            Err(error) => failures.push(error.to_string()),
        }
    }
    let keys =
        valid.iter().map(|(container, ifname)| Key::new(container, ifname)).collect::<Result<Vec<_>, _>>();
    let released = keys.and_then(|keys| store(home, network)?.keep_only(&keys));
    failures.extend(released.err().map(|error| error.to_string()));
    failures
}

/// The addresses of a network.
pub(crate) fn store(home: &Home, network: &str) -> Result<Store, IpamError> {
    Store::open(home.leases(), network)
}

/// Opens the container's namespace.
fn open(attachment: &Attachment) -> Result<(Place, Netns), Failure> {
    let path = attachment.netns.clone().unwrap_or_default();
    let wrong = |why: String| Failure::new(ErrorCode::INVALID_ENVIRONMENT, format!("CNI_NETNS: {why}"));
    let path = NetnsPath::new(path).map_err(|error| wrong(error.to_string()))?;
    let netns = Netns::open_path(&path).map_err(|error| wrong(error.to_string()))?;
    let own = Netns::current().and_then(|own| Ok(own.inode()? == netns.inode()?));
    match own {
        Ok(false) => Ok((Place::Path(path), netns)),
        Ok(true) => Err(wrong(format!("{path} is the node's own namespace"))),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// Begins the unit of an attachment. What a dead process left of it is taken back first.
fn begin(home: &Home, id: &str, kernel: &mut Kernel) -> Result<Unit, Failure> {
    let book = home.attachments();
    loop {
        match book.begin_as(id) {
            Err(BookError::Exists { .. }) => {}
            begun => return begun.map_err(|error| book_failure(&error)),
        }
        match book.take_over_dead(id) {
            Ok(Some(unit)) => remove(home, unit, kernel)?,
            Ok(None) => {
                return Err(Failure::new(
                    ErrorCode::INVALID_ENVIRONMENT,
                    format!("{id} is attached already; DEL takes it back"),
                ));
            }
            Err(BookError::Unknown { .. }) => {}
            Err(BookError::Held { pid, .. }) => {
                let (container, ifname) = id.rsplit_once('.').unwrap_or((id, ""));
                return Err(busy(container, ifname, pid));
            }
            Err(error) => return Err(book_failure(&error)),
        }
    }
}

/// Takes a unit of an attachment back, and gives back its number.
fn remove(home: &Home, unit: Unit, kernel: &mut Kernel) -> Result<(), Failure> {
    let number = fs::read_to_string(unit.dir().join(NUMBER)).ok().and_then(|text| text.parse().ok());
    let id = unit.id().to_owned();
    take_back(unit, kernel)?;
    let Some(number) = number else { return Ok(()) };
    let given_back = Numbers::at(home.attachment_numbers()).give_back(number, &id);
    given_back.map_err(|error| io_failure(&format!("give back the number of {id}"), &error))
}

/// Undoes all journals of a unit and ends it.
pub(crate) fn take_back(unit: Unit, kernel: &mut Kernel) -> Result<(), Failure> {
    for journal in unit.take_back(kernel).map_err(|error| book_failure(&error))? {
        let steps = journal.steps.map_err(|error| kernel_failure(&error))?;
        let failed = steps.into_iter().find_map(|(placed, undone)| match undone {
            plan::Undone::Failed { why } => Some(format!("undo {}: {why}", placed.commands().join("; "))),
            _ => None,
        });
        if let Some(why) = failed {
            return Err(Failure::new(REFUSED_BY_KERNEL, why));
        }
    }
    unit.end().map_err(|error| book_failure(&error))
}

/// The unit's number, which links and Ethernet addresses are made of.
fn number(home: &Home, unit: &Unit) -> Result<u16, Failure> {
    let what = || format!("give {} a number", unit.id());
    let number = Numbers::at(home.attachment_numbers()).take(unit.id());
    let number = number.map_err(|error| io_failure(&what(), &error))?;
    fs::write(unit.dir().join(NUMBER), number.to_string()).map_err(|error| io_failure(&what(), &error))?;
    Ok(number)
}

/// The name of the unit. Letters, digits and `_` of an interface's name stand for themselves and all else as `-` with its
/// code, so that the last dot is the one between the two.
fn id_of(container_id: &str, ifname: &str) -> String {
    let encoded = ifname.bytes().map(|byte| match byte {
        byte if byte.is_ascii_alphanumeric() || byte == b'_' => char::from(byte).to_string(),
        other => format!("-{other:02x}"),
    });
    format!("{container_id}.{}", encoded.collect::<String>())
}

fn key(attachment: &Attachment) -> Result<Key, IpamError> {
    Key::new(&attachment.container_id, &attachment.ifname)
}

/// What a plan made, as the kernel has it.
fn describe(
    plan: &Plan,
    reserved: &[Reserved],
    attachment: &Attachment,
    netns: &Netns,
) -> Result<Attached, Failure> {
    let read = |netlink: Result<Netlink, linux::Error>, name: &IfName, sandbox: Option<String>| {
        let link = netlink.and_then(|netlink| netlink.link(name)).map_err(|error| kernel_failure(&error))?;
        let link = link.ok_or_else(|| Failure::new(CHANGED, format!("link {name} is gone already")))?;
        let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
        Ok::<_, Failure>(Interface { name: name.to_string(), mac, mtu: link.mtu, sandbox })
    };
    let mut attached = Attached::default();
    let node_end = plan.steps.iter().find_map(|placed| match &placed.step {
        Step::AddLink(link) if matches!(link.kind, LinkKind::Veth { .. } | LinkKind::Netkit { .. }) => {
            Some(&link.name)
        }
        _ => None,
    });
    if let Some(name) = node_end {
        attached.interfaces.push(read(Netlink::open(), name, None)?);
    }
    let inside = IfName::new(&attachment.ifname).map_err(|error| Failure::new(CHANGED, error.to_string()))?;
    attached.interfaces.push(read(Netlink::open_in(netns), &inside, attachment.netns.clone())?);
    let interface = attached.interfaces.len() - 1;
    for placed in plan.steps.iter().filter(|placed| placed.place != Place::Host) {
        match &placed.step {
            Step::AddAddress { address, .. }
                if reserved.iter().any(|one| one.address.addr() == address.addr()) =>
            {
                attached.ips.push(AttachedAddress { address: *address, gateway: None, interface });
            }
            Step::AddRoute(route) => attached.routes.push(AttachedRoute { dst: route.dst, gw: route.via }),
            _ => {}
        }
    }
    for ip in &mut attached.ips {
        let hop = attached.routes.iter().filter_map(|route| route.gw);
        ip.gateway = hop.into_iter().find(|gw| gw.is_ipv4() == ip.address.addr().is_ipv4());
    }
    Ok(attached)
}

fn busy(container_id: &str, ifname: &str, pid: u32) -> Failure {
    Failure::new(
        ErrorCode::TRY_AGAIN_LATER,
        format!("process {pid} works on interface {ifname} of container {container_id}"),
    )
}

pub(crate) fn kernel_failure(error: &impl Display) -> Failure {
    Failure::new(REFUSED_BY_KERNEL, error.to_string())
}

fn io_failure(attempted: &str, error: &std::io::Error) -> Failure {
    Failure::new(ErrorCode::IO_FAILURE, format!("{attempted}: {error}"))
}

pub(crate) fn address_failure(error: &IpamError) -> Failure {
    let code = match error {
        IpamError::NoneLeft { .. } => ErrorCode::TRY_AGAIN_LATER,
        IpamError::BadKey { .. } | IpamError::HasAlready { .. } => ErrorCode::INVALID_ENVIRONMENT,
        IpamError::NotInRange { .. } | IpamError::Gateway { .. } | IpamError::SecondOfSet { .. } => {
            ErrorCode::INVALID_NETWORK_CONFIG
        }
        IpamError::File { .. }
        | IpamError::Reserve { .. }
        | IpamError::BadNetwork { .. }
        | IpamError::Taken { .. }
        | IpamError::Unreleased { .. } => ErrorCode::IO_FAILURE,
    };
    Failure { details: error.remedy().map(str::to_owned), ..Failure::new(code, error.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_attachments_have_one_name() {
        assert_eq!(id_of("c1", "eth0"), "c1.eth0");
        assert_eq!(id_of("a", "b.c"), "a.b-2ec");
        assert_ne!(id_of("a", "b.c"), id_of("a.b", "c"));
        assert_ne!(id_of("a", "b-2ec"), id_of("a", "b.c"));
    }
}
