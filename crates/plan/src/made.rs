//! What a plan has made, to be compared with what is there later.
//!
//! Every step of the plan must be so. Beside the steps, each namespace is listed as it was found behind them, so that
//! what somebody adds shows as well as what somebody takes away: a more specific route, a rule, another program at a
//! link. What an outside program made in those namespaces (a CNI plugin) shows in the same lists.

mod inventory;

use std::collections::BTreeMap;

use linux::sysctl;

use crate::error::StepError;
use crate::listing::Listing;
use crate::look::{Change, Look};
use crate::{Kernel, Place, Placed, Plan, Step, is_about_the_same, steps};
use inventory::Inventory;

/// A plan's steps as they stand at its end, and what its namespaces held when they were found so.
#[derive(Debug, Clone)]
pub struct Made {
    /// Those that must be so, by namespace.
    steps: BTreeMap<Place, Vec<Placed>>,
    /// What each named namespace of the plan held. The host's is everybody's, and is not listed.
    held: BTreeMap<Place, Inventory>,
}

impl Made {
    /// Looks at all that a plan has made. Steps that are not so are told and not looked at again: what comes behind a
    /// plan may have changed them on purpose.
    ///
    /// # Errors
    /// The kernel does not answer, or a namespace of the plan is not there.
    pub fn of(plan: &Plan, kernel: &mut Kernel) -> Result<(Made, Vec<Change>), StepError> {
        let mut made = Made { steps: BTreeMap::new(), held: BTreeMap::new() };
        for placed in standing(plan) {
            made.steps.entry(placed.place.clone()).or_default().push(placed);
        }
        let mut changes = Vec::new();
        for (place, steps) in &mut made.steps {
            let listing = listing(kernel, place, steps)?;
            let mut so = Vec::with_capacity(steps.len());
            for placed in std::mem::take(steps) {
                match Change::of(&placed, steps::look(kernel, &listing, &placed)?) {
                    None => so.push(placed),
                    change => changes.extend(change),
                }
            }
            *steps = so;
            if let Place::Netns(_) = place {
                made.held.insert(place.clone(), Inventory::of(kernel.at(place)?, &listing)?);
            }
        }
        Ok((made, changes))
    }

    /// The first thing that has changed since; `None` if nothing has.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn changed(&self, kernel: &mut Kernel) -> Result<Option<Change>, StepError> {
        for (place, steps) in &self.steps {
            let listing = listing(kernel, place, steps)?;
            let held = self.held.get(place);
            let holds = held.map(|_| Inventory::of(kernel.at(place)?, &listing)).transpose()?;
            let is_same = held.is_some() && held == holds.as_ref();
            for placed in steps.iter().filter(|placed| !(is_same && is_listed(&placed.step))) {
                let look = steps::look(kernel, &listing, placed)?;
                if look != Look::So {
                    return Ok(Change::of(placed, look));
                }
            }
            let what = held.zip(holds).and_then(|(held, holds)| held.difference(&holds));
            if let Some(what) = what {
                return Ok(Some(Change { place: place.clone(), what }));
            }
        }
        Ok(None)
    }
}

/// The lists of a namespace, with the kernel parameters that its steps set.
fn listing(kernel: &mut Kernel, place: &Place, steps: &[Placed]) -> Result<Listing, StepError> {
    let key = |placed: &'_ Placed| -> Option<sysctl::Key> {
        match &placed.step {
            Step::SetSysctl { key, .. } => Some(key.clone()),
            _ => None,
        }
    };
    let keys: Vec<sysctl::Key> = steps.iter().filter_map(key).collect();
    Ok(Listing::with_parameters(kernel.at(place)?, keys.iter())?)
}

/// True if an [`Inventory`] that is the same says that the step is so.
fn is_listed(step: &Step) -> bool {
    match step {
        Step::AddLink(_)
        | Step::SetLinkUp { .. }
        | Step::SetLinkMtu { .. }
        | Step::SetLinkMaster { .. }
        | Step::SetHairpin { .. }
        | Step::SetGsoMaxSegs { .. }
        | Step::AddAddress { .. }
        | Step::AddRoute(_)
        | Step::AddNeighbour(_)
        | Step::AddFdb(_)
        | Step::AddNftTable(_) => true,
        // A link that was moved stands in the list of another namespace.
        Step::AddNetns
        | Step::MoveLink { .. }
        | Step::SetSysctl { .. }
        | Step::SetQueueCpus { .. }
        | Step::SetQueueFlows { .. }
        | Step::SetRouteMetric { .. }
        | Step::SetRootQdisc { .. }
        | Step::SetNic { .. }
        | Step::SetIndirection { .. }
        | Step::SetRssHash { .. }
        | Step::SetLinkAttribute { .. }
        | Step::SetDebug { .. }
        | Step::SetModule { .. }
        | Step::SetIrqCpus { .. }
        | Step::LoadPrograms(_)
        | Step::AttachProgram(_)
        | Step::AddEndpoint(_)
        | Step::AddTunnel(_)
        | Step::AddCgroup(_)
        | Step::LoadSplice(_)
        | Step::AttachSplice(_)
        | Step::AddMember(_) => false,
    }
}

