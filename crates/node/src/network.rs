//! A network on the node: what its pods share, made by the first of them.

use std::time::{Duration, Instant};

use cni::{ErrorCode, Failure};
use datapath::{Family, Network, NodeSpec};
use plan::{BookError, Kernel, Place, Unit, UnitState, apply};
use serde_json::json;

use crate::Home;
use crate::attachment::{kernel_failure, take_back};
use crate::conf::Conf;
use crate::numbers::Numbers;
use crate::underlay::{Underlay, number};

/// For another process that makes the same network. It takes milliseconds; loading programs takes longest.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);
/// The port of VXLAN where flannel has it. No attach alone has a tunnel.
const PORT: u16 = 8472;

/// The node as drivers see it.
///
/// # Errors
/// The link to other nodes is not found, or numbers cannot be given.
pub(crate) fn spec(home: &Home, name: &str, conf: &Conf) -> Result<NodeSpec, Failure> {
    let own = |why: String| Failure::new(ErrorCode::INVALID_NETWORK_CONFIG, why);
    let underlay = Underlay::find(conf.wire.as_ref())
        .map_err(|why| own(format!("find the link to other nodes: {why}; `wire` names it")))?;
    let id = Numbers::at(home.network_numbers()).take(name).map_err(|error| {
        Failure::new(ErrorCode::IO_FAILURE, format!("give network {name} a number: {error}"))
    })?;
    let node = conf.node.or_else(|| number(&underlay.addresses));
    let node =
        node.ok_or_else(|| own("`node` is not set, and no number follows from its address".to_owned()))?;
    let outer = underlay.addresses.families().first().copied().unwrap_or(Family::V4);
    Ok(NodeSpec {
        id: node,
        place: Place::Host,
        wire: underlay.wire,
        wire_mtu: underlay.mtu,
        underlay: underlay.addresses,
        outer,
        pods: conf.pods.clone(),
        network: Network {
            id,
            prefixes: conf.prefixes.clone(),
            vni: u32::from(id),
            port: PORT,
            mtu: conf.mtu,
            masquerade: conf.masquerade,
        },
        router: None,
    })
}

/// Makes what a network's pods share, unless it stands.
///
/// # Errors
/// It stands with another configuration, a step fails, or another process does not come to an end with it.
pub(crate) fn stand(
    home: &Home,
    name: &str,
    conf: &Conf,
    node: &NodeSpec,
    kernel: &mut Kernel,
) -> Result<(), Failure> {
    let (book, described) = (home.networks(), described(conf, node));
    let begun = Instant::now();
    loop {
        match book.find(name).map_err(|error| book_failure(&error))?.map(|found| (found.state, found.note)) {
            Some((UnitState::Standing, note)) => return check(name, note.as_deref(), &described),
            Some((UnitState::Alive, _)) if begun.elapsed() > PATIENCE => {
                return Err(Failure::new(
                    ErrorCode::TRY_AGAIN_LATER,
                    format!("network {name} is still being made by another process"),
                ));
            }
            Some((UnitState::Alive, _)) => std::thread::sleep(PAUSE),
            Some((UnitState::Dead, _)) => match book.take_over_dead(name) {
                Ok(Some(unit)) => take_back(unit, kernel)?,
                // Another process was faster.
                Ok(None) | Err(BookError::Held { .. } | BookError::Unknown { .. }) => {}
                Err(error) => return Err(book_failure(&error)),
            },
            None => match book.begin_as(name) {
                Ok(unit) => return make(unit, conf, node, &described, kernel),
                Err(BookError::Exists { .. }) => {}
                Err(error) => return Err(book_failure(&error)),
            },
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
    let made = conf.path.node_plan(node).map_err(|error| invalid(&error)).and_then(|plan| {
        let mut journal = unit.journal("network").map_err(|error| kernel_failure(&error))?;
        apply(&plan, &mut journal, kernel).map_err(|error| kernel_failure(&error))
    });
    match made {
        Ok(_) => unit.leave_standing(described).map_err(|error| book_failure(&error)),
        Err(failure) => {
            take_back(unit, kernel)?;
            Err(failure)
        }
    }
}

/// What must be the same for all pods of a network.
fn described(conf: &Conf, node: &NodeSpec) -> String {
    let list = |prefixes: &datapath::Prefixes| prefixes.iter().map(|net| net.to_string()).collect::<Vec<_>>();
    json!({
        "attach": conf.path.name,
        "wire": node.wire.as_str(),
        "mtu": conf.mtu,
        "masquerade": conf.masquerade,
        "prefixes": list(&node.network.prefixes),
        "pods": list(&node.pods),
    })
    .to_string()
}

fn check(name: &str, note: Option<&str>, described: &str) -> Result<(), Failure> {
    if note == Some(described) {
        return Ok(());
    }
    let stands = note.unwrap_or("nothing known");
    Err(Failure {
        details: Some(format!("it stands as {stands}; the configuration says {described}")),
        ..Failure::new(
            ErrorCode::INVALID_NETWORK_CONFIG,
            format!(
                "network {name} stands on this node with another configuration; remove it first, or use another name"
            ),
        )
    })
}

fn invalid(error: &datapath::SpecError) -> Failure {
    Failure::new(ErrorCode::INVALID_NETWORK_CONFIG, error.to_string())
}

pub(crate) fn book_failure(error: &BookError) -> Failure {
    Failure::new(ErrorCode::IO_FAILURE, error.to_string())
}
