//! Where the settings of a candidate go: the two sides of its topology.

use std::net::IpAddr;

use datapath::{Family, NodeSpec, Pod, Reach, SocketRole, SpecError};
use ipnet::IpNet;
use linux::interrupts::Interrupt;
use linux::qdisc::Tbf;
use linux::{IfName, Qdisc};
use plan::{Place, Plan, Set, SetRootQdisc, Step};
use record::{Placement, Side};
use tune::{Lives, Nic, Setting, Settings, Site, Value};

use crate::{ByRole, LabError, Shape, card_look};

/// The shape with the MTU that its settings ask for.
pub(crate) fn with_its_mtu(mut shape: Shape) -> Result<Shape, SpecError> {
    if !uses(&shape.settings, |lives| lives == Lives::Mtu) {
        return Ok(shape);
    }
    match shape.settings.of_both(Lives::Mtu) {
        Some(Value::Number(mtu)) => {
            shape.mtu_bytes = u32::try_from(*mtu).expect("the table keeps it within 32 bits");
            Ok(shape)
        }
        _ => {
            Err(refused("mtu", "a wire has one for both of its ends: set it for both sides, with `tune.mtu`"))
        }
    }
}

/// The node of a side, its pod and the namespace of its process.
type Whereabouts<'a> = (&'a NodeSpec, &'a Pod, &'a Place);

/// Adds what makes the settings, once everything else is planned: all of it to `plan`, or the server's to `there`,
/// where that side is another machine's.
pub(crate) fn extend(
    shape: &Shape,
    sides: &ByRole<Whereabouts<'_>>,
    plan: &mut Plan,
    there: Option<&mut Plan>,
) -> Result<(), SpecError> {
    possible(shape)?;
    let client = plan_of(shape, SocketRole::Client, sides, plan)?;
    let server = plan_of(shape, SocketRole::Server, sides, there.as_deref().unwrap_or(plan))?;
    match there {
        None => add(plan, together([client, server])),
        Some(there) => {
            add(plan, client);
            add(there, server);
        }
    }
    Ok(())
}

fn plan_of(
    shape: &Shape,
    here: SocketRole,
    sides: &ByRole<Whereabouts<'_>>,
    plan: &Plan,
) -> Result<Plan, SpecError> {
    let there = match here {
        SocketRole::Client => SocketRole::Server,
        SocketRole::Server => SocketRole::Client,
    };
    let settings = of(&shape.settings, here);
    let (node, _, process) = *sides.of(here);
    let process = process.clone();
    let routes = routes(plan, &process, &others_addresses(shape, there, *sides.of(there)));
    if routes.is_empty() && settings.iter().any(is_of_route) {
        return Err(refused("routes", "no route is known that leads from the one side to the other"));
    }
    let nic = nic(shape.nic(here), settings);
    if let Some((setting, why)) =
        settings.iter().find_map(|setting| Some((setting, setting.refused_by(&nic)?)))
    {
        return Err(SpecError { what: format!("{} = {}", setting.knob.id, setting.value), why });
    }
    let (node, wire) = (node.place.clone(), node.wire.clone());
    let site = Site { process, routes, node, wire, cpus: shape.cpus.of(here).clone(), nic };
    // What makes queues comes before what is set at them.
    let mut ranked: Vec<&Setting> = settings.iter().collect();
    ranked.sort_by_key(|setting| setting.rank());
    let mut made = Plan::new();
    ranked.into_iter().for_each(|setting| made.extend(setting.plan(&site)));
    Ok(made)
}

/// A side's node alone, for what is set at the node itself and at its card.
pub(crate) fn site_of_node(shape: &Shape, part: SocketRole, (place, wire): (&Place, &IfName)) -> Site {
    Site {
        process: place.clone(),
        routes: Vec::new(),
        node: place.clone(),
        wire: wire.clone(),
        cpus: shape.cpus.of(part).clone(),
        nic: nic(shape.nic(part), of(&shape.settings, part)),
    }
}

