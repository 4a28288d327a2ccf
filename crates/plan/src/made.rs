//! What a plan has made, to be compared with what is there later.
//!
//! Every step of the plan must be so, and programs that forward alone at their links. Beside the steps, each namespace
//! is listed as it was found behind them, so that what is added shows as well as what is taken away: a more specific
//! route, a rule, another program at a link. What an outside program made in those namespaces (a CNI plugin) shows in
//! the same lists.

mod inventory;

use std::collections::BTreeMap;

use ipnet::IpNet;
use linux::netlink::{MetricValue, RouteMetric};

use crate::error::StepError;
use crate::listing::Listing;
use crate::look::{Drift, StepState};
use crate::{Kernel, Place, Placed, Plan, Set, SetRouteMetric, Step};
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
    /// Looks at all that a plan has made. Steps that are not so are returned and not looked at again: what comes behind
    /// a plan may have changed them on purpose.
    ///
    /// # Errors
    /// The kernel does not answer, or a namespace of the plan is not there.
    pub fn of(plan: &Plan, kernel: &mut Kernel) -> Result<(Made, Vec<Drift>), StepError> {
        let mut made = Made { steps: standing_by_place(plan), held: BTreeMap::new() };
        let mut changes = Vec::new();
        for (place, steps) in &mut made.steps {
            let listing = listing(kernel, place, steps.iter())?;
            let mut so = Vec::with_capacity(steps.len());
            for placed in std::mem::take(steps) {
                let look = placed.step.effect().look_alone(kernel, place, &listing)?;
                match Drift::of(&placed, look) {
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
    pub fn changed(&self, kernel: &mut Kernel) -> Result<Option<Drift>, StepError> {
        for (place, steps) in &self.steps {
            let listing = listing(kernel, place, steps.iter())?;
            let held = self.held.get(place);
            let holds = held.map(|_| Inventory::of(kernel.at(place)?, &listing)).transpose()?;
            let is_same = held.is_some() && held == holds.as_ref();
            for placed in steps.iter().filter(|placed| !(is_same && placed.step.effect().is_listed())) {
                let look = placed.step.effect().look_alone(kernel, place, &listing)?;
                if look != StepState::So {
                    return Ok(Drift::of(placed, look));
                }
            }
            let what = held.zip(holds).and_then(|(held, holds)| held.difference(&holds));
            if let Some(what) = what {
                return Ok(Some(Drift { place: place.clone(), what }));
            }
        }
        Ok(None)
    }
}

/// The first thing that a plan has made and that is not so, whatever came beside it; `None` if all of it is so.
///
/// # Errors
/// The kernel does not answer, or a namespace of the plan is not there.
pub fn changed(plan: &Plan, kernel: &mut Kernel) -> Result<Option<Drift>, StepError> {
    for (place, steps) in standing_by_place(plan) {
        let listing = listing(kernel, &place, steps.iter())?;
        for placed in &steps {
            let look = placed.step.effect().look(kernel, &place, &listing)?;
            if look != StepState::So {
                return Ok(Drift::of(placed, look));
            }
        }
    }
    Ok(None)
}

/// The lists of a namespace, with the kernel parameters that its steps set.
pub(crate) fn listing<'p>(
    kernel: &mut Kernel,
    place: &Place,
    steps: impl Iterator<Item = &'p Placed>,
) -> Result<Listing, StepError> {
    let key = |placed: &'p Placed| match &placed.step {
        Step::Set(Set::Sysctl(set)) => Some(&set.key),
        _ => None,
    };
    Ok(Listing::of(kernel.at(place)?, steps.filter_map(key))?)
}

/// The steps that are so when a plan is done, by namespace.
fn standing_by_place(plan: &Plan) -> BTreeMap<Place, Vec<Placed>> {
    let mut by_place: BTreeMap<Place, Vec<Placed>> = BTreeMap::new();
    for placed in standing(plan) {
        by_place.entry(placed.place.clone()).or_default().push(placed);
    }
    by_place
}

/// The steps that are so when a plan is done: of two about the same thing the later one, and a link that was moved
/// where it went.
fn standing(plan: &Plan) -> Vec<Placed> {
    let mut standing = BTreeMap::new();
    let mut latest = BTreeMap::new();
    for (at, placed) in plan.steps.iter().enumerate() {
        let mut placed = placed.clone();
        if let Step::MoveLink { link, to, name } = &placed.step {
            let born = latest.remove(&Subject::Link(placed.place.clone(), link.clone()));
            let made: Option<Placed> = born.and_then(|at| standing.remove(&at));
            if let Some(Step::AddLink(made) | Step::AddLinkOn { link: made, .. }) = made.map(|made| made.step)
            {
                let step = Step::AddLink(linux::Link { name: name.clone(), ..made });
                placed = Placed { place: to.clone(), step };
            }
        }
        if let Some(earlier) = latest.insert(Subject::of(&placed), at) {
            standing.remove(&earlier);
        }
        if let Some(earlier) = Subject::refined_by(&placed).and_then(|subject| latest.get(&subject))
            && let Some(earlier) = standing.get_mut(earlier)
        {
            refine(&mut earlier.step, &placed.step);
        }
        standing.insert(at, placed);
    }
    standing.into_values().collect()
}

/// What a step of a plan is about, so that an earlier one about the same is found.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// A link that is made.
    Link(Place, linux::IfName),
    /// A route that is made, with its metric.
    Route(Place, IpNet, linux::IfName, Option<u32>),
    /// What another step made, by [`crate::steps::Effect::identity`].
    Other(Place, String),
}

