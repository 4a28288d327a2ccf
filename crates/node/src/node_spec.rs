//! The node as drivers see it: what a configuration says of it, what the machine is like, and what a
//! network that stands keeps.

use cni::Failure;
use datapath::{Family, Network, NodeSpec};
use plan::{FoundUnit, Place};

use crate::conf::Conf;
use crate::failures::{invalid_conf, refused};
use crate::network_unit::NetworkUnit;
use crate::shape::Shape;
use crate::underlay::{LOOPBACK, Underlay, number};
use crate::unit::attachments_of;
use crate::{Home, routers};

/// The port of VXLAN where flannel has it. No attach alone has a tunnel.
const PORT: u16 = 8472;

/// The node as drivers see it, in a network of this number. Where the configuration leaves the wire and the
/// node's number open, those of a network that stands stay, though the default route or the node's address may
/// be another by now.
///
/// # Errors
/// The link to other nodes is not found, or no number of the node follows from its address.
pub(crate) fn spec(
    home: &Home,
    network: &NetworkUnit,
    conf: &Conf,
    (id, own): (u16, &str),
) -> Result<NodeSpec, Failure> {
    let stands = home.networks().find(&network.id()).ok().flatten();
    spec_as_found(home, network, conf, stands.as_ref(), (id, own))
}

/// The same, where it is known already whether the network stands.
///
/// # Errors
/// As of [`spec`].
pub(crate) fn spec_as_found(
    home: &Home,
    network: &NetworkUnit,
    conf: &Conf,
    stands: Option<&FoundUnit>,
    (id, own): (u16, &str),
) -> Result<NodeSpec, Failure> {
    let noted = stands.and_then(|found| Shape::read(found.note.as_ref()?));
    let mut node = spec_beside(noted.as_ref(), conf, id)?;
    keep_mtu(home, network, conf, (noted.as_ref(), own), &mut node)?;
    Ok(node)
}

/// Leaves new containers the MTU of those that are attached where they share something that has it, such as a bridge:
/// though the wire takes more by now, a neighbour would not get a packet of that size, and nothing would say so. `own`
/// is the attachment that is being made.
fn keep_mtu(
    home: &Home,
    network: &NetworkUnit,
    conf: &Conf,
    (noted, own): (Option<&Shape>, &str),
    node: &mut NodeSpec,
) -> Result<(), Failure> {
    let noted = noted.filter(|_| conf.mtu.is_none()).and_then(|noted| noted.wire_mtu);
    // Why there is none is said when the plan is made.
    let (Some(noted), Ok(now)) = (noted, conf.path.pod_mtu(node)) else { return Ok(()) };
    if now <= noted {
        return Ok(());
    }
    let narrow = Network { mtu: Some(noted), ..node.network.clone() };
    let narrow = NodeSpec { network: narrow, ..node.clone() };
    let steps = |node: &NodeSpec| conf.path.node_plan(node).map(|plan| plan.steps).ok();
    if steps(node) != steps(&narrow) && attachments_of(home, network, own)? > 0 {
        *node = narrow;
    }
    Ok(())
}

fn spec_beside(noted: Option<&Shape>, conf: &Conf, id: u16) -> Result<NodeSpec, Failure> {
    let needs_wire = conf.path.attach.needs_wire();
    // A network that began without a wire takes the one that has come since.
    let known = noted.map(|noted| &noted.wire).filter(|wire| wire.as_str() != LOOPBACK);
    let wire = conf.wire.as_ref().or(known);
    let underlay = match Underlay::find(wire, needs_wire) {
        // The noted one is gone.
        Err(_) if conf.wire.is_none() && wire.is_some() => Underlay::find(None, needs_wire),
        found => found,
    };
    let underlay = underlay
        .map_err(|why| invalid_conf(format!("find the link to other nodes: {why}; `wire` names it")))?;
    // Of it the Ethernet addresses of what stands are made.
    let noted = noted.filter(|noted| !needs_wire || noted.wire == underlay.wire).map(|noted| noted.node);
    let node = conf.node.or(noted).or_else(|| number(&underlay.addresses));
    let node =
        node.ok_or_else(|| invalid_conf("`node` is not set, and no number follows from the node's address"))?;
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
            anti_spoofing: conf.anti_spoofing,
            bridge: conf.bridge.clone(),
            tunnel: None,
            isolates_pods: conf.port_isolation,
            services: true,
            refuses_routers: routers::are_refused(conf).map_err(|error| refused(&error))?,
            host_link: conf.host_link,
        },
        tunnel_mac: None,
        tunnel_key: None,
        router: None,
        poll_cpus: linux::CpuSet::default(),
    })
}