/// Both sides' in one plan, for one machine: what both have in one namespace, or of the machine, once.
fn together(sides: [Plan; 2]) -> Plan {
    let mut made = Plan::new();
    for placed in sides.into_iter().flat_map(|plan| plan.steps) {
        if !made.steps.contains(&placed) {
            made.steps.push(placed);
        }
    }
    made
}

/// A side's settings.
pub(crate) fn of(settings: &Settings, part: SocketRole) -> &[Setting] {
    match part {
        SocketRole::Client => &settings.client,
        SocketRole::Server => &settings.server,
    }
}

/// Whether it is a property of the routes to the other side.
pub(crate) fn is_of_route(setting: &Setting) -> bool {
    matches!(setting.lives, Lives::Route(_))
}

/// What gives interrupts of cards their CPUs, once the cards are up and their drivers have said which they are.
pub(crate) fn interrupts(
    shape: &Shape,
    nodes: &ByRole<NodeSpec>,
    found: &ByRole<Vec<Interrupt>>,
) -> Result<Plan, SpecError> {
    let mut made = Plan::new();
    for part in [SocketRole::Client, SocketRole::Server] {
        made.extend(interrupts_of(shape, part, nodes.of(part), found.of(part))?);
    }
    Ok(made)
}

/// The same of one side's card.
fn interrupts_of(
    shape: &Shape,
    part: SocketRole,
    node: &NodeSpec,
    found: &[Interrupt],
) -> Result<Plan, SpecError> {
    let mut site = site_of_node(shape, part, (&node.place, &node.wire));
    site.nic.interrupts = found.to_vec();
    let mut made = Plan::new();
    for setting in placing(of(&shape.settings, part)) {
        let steps = setting.plan(&site);
        if steps.steps.is_empty() {
            return Err(refused("interrupts", "the card has none that belongs to a queue"));
        }
        made.extend(steps);
    }
    Ok(made)
}

/// The same of the card of this machine, where the other side's is another machine's.
pub(crate) fn own_interrupts(shape: &Shape, part: SocketRole, node: &NodeSpec) -> Result<Plan, LabError> {
    if placing(of(&shape.settings, part)).next().is_none() {
        return Ok(Plan::new());
    }
    let found = card_look::interrupts_of(&node.place, &node.wire)?;
    Ok(interrupts_of(shape, part, node, &found)?)
}

/// The same for people who read, who have no numbers of interrupts before the cards are up.
pub(crate) fn interrupts_in_words(settings: &Settings) -> Vec<String> {
    let Settings { client, server } = settings;
    let of = |whose: &'static str, settings: &[Setting]| -> Vec<String> {
        let line = |setting: &Setting| {
            let cpus = &setting.value;
            format!(
                "# when the {whose}'s card is up: /proc/irq/N/smp_affinity_list of its queues, one CPU of {cpus} each in turn"
            )
        };
        placing(settings).map(line).collect()
    };
    [of("client", client), of("server", server)].concat()
}

fn placing(settings: &[Setting]) -> impl Iterator<Item = &Setting> {
    settings.iter().filter(|setting| setting.lives == Lives::Interrupts)
}

/// The queues of the wire's end, `own` as it is, unless settings say otherwise.
pub(crate) fn nic(own: Nic, settings: &[Setting]) -> Nic {
    tune::channels(settings).map_or(own, |queues| Nic { rx: queues, tx: queues, ..Nic::default() })
}

/// Refuses settings that have no place in this arrangement.
fn possible(shape: &Shape) -> Result<(), SpecError> {
    let Settings { client, server } = &shape.settings;
    if shape.cni.is_some() && uses(&shape.settings, |lives| matches!(lives, Lives::Route(_))) {
        return Err(refused("routes", "CNI plugins make them, so they are not known in advance"));
    }
    let is_translated = shape.path.reach == Reach::PublishedPort && shape.path.attach.relay_mtu().is_none();
    if is_translated && uses(&shape.settings, |lives| lives == Lives::Notrack) {
        return Err(refused(
            "notrack",
            "a published port is translated, which needs connections to be tracked",
        ));
    }
    if shape.in_container == Side::Client && uses(&shape.settings, |lives| lives == Lives::Notrack) {
        return Err(refused(
            "notrack",
            "what a pod alone says to another node may be masqueraded, which needs connections to be tracked",
        ));
    }
    if shape.placement == Placement::TwoNodes {
        return Ok(());
    }
    if uses(&shape.settings, is_of_wire) {
        return Err(refused("the wire", "on one node nothing crosses it"));
    }
    if shape.path.reach != Reach::Node {
        return Ok(());
    }
    if uses(&shape.settings, |lives| matches!(lives, Lives::Route(_))) {
        return Err(refused("routes", "what the host says to itself takes no route that could be set"));
    }
    if client != server {
        return Err(refused("one side", "on one node the host is client and server in the same namespace"));
    }
    Ok(())
}

