//! A network on the node: what its pods share, made by the first of them.

use std::time::{Duration, Instant};

use cni::{ErrorCode, Failure};
use datapath::NodeSpec;
use plan::{BookError, Journal, Kernel, Unit, UnitState, apply, in_use};
use serde::Serialize;

use crate::Home;
use crate::conf::Conf;
use crate::drift::{JOURNAL, drift, journal, made, mend};
use crate::failures::{invalid_conf, of_book, of_file, of_journal, of_plan, refused, with_consequence};
use crate::network_unit::NetworkUnit;
use crate::node_spec::{spec, spec_as_found};
use crate::numbers::Numbers;
use crate::shape::{Shape, leaves_alone};
use crate::unit::{attachments_of, give_up, undo};

/// For another process that makes the same network. It takes milliseconds, of which loading programs takes most, and
/// many times as long on a node whose CPUs have other work. Runtimes wait for minutes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks, at first. It doubles, so that hundreds that wait leave the CPUs to the one that makes it.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Networks that no container of ours is attached to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnusedNetworks {
    /// Those that were taken back.
    pub removed: Vec<String>,
    /// Those that stay, since other programs use what they made.
    pub left: Vec<LeftNetwork>,
}

/// A network that was not taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftNetwork {
    /// The name of the network.
    pub network: String,
    /// What of other programs rests on it: "link cni0 has ports of another program: veth1".
    pub why: String,
}

/// The number of a network, of which names are made. It keeps it as long as the machine runs.
pub(crate) fn take_number(home: &Home, network: &NetworkUnit) -> Result<u16, Failure> {
    let taken = Numbers::at(home.network_numbers()).take(&network.to_string());
    taken.map_err(|error| of_file(&format!("give network {network} a number"), &error))
}

/// The node of a network that could be made: a plan can be, whatever the network's number is.
///
/// # Errors
/// Why none can be.
pub(crate) fn could_be_made(home: &Home, network: &NetworkUnit, conf: &Conf) -> Result<NodeSpec, Failure> {
    let node = spec(home, network, conf, (1, ""))?;
    conf.path.node_plan(&node).map_err(|error| invalid_conf(error.to_string()))?;
    Ok(node)
}

/// Why a configuration is not followed as long as something rests on the network as another one has it.
#[derive(Debug)]
pub(crate) struct Hindrance {
    /// What `ADD` says until then.
    pub(crate) failure: Failure,
    pub(crate) differs: Difference,
}

/// In what a configuration differs from the one by which a network stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    /// In nothing but the subnets.
    Subnets,
    /// In the containers' MTU, and maybe the subnets.
    Mtu,
    Other,
}

/// Why `ADD` would fail with a configuration: attachments rest on the network as another one has it. `None`
/// if it would not.
///
/// # Errors
/// What stands cannot be read.
pub(crate) fn hindrance(
    home: &Home,
    network: &NetworkUnit,
    conf: &Conf,
    node: &NodeSpec,
) -> Result<Option<Hindrance>, Failure> {
    let found = home.networks().find(&network.id()).map_err(|error| of_book(&error))?;
    let stands = found.as_ref().and_then(|found| found.note.as_deref());
    let shape = Shape::of(conf, node);
    let described = shape.to_text();
    let Some(note) = stands.filter(|note| !shape.is_noted(note)) else { return Ok(None) };
    // The plan is to be that of the network itself, which has its number as long as it stands.
    let node = spec(home, network, conf, (take_number(home, network)?, ""))?;
    if leaves_alone(note, conf, &node, || made(home, network))? {
        return Ok(None);
    }
    let mut kernel = home.kernel()?;
    what_rests_on(home, network, "", Some(note), &described, &mut kernel)
}

/// Makes a network that stands as it was made, if it stands; what was otherwise, a phrase each.
///
/// # Errors
/// It cannot be made so again.
pub(crate) fn mend_standing(home: &Home, network: &NetworkUnit) -> Result<Vec<String>, Failure> {
    let found = home.networks().find(&network.id()).map_err(|error| of_book(&error))?;
    if !found.is_some_and(|found| found.state == UnitState::Standing) {
        return Ok(Vec::new());
    }
    let mended = mend(home, network, &mut home.kernel()?)?.unwrap_or_default();
    Ok(mended.iter().map(|drift| format!("network {network} is made again: {drift}")).collect())
}

