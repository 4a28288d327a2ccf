//! Which pairs of nodes race at the same time, where all pairs race.
//!
//! The circle method of round robin tournaments: one node stays, the others turn about it by one place a slot, and
//! those that face each other are a pair. An even number N of nodes meets in N − 1 slots of N ÷ 2 pairs; of an odd
//! number one rests in each of N slots. Each slot comes twice, once a direction.

use stats::Random;

/// Two nodes by their places: the client's and the server's.
pub(super) type Places = [usize; 2];

/// How many pairs race at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// As many as share no node.
    Disjoint,
    /// One pair at a time.
    Alone,
}

/// The slots of a tournament of so many nodes: in each, pairs that race at once. All pairs race once in each direction.
/// The order of slots is shuffled, and so is the company that pairs have, since it may disturb them.
pub(super) fn slots(nodes: usize, company: Company, rng: &mut Random) -> Vec<Vec<Places>> {
    let mut order: Vec<usize> = (0..nodes).collect();
    rng.shuffle(&mut order);
    let there = matchings(&order);
    let back = there.iter().map(|pairs| pairs.iter().map(|[client, server]| [*server, *client]).collect());
    let mut slots: Vec<Vec<Places>> = there.iter().cloned().chain(back).collect();
    if company == Company::Alone {
        slots = slots.into_iter().flatten().map(|pair| vec![pair]).collect();
    }
    rng.shuffle(&mut slots);
    slots
}

/// The matchings of a round robin, each pair in one of its directions.
fn matchings(order: &[usize]) -> Vec<Vec<Places>> {
    // A node without an opponent rests.
    let mut circle: Vec<Option<usize>> = order.iter().copied().map(Some).collect();
    if circle.len() % 2 == 1 {
        circle.push(None);
    }
    let slots = circle.len().saturating_sub(1);
    let mut all = Vec::with_capacity(slots);
    for _ in 0..slots {
        let (front, back) = circle.split_at(circle.len() / 2);
        let facing = front.iter().zip(back.iter().rev());
        all.push(facing.filter_map(|(one, other)| Some([(*one)?, (*other)?])).collect());
        circle[1..].rotate_right(1);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_pair_races_once_in_each_direction_and_no_node_twice_in_a_slot() {
        for nodes in 2..=13 {
            for company in [Company::Disjoint, Company::Alone] {
                let slots = slots(nodes, company, &mut Random::from_seed(nodes as u64));
                let all: Vec<Places> = slots.iter().flatten().copied().collect();
                let distinct: BTreeSet<Places> = all.iter().copied().collect();
                assert_eq!((all.len(), distinct.len()), (nodes * (nodes - 1), nodes * (nodes - 1)));
                assert!(all.iter().all(|[client, server]| client != server));
                for slot in &slots {
                    let busy: BTreeSet<usize> = slot.iter().flatten().copied().collect();
                    assert_eq!(busy.len(), 2 * slot.len(), "{slot:?}");
                }
            }
        }
    }

    #[test]
    fn slots_grow_with_the_nodes_and_not_with_the_pairs() {
        let count = |nodes, company| slots(nodes, company, &mut Random::from_seed(1)).len();
        let disjoint: Vec<usize> = (2..=9).map(|nodes| count(nodes, Company::Disjoint)).collect();
        assert_eq!(disjoint, [2, 6, 6, 10, 10, 14, 14, 18]);
        assert_eq!((count(2, Company::Alone), count(9, Company::Alone)), (2, 72));
    }

    #[test]
    fn pairs_have_other_company_in_another_build() {
        let mut rng = Random::from_seed(3);
        let mut companies = |pair: Places| -> BTreeSet<BTreeSet<Places>> {
            (0..20)
                .map(|_| {
                    let slots = slots(6, Company::Disjoint, &mut rng);
                    slots.into_iter().find(|slot| slot.contains(&pair)).unwrap().into_iter().collect()
                })
                .collect()
        };
        assert!(companies([0, 1]).len() > 3);
    }
}