/// What is set at the link between nodes or at the card behind it. Its MTU is that of pods, too.
fn is_of_wire(lives: Lives) -> bool {
    matches!(
        lives,
        Lives::Queue(_)
            | Lives::RootQdisc
            | Lives::Nic(_)
            | Lives::Indirection
            | Lives::Rss(_)
            | Lives::Interrupts
            | Lives::Attribute(_)
    )
}

fn uses(settings: &Settings, is_meant: impl Fn(Lives) -> bool) -> bool {
    settings.client.iter().chain(&settings.server).any(|setting| is_meant(setting.lives))
}

/// Adds what settings do to what the topology does. A queueing discipline for a link that has a line rate goes inside:
/// the queue that it manages is the one before the line.
fn add(plan: &mut Plan, settings: Plan) {
    for placed in settings.steps {
        let line =
            plan.steps.iter_mut().filter(|of| of.place == placed.place).find_map(|of| line(&mut of.step));
        match (line, &placed.step) {
            (Some((link, line)), Step::Set(Set::RootQdisc(set))) if *link == set.link => {
                line.inner = set.qdisc.clone();
            }
            _ => plan.steps.push(placed),
        }
    }
}

/// What holds a link to its line rate, if the step does.
fn line(step: &mut Step) -> Option<(&IfName, &mut Tbf)> {
    match step {
        Step::Set(Set::RootQdisc(SetRootQdisc { link, qdisc: Qdisc::Tbf(line) })) => Some((link, line)),
        _ => None,
    }
}

fn refused(what: &str, why: &str) -> SpecError {
    SpecError { what: format!("the settings of {what}"), why: why.to_owned() }
}

/// The addresses by which packets are sent to a side: its pod's and, for what is published or masqueraded, its node's.
/// Where several machines have clients, those of all of these.
fn others_addresses(shape: &Shape, part: SocketRole, (node, pod, _): Whereabouts<'_>) -> Vec<IpAddr> {
    let own = pod.addresses.of(shape.family).filter(|_| shape.has_pod(part));
    let clients = shape.machines.iter().filter(|_| part == SocketRole::Client);
    let clients = clients.flat_map(|machines| &machines.clients).flat_map(|link| &link.addresses);
    let of_family = clients.filter(|address| address.is_ipv6() == (shape.family == Family::V6));
    own.into_iter().chain(node.underlay.of(shape.family)).chain(of_family.copied()).collect()
}

/// The routes of a namespace to these addresses, as the kernel chooses: the longest prefix. Those that an address of a
/// link brings along are among them.
fn routes(plan: &Plan, place: &Place, to: &[IpAddr]) -> Vec<(IpNet, IfName)> {
    let steps = plan.steps.iter().filter(|placed| placed.place == *place);
    let known: Vec<(IpNet, IfName)> = steps
        .filter_map(|placed| match &placed.step {
            Step::AddRoute(route) => Some((route.dst.trunc(), route.dev.clone())),
            // An address alone brings no route to others along.
            Step::AddAddress { link, address } if address.prefix_len() < address.max_prefix_len() => {
                Some((address.trunc(), link.clone()))
            }
            _ => None,
        })
        .collect();
    let mut found: Vec<(IpNet, IfName)> = Vec::new();
    for address in to {
        let best =
            known.iter().filter(|(dst, _)| dst.contains(address)).max_by_key(|(dst, _)| dst.prefix_len());
        found.extend(best.filter(|best| !found.contains(best)).cloned());
    }
    found
}