/// What the configuration says by which a network stands; `None`: it does not.
pub(crate) fn standing(home: &Home, network: &str) -> Option<Shape> {
    let found = home.networks().find(&NetworkUnit::new(network, None).id()).ok().flatten()?;
    Shape::read(found.note.as_ref()?)
}

/// Makes what a network's pods share, unless it stands. What another program has taken away of it is made again. One
/// that stands with another configuration is made anew if it has no attachment but `own`, the one that is being made.
/// Returns the node as drivers see it.
///
/// # Errors
/// It stands with another configuration and has attachments, a step fails, or another process does not come to an end
/// with it; or as of [`spec`].
pub(crate) fn stand(
    home: &Home,
    network: &NetworkUnit,
    conf: &Conf,
    own: &str,
    kernel: &mut Kernel,
) -> Result<NodeSpec, Failure> {
    let found = home.networks().find(&network.id()).map_err(|error| of_book(&error))?;
    let node = spec_as_found(home, network, conf, found.as_ref(), (take_number(home, network)?, own))?;
    // So it is with each pod but the first.
    let stands = found.is_some_and(|found| {
        let is_noted = |note| Shape::of(conf, &node).is_noted(note);
        found.state == UnitState::Standing && found.note.as_deref().is_some_and(is_noted)
    });
    if !stands || drift(home, network, kernel)?.is_some() {
        make_stand(home, network, conf, &node, own, kernel)?;
    }
    Ok(node)
}

fn make_stand(
    home: &Home,
    network: &NetworkUnit,
    conf: &Conf,
    node: &NodeSpec,
    own: &str,
    kernel: &mut Kernel,
) -> Result<(), Failure> {
    let (book, id, shape) = (home.networks(), network.id(), Shape::of(conf, node));
    let described = shape.to_text();
    let (begun, mut pause) = (Instant::now(), PAUSE);
    loop {
        let found = book.find(&id).map_err(|error| of_book(&error))?;
        let found = found.as_ref().map(|found| (found.state, found.note.as_deref()));
        if let Some((UnitState::Standing, Some(note))) = found
            && (shape.is_noted(note) || leaves_alone(note, conf, node, || made(home, network))?)
        {
            if mend(home, network, kernel)?.is_some() {
                return Ok(());
            }
            continue;
        }
        let taken = match found {
            Some((UnitState::Standing, note)) => match book.take_over(&id) {
                // An ADD has a unit before it looks whether its network stands. While this one is held, none is missed.
                Ok(unit) => match what_rests_on(home, network, own, note, &described, kernel)? {
                    Some(Hindrance { failure, .. }) => return Err(failure),
                    None => Ok(Some(unit)),
                },
                Err(error) => Err(error),
            },
            Some((UnitState::Alive, _)) if begun.elapsed() > PATIENCE => {
                let why = format!("network {network} is still being made by another process");
                return Err(Failure::new(ErrorCode::TRY_AGAIN_LATER, why));
            }
            Some((UnitState::Alive, _)) => {
                std::thread::sleep(pause);
                pause = (2 * pause).min(PAUSE_MAX);
                continue;
            }
            Some((UnitState::Dead, _)) => book.take_over_dead(&id),
            None => match book.begin_as(&id) {
                Ok(unit) => return make(unit, conf, node, &described, kernel),
                Err(BookError::Exists { .. }) => continue,
                Err(error) => return Err(of_book(&error)),
            },
        };
        match taken {
            Ok(Some(unit)) => take_back(unit, kernel)?,
            // Another process was faster.
            Ok(None) | Err(BookError::Held { .. } | BookError::Unknown { .. }) => {}
            Err(error) => return Err(of_book(&error)),
        }
    }
}

