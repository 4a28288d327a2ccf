//! Which steps undo takes back by themselves, and which go with a namespace that it removes.
//!
//! It follows from the journal alone, and from whether the namespaces that it made are still those.
//! Nothing is asked here.

use std::collections::BTreeSet;

use linux::{IfName, NetnsName};

use crate::entry::After;
use crate::lifetime::Lifetime;
use crate::steps::Past;
use crate::{Journal, Place, Placed};

/// The way back from some steps.
pub(super) struct Way {
    /// Namespaces that the steps made, and that undo of them will remove.
    doomed: BTreeSet<NetnsName>,
    /// Links that the steps have moved into them from namespaces that stay: they outlive them.
    guests: BTreeSet<(NetnsName, IfName)>,
}

/// The steps that [`crate::undo`] would take back, last first, if the namespaces that the journal made are still
/// those: each with the namespace that takes its effects along when it is removed. Nothing is done, and the
/// kernel is not asked.
pub fn way_back(journal: &Journal) -> Vec<(Placed, Option<NetnsName>)> {
    let pasts = super::pasts(journal);
    let way = Way::of(&pasts, |_, _| true);
    let steps = pasts.into_iter().rev();
    steps.map(|past| (past.intent.placed.clone(), way.goes_with(&past).cloned())).collect()
}

impl Way {
    /// `is_still` says whether a place leads to the namespace that a step made there.
    pub(super) fn of(pasts: &[Past], mut is_still: impl FnMut(&Place, Option<&After>) -> bool) -> Way {
        let mut doomed = BTreeSet::new();
        for Past { intent, after } in pasts {
            if let Some(name) = makes(&intent.placed)
                && is_still(&intent.placed.place, after.as_ref())
            {
                doomed.insert(name.clone());
            }
        }
        let mut way = Way { doomed, guests: BTreeSet::new() };
        way.guests = pasts.iter().filter_map(|past| way.guest(&past.intent.placed)).collect();
        way
    }

    /// The namespace that takes the step's effects with it when it is removed.
    pub(super) fn goes_with<'p>(&self, past: &'p Past) -> Option<&'p NetnsName> {
        let Placed { place, step } = &past.intent.placed;
        let (name, effect) = (place.name()?, step.effect());
        // What was set at a link that comes back comes back with it. What stands on it would go on holding it
        // until the kernel ends the namespace, some time after its name: a card takes no macvlan link while it
        // has an ipvlan link.
        let rests_on = effect.rests_on(place).and_then(|(at, link)| Some((at.name()?.clone(), link)));
        if rests_on.is_some_and(|link| self.guests.contains(&link)) {
            return None;
        }
        let all_inside = match effect.lifetime() {
            Lifetime::Netns => true,
            Lifetime::Both(other) => self.doomed.contains(other),
            Lifetime::Own | Lifetime::Machine | Lifetime::Outside => false,
        };
        (all_inside && self.doomed.contains(name)).then_some(name)
    }

    /// The link that a step moved into a doomed namespace from another.
    fn guest(&self, placed: &Placed) -> Option<(NetnsName, IfName)> {
        let is_doomed = |place: &Place| place.name().is_some_and(|name| self.doomed.contains(name));
        let effect = placed.step.effect();
        let (to, link) = effect.brings()?;
        if !is_doomed(to) || is_doomed(&placed.place) {
            return None;
        }
        Some((to.name()?.clone(), link.clone()))
    }
}

/// The namespace that a step makes.
pub(super) fn makes(placed: &Placed) -> Option<&NetnsName> {
    if placed.step.effect().lifetime() == Lifetime::Own { placed.place.name() } else { None }
}