/// The steps that are so when a plan is done: of two about the same thing the later one, and a link that was moved where
/// it went.
fn standing(plan: &Plan) -> Vec<Placed> {
    let mut standing: Vec<Placed> = Vec::new();
    for placed in &plan.steps {
        let mut placed = placed.clone();
        if let Step::MoveLink { link, to, name } = &placed.step {
            let born = standing.iter().position(|earlier| makes(earlier, &placed.place, link));
            if let Some(Placed { step: Step::AddLink(made), .. }) = born.map(|at| standing.remove(at)) {
                placed = Placed {
                    place: to.clone(),
                    step: Step::AddLink(linux::Link { name: name.clone(), ..made }),
                };
            }
        }
        standing.retain(|earlier| !is_about_the_same(earlier, &placed));
        standing.iter_mut().for_each(|earlier| refine(earlier, &placed));
        standing.push(placed);
    }
    standing
}

fn makes(placed: &Placed, place: &Place, name: &linux::IfName) -> bool {
    placed.place == *place && matches!(&placed.step, Step::AddLink(link) if link.name == *name)
}

/// Takes over into an earlier step what a later one sets of the same object.
fn refine(earlier: &mut Placed, later: &Placed) {
    use linux::netlink::{MetricValue, RouteMetric};
    if earlier.place != later.place {
        return;
    }
    match (&mut earlier.step, &later.step) {
        (Step::AddLink(made), Step::SetLinkMtu { link, mtu }) if made.name == *link => made.mtu = Some(*mtu),
        (
            Step::AddRoute(route),
            Step::SetRouteMetric { dst, link, metric: RouteMetric::Mtu, value: MetricValue::Number(mtu) },
        ) if route.dst.trunc() == dst.trunc() && route.dev == *link => route.mtu = Some(*mtu),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use linux::netlink::{MetricValue, RouteMetric};
    use linux::{IfName, Link, LinkKind, NetnsName, Route};

    use super::*;

    fn place(name: &str) -> Place {
        Place::Netns(NetnsName::new(name).unwrap())
    }

    fn ifname(name: &str) -> IfName {
        IfName::new(name).unwrap()
    }

    fn bridge(name: &str, mtu: Option<u32>) -> Step {
        Step::AddLink(Link { name: ifname(name), kind: LinkKind::Bridge, mtu, mac: None })
    }

    #[track_caller]
    fn check(steps: &[(&str, Step)], expected: &[(&str, Step)]) {
        let placed = |(at, step): &(&str, Step)| Placed { place: place(at), step: step.clone() };
        let plan = Plan { steps: steps.iter().map(placed).collect() };
        assert_eq!(standing(&plan), expected.iter().map(placed).collect::<Vec<_>>());
    }

    #[test]
    fn the_later_of_two_values_stands() {
        let set = |value: &str| Step::SetSysctl {
            key: sysctl::Key::new("net/ipv4/tcp_rmem").unwrap(),
            value: value.to_owned(),
        };
        check(&[("a", set("1")), ("b", set("1")), ("a", set("2"))], &[("b", set("1")), ("a", set("2"))]);
    }

    #[test]
    fn a_moved_link_stands_where_it_went() {
        let born = bridge("hgb1", Some(1400));
        let go = Step::MoveLink { link: ifname("hgb1"), to: place("pod"), name: ifname("eth0") };
        check(&[("node", born), ("node", go.clone())], &[("pod", bridge("eth0", Some(1400)))]);
        check(&[("node", go.clone())], &[("node", go)]);
    }

    #[test]
    fn what_is_set_later_of_an_object_is_expected_of_it() {
        let mtu = Step::SetLinkMtu { link: ifname("br0"), mtu: 1300 };
        let made = [("a", bridge("br0", Some(1500))), ("a", mtu.clone())];
        check(&made, &[("a", bridge("br0", Some(1300))), ("a", mtu)]);
        let dst = "10.1.0.0/16".parse().unwrap();
        let route = Route::on_link(dst, ifname("eth0"));
        let set = |metric, value| Step::SetRouteMetric {
            dst,
            link: ifname("eth0"),
            metric,
            value: MetricValue::Number(value),
        };
        let steps = [
            ("a", Step::AddRoute(route.clone())),
            ("a", set(RouteMetric::InitCwnd, 10)),
            ("a", set(RouteMetric::Mtu, 1300)),
        ];
        let narrow = Step::AddRoute(Route { mtu: Some(1300), ..route });
        check(&steps, &[("a", narrow), steps[1].clone(), steps[2].clone()]);
    }
}