fn make(
    unit: Unit,
    conf: &Conf,
    node: &NodeSpec,
    described: &str,
    kernel: &mut Kernel,
) -> Result<(), Failure> {
    let plan = conf.path.node_plan(node).map_err(|error| invalid_conf(error.to_string()));
    let made = plan.and_then(|plan| {
        let mut journal = unit.journal(JOURNAL).map_err(|error| of_journal(&error))?;
        apply(&plan, &mut journal, kernel).map_err(|error| of_plan(&plan, &error))
    });
    match made {
        Ok(_) => unit.leave_standing(described).map_err(|error| of_book(&error)),
        Err(failure) => Err(with_consequence(failure, take_back(unit, kernel))),
    }
}

fn take_back(mut unit: Unit, kernel: &mut Kernel) -> Result<(), Failure> {
    give_up(&mut unit)?;
    undo(&unit, kernel, &mut Vec::new())?;
    unit.end().map_err(|error| of_book(&error))
}

/// The attachments or links of other programs that rest on what stands, for which another configuration has to wait.
fn what_rests_on(
    home: &Home,
    network: &NetworkUnit,
    own: &str,
    stands: Option<&str>,
    described: &str,
    kernel: &mut Kernel,
) -> Result<Option<Hindrance>, Failure> {
    let rests = match attachments_of(home, network, own)? {
        0 => in_use_by_others(home, network, kernel)?,
        used => Some(format!("{used} attachments rest on it")),
    };
    let Some(rests) = rests else { return Ok(None) };
    let shapes = stands.and_then(Shape::read).zip(Shape::read(described));
    let differs = match &shapes {
        Some((noted, wanted)) if wanted.is_but_for_subnets(noted) => Difference::Subnets,
        Some((noted, wanted)) if wanted.may_join(noted) => Difference::Mtu,
        _ => Difference::Other,
    };
    let why = match shapes.filter(|_| differs != Difference::Other) {
        Some((noted, wanted)) => {
            let words =
                |shape: &Shape| if differs == Difference::Mtu { shape.mtu_words() } else { shape.subnets() };
            format!(
                "network {network} stands on this node for {}, and {rests}; it is made anew for {} when nothing rests on it \
                 any more",
                words(&noted),
                words(&wanted)
            )
        }
        None => format!(
            "network {network} stands on this node with another configuration, and {rests}; take them back first, or use \
             another name"
        ),
    };
    let stands = stands.unwrap_or("nothing known");
    let details = Some(format!("it stands as {stands}; the configuration says {described}"));
    Ok(Some(Hindrance { failure: Failure { details, ..invalid_conf(why) }, differs }))
}

/// What of other programs rests on what a network shares, as a phrase. A journal that cannot be read says so when it is
/// undone.
fn in_use_by_others(
    home: &Home,
    network: &NetworkUnit,
    kernel: &mut Kernel,
) -> Result<Option<String>, Failure> {
    let Ok(journal) = Journal::open(&journal(home, network)) else { return Ok(None) };
    in_use(&journal, kernel).map_err(|error| refused(&error))
}

impl Home {
    /// Takes back what containers shared in networks that none is attached to any more, and says which networks those
    /// were. One that links of other programs rest on stays.
    ///
    /// # Errors
    /// The first that cannot be taken back.
    pub fn remove_unused_networks(&self) -> Result<UnusedNetworks, Failure> {
        let book = self.networks();
        let mut kernel = self.kernel()?;
        let mut unused = UnusedNetworks::default();
        for found in book.units().map_err(|error| of_book(&error))? {
            let Some(network) = NetworkUnit::from_id(&found.id) else { continue };
            let unit = match book.take_over(&found.id) {
                Ok(unit) => unit,
                Err(BookError::Held { .. } | BookError::Unknown { .. }) => continue,
                Err(error) => return Err(of_book(&error)),
            };
            // As in `make_stand`: while this one is held, no ADD is missed.
            if attachments_of(self, &network, "")? > 0 {
                continue;
            }
            match in_use_by_others(self, &network, &mut kernel)? {
                Some(why) => unused.left.push(LeftNetwork { network: network.to_string(), why }),
                None => {
                    take_back(unit, &mut kernel)?;
                    unused.removed.push(network.to_string());
                }
            }
        }
        Ok(unused)
    }
}
