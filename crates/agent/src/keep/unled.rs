//! What has led calls of the lease source's own Service, while they are left to the node: it is to lead them again even
//! if the source has not said since which Services there are.

use std::borrow::Cow;
use std::collections::BTreeMap;

use plan::Plan;

use crate::desired::leads;
use crate::lease::Snapshot;

/// Parts as they stood before a step of them was left out.
#[derive(Debug, Default)]
pub(super) struct Unled(BTreeMap<String, Plan>);

impl Unled {
    /// What stands, as if nothing were left out.
    pub(super) fn beside<'a>(
        &mut self,
        standing: &'a BTreeMap<String, Plan>,
        snapshot: &Snapshot,
    ) -> Cow<'a, BTreeMap<String, Plan>> {
        if let Some(at) = snapshot.unled {
            let leading =
                standing.iter().filter(|(_, plan)| plan.steps.iter().any(|placed| leads(placed, at)));
            self.0.extend(leading.map(|(part, plan)| (part.clone(), plan.clone())));
        }
        if self.0.is_empty() {
            return Cow::Borrowed(standing);
        }
        let mut whole = standing.clone();
        whole.extend(self.0.clone());
        Cow::Owned(whole)
    }

    /// Takes out of the parts what is not to be led now. If they follow from what the source says of Services, what
    /// stood before is needed no more.
    pub(super) fn leave_out(
        &mut self,
        parts: &mut BTreeMap<String, Plan>,
        snapshot: &Snapshot,
        are_decided: bool,
    ) {
        if are_decided && snapshot.services.is_some() {
            self.0.clear();
        }
        if let Some(at) = snapshot.unled {
            parts.values_mut().for_each(|plan| plan.steps.retain(|placed| !leads(placed, at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use plan::forwarding::{Service, ServiceEntry};
    use plan::{Place, Step};

    use super::*;

    #[test]
    fn what_is_left_out_stands_beside_until_the_source_knows_better() {
        let mut plan = Plan::new();
        for at in ["10.96.0.1:443/tcp", "10.96.0.1:443/udp"] {
            let service = Service { at: at.parse().unwrap(), affinity_s: 0, backends: [].into() };
            plan.push(&Place::Host, Step::ReplaceService(ServiceEntry { node: "n".to_owned(), service }));
        }
        let udp = Plan { steps: plan.steps[1..].to_vec() };
        let part = |plan| BTreeMap::from([("service-default%2fkubernetes".to_owned(), plan)]);
        let (whole, left) = (part(plan), part(udp));
        let unled = Snapshot { unled: Some(([10, 96, 0, 1], 443).into()), ..Snapshot::default() };
        let mut kept = Unled::default();
        let mut look = |standing: &BTreeMap<String, Plan>, snapshot: &Snapshot, are_decided| {
            let mut parts = kept.beside(standing, snapshot).into_owned();
            kept.leave_out(&mut parts, snapshot, are_decided);
            parts
        };
        assert_eq!(look(&whole, &Snapshot::default(), false), whole);
        assert_eq!(look(&whole, &unled, false), left);
        assert_eq!(look(&left, &unled, true), left);
        assert_eq!(look(&left, &Snapshot::default(), true), whole);
        let known = Snapshot { services: Some(BTreeMap::new()), ..Snapshot::default() };
        assert_eq!(look(&left, &known, false), whole);
        look(&left, &known, true);
        assert_eq!(look(&left, &Snapshot::default(), true), left);
    }
}
