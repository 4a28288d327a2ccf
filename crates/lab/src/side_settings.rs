//! Where the settings of a candidate go: the two sides of its topology.

use std::net::IpAddr;

use datapath::{NodeSpec, Pod, Reach, SocketRole, SpecError};
use ipnet::IpNet;
use linux::ethtool::NicParameter;
use linux::interrupts::Interrupt;
use linux::qdisc::Tbf;
use linux::{IfName, Qdisc};
use plan::{Place, Plan, Set, SetRootQdisc, Step};
use record::{Placement, Side};
use tune::{Lives, Nic, Setting, Settings, Site, Value};

use crate::{ByRole, CardWire, Shape};

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

/// What makes the settings, once everything else of a topology is in `plan`.
pub(crate) fn plan(shape: &Shape, sides: &ByRole<Whereabouts<'_>>, plan: &Plan) -> Result<Plan, SpecError> {
    let Settings { client, server } = &shape.settings;
    possible(shape)?;
    let mut made = Plan::new();
    for (here, there, settings, cpus) in [
        (SocketRole::Client, SocketRole::Server, client, &shape.cpus.client),
        (SocketRole::Server, SocketRole::Client, server, &shape.cpus.server),
    ] {
        let (node, _, process) = *sides.of(here);
        let process = process.clone();
        let others = others_addresses(shape, there, *sides.of(there));
        let routes = routes(plan, &process, &others);
        if routes.is_empty() && settings.iter().any(|setting| matches!(setting.lives, Lives::Route(_))) {
            return Err(refused("routes", "no route is known that leads from the one side to the other"));
        }
        let nic = nic(shape.cards.as_ref(), settings);
        if let Some(why) = settings.iter().find_map(|setting| setting.refused_by(&nic)) {
            return Err(SpecError { what: "the settings of a link's queues".to_owned(), why });
        }
        let site = Site {
            process,
            routes,
            node: node.place.clone(),
            wire: node.wire.clone(),
            cpus: cpus.clone(),
            nic,
        };
        // What makes queues comes before what is set at them.
        let mut ranked: Vec<&Setting> = settings.iter().collect();
        ranked.sort_by_key(|setting| setting.rank());
        for placed in ranked.into_iter().flat_map(|setting| setting.plan(&site).steps) {
            // Both sides in one namespace, or a parameter of the whole machine.
            if !made.steps.contains(&placed) {
                made.steps.push(placed);
            }
        }
    }
    Ok(made)
}

/// What gives interrupts of cards their CPUs, once the cards are up and their drivers have said which they are.
pub(crate) fn interrupts(
    shape: &Shape,
    nodes: &ByRole<NodeSpec>,
    found: &ByRole<Vec<Interrupt>>,
) -> Result<Plan, SpecError> {
    let Settings { client, server } = &shape.settings;
    let mut made = Plan::new();
    for (node, settings, cpus, interrupts) in [
        (&nodes.client, client, &shape.cpus.client, &found.client),
        (&nodes.server, server, &shape.cpus.server, &found.server),
    ] {
        let site = Site {
            process: node.place.clone(),
            routes: Vec::new(),
            node: node.place.clone(),
            wire: node.wire.clone(),
            cpus: cpus.clone(),
            nic: Nic { interrupts: interrupts.clone(), ..nic(shape.cards.as_ref(), settings) },
        };
        for setting in placing(settings) {
            let steps = setting.plan(&site);
            if steps.steps.is_empty() {
                return Err(refused("interrupts", "the card has none that belongs to a queue"));
            }
            made.extend(steps);
        }
    }
    Ok(made)
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

/// The queues of the wire's end: those of its card; of a veth one, unless settings say otherwise.
pub(crate) fn nic(cards: Option<&CardWire>, settings: &[Setting]) -> Nic {
    let is_meant = |setting: &&Setting| matches!(setting.lives, Lives::Nic([NicParameter::Channels]));
    match settings.iter().find(is_meant).map(|setting| &setting.value) {
        Some(Value::Number(queues)) => {
            let queues = u16::try_from(*queues).expect("the table takes at most 1024 queues");
            Nic { rx: queues, tx: queues, ..Nic::default() }
        }
        _ => cards.map_or_else(Nic::default, |cards| cards.nic.clone()),
    }
}

/// Refuses settings that have no place in this arrangement.
fn possible(shape: &Shape) -> Result<(), SpecError> {
    let Settings { client, server } = &shape.settings;
    if shape.cni.is_some() && uses(&shape.settings, |lives| matches!(lives, Lives::Route(_))) {
        return Err(refused("routes", "CNI plugins make them, so they are not known in advance"));
    }
    if shape.path.reach == Reach::PublishedPort && uses(&shape.settings, |lives| lives == Lives::Notrack) {
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
pub(crate) fn extend(plan: &mut Plan, settings: Plan) {
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
fn others_addresses(shape: &Shape, part: SocketRole, (node, pod, _): Whereabouts<'_>) -> Vec<IpAddr> {
    let own = pod.addresses.of(shape.family).filter(|_| shape.has_pod(part));
    own.into_iter().chain(node.underlay.of(shape.family)).collect()
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