impl Subject {
    fn of(placed: &Placed) -> Subject {
        let place = placed.place.clone();
        match &placed.step {
            Step::AddLink(link) | Step::AddLinkOn { link, .. } => Subject::Link(place, link.name.clone()),
            Step::AddRoute(route) | Step::ReplaceRoute(route) => {
                Subject::Route(place, route.dst.trunc(), route.dev.clone(), route.metric)
            }
            step => Subject::Other(place, step.effect().identity()),
        }
    }

    /// The object of which a step sets a property that the step that makes it could have set.
    fn refined_by(placed: &Placed) -> Option<Subject> {
        let place = placed.place.clone();
        match &placed.step {
            Step::Set(Set::LinkMtu(set)) => Some(Subject::Link(place, set.link.clone())),
            Step::Set(Set::RouteMetric(set)) if set.metric == RouteMetric::Mtu => {
                Some(Subject::Route(place, set.dst.trunc(), set.link.clone(), None))
            }
            _ => None,
        }
    }
}

/// Takes over into an earlier step what a later one sets of the same object.
fn refine(earlier: &mut Step, later: &Step) {
    match (earlier, later) {
        (Step::AddLink(made) | Step::AddLinkOn { link: made, .. }, Step::Set(Set::LinkMtu(set))) => {
            made.mtu = Some(set.mtu);
        }
        (
            Step::AddRoute(route) | Step::ReplaceRoute(route),
            Step::Set(Set::RouteMetric(SetRouteMetric { value: MetricValue::Number(mtu), .. })),
        ) => {
            route.mtu = Some(*mtu);
            route.mtu_locked = false;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use linux::{IfName, Link, LinkKind, NetnsName, Route};

    use super::*;
    use crate::{SetLinkMtu, SetSysctl};

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
        let set = |value: &str| {
            let key = linux::sysctl::Key::new("net/ipv4/tcp_rmem").unwrap();
            SetSysctl { key, value: value.to_owned() }.into()
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
        let mtu: Step = SetLinkMtu { link: ifname("br0"), mtu: 1300 }.into();
        let made = [("a", bridge("br0", Some(1500))), ("a", mtu.clone())];
        check(&made, &[("a", bridge("br0", Some(1300))), ("a", mtu)]);
        let dst = "10.1.0.0/16".parse().unwrap();
        let route = Route::on_link(dst, ifname("eth0"));
        let set = |metric, value| {
            let value = MetricValue::Number(value);
            SetRouteMetric { dst, link: ifname("eth0"), metric, value }.into()
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
