//! Which address a pod gets. These are functions of what is reserved; they read no file.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::range::{RangeSet, RangeSets, next};

/// What is not to be given.
#[derive(Debug)]
pub(crate) struct Occupied {
    /// Reserved addresses and gateways.
    busy: BTreeSet<IpAddr>,
    /// Those, and the resting ones.
    avoided: BTreeSet<IpAddr>,
    /// Released a moment ago, the oldest first.
    resting: Vec<IpAddr>,
}

impl Occupied {
    /// From what is reserved, and what was released a moment ago with the oldest first.
    pub(crate) fn new(
        reserved: impl Iterator<Item = IpAddr>,
        sets: &RangeSets,
        resting: Vec<IpAddr>,
    ) -> Occupied {
        let busy: BTreeSet<IpAddr> = reserved.chain(sets.gateways().iter().copied()).collect();
        let avoided = busy.iter().chain(&resting).copied().collect();
        Occupied { busy, avoided, resting }
    }

    /// Notes an address that is taken after all.
    pub(crate) fn add(&mut self, address: IpAddr) {
        self.busy.insert(address);
        self.avoided.insert(address);
    }

    /// The next address of a set: the first after the last one given, as in `host-local`, that neither is taken nor
    /// rests. If there is none, the one that rests longest.
    pub(crate) fn choose(&self, set: &RangeSet, last: Option<IpAddr>) -> Option<IpAddr> {
        let rested = || {
            self.resting
                .iter()
                .copied()
                .find(|address| set.span_of(*address).is_some() && !self.busy.contains(address))
        };
        stretches(set, last)
            .into_iter()
            .find_map(|(first, last)| first_gap(first, last, &self.avoided))
            .or_else(rested)
    }
}

/// How many addresses of a set are neither reserved nor gateways. It takes as long as there are reserved ones, however
/// large the set is.
pub(crate) fn left(set: &RangeSet, busy: &BTreeSet<IpAddr>) -> u128 {
    let left_of = |first, last, size: u128| size.saturating_sub(busy.range(first..=last).count() as u128);
    set.spans.iter().map(|span| left_of(span.first, span.last, span.size())).fold(0, u128::saturating_add)
}

/// The addresses of a set in the order in which they are tried, as first and last of each stretch: from the one after
/// the last given to the end of its range, the ranges after it, and around to the last given itself.
fn stretches(set: &RangeSet, last: Option<IpAddr>) -> Vec<(IpAddr, IpAddr)> {
    let spans = &set.spans;
    let Some((index, last)) = last.and_then(|last| {
        let index = spans.iter().position(|span| span.contains(last))?;
        Some((index, last))
    }) else {
        return spans.iter().map(|span| (span.first, span.last)).collect();
    };
    let rest = next(last).filter(|after| *after <= spans[index].last).map(|after| (after, spans[index].last));
    let others = spans[index + 1..].iter().chain(&spans[..index]).map(|span| (span.first, span.last));
    rest.into_iter().chain(others).chain([(spans[index].first, last)]).collect()
}

/// The first address of a stretch that is not avoided. It walks the avoided ones, not the stretch.
fn first_gap(first: IpAddr, last: IpAddr, avoided: &BTreeSet<IpAddr>) -> Option<IpAddr> {
    let mut candidate = first;
    for address in avoided.range(first..=last) {
        if *address != candidate {
            break;
        }
        candidate = next(candidate).filter(|after| *after <= last)?;
    }
    Some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(json: &str) -> RangeSets {
        serde_json::from_str(json).unwrap()
    }

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// The choices from one set, each of which is then taken.
    #[track_caller]
    fn check(json: &str, last: Option<&str>, reserved: &[&str], resting: &[&str], expected: &[&str]) {
        let sets = sets(json);
        let mut occupied = Occupied::new(addresses(reserved).into_iter(), &sets, addresses(resting));
        let mut last = last.map(|last| last.parse().unwrap());
        let mut chosen = Vec::new();
        while let Some(address) = occupied.choose(&sets.sets()[0], last) {
            occupied.add(address);
            chosen.push(address.to_string());
            last = Some(address);
            assert!(chosen.len() < 100, "{chosen:?}");
        }
        assert_eq!(chosen, expected);
    }

    #[test]
    fn addresses_are_taken_in_turn_over_all_ranges_of_a_set() {
        let two = r#"[[{"subnet":"10.0.0.0/29","rangeStart":"10.0.0.5"},{"subnet":"10.0.1.0/29","rangeEnd":"10.0.1.3"}]]"#;
        let all = ["10.0.0.5", "10.0.0.6", "10.0.1.2", "10.0.1.3"];
        check(two, None, &[], &[], &all);
        check(two, Some("10.0.0.5"), &["10.0.1.2"], &[], &["10.0.0.6", "10.0.1.3", "10.0.0.5"]);
        check(two, Some("10.0.1.3"), &[], &[], &all);
        check(two, Some("10.9.9.9"), &[], &[], &all);
        check(r#"[[{"subnet":"10.0.0.0/30"}]]"#, Some("10.0.0.2"), &[], &[], &["10.0.0.2"]);
    }

    #[test]
    fn the_last_address_of_all_has_none_after_it() {
        let end = r#"[[{"subnet":"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126"}]]"#;
        let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        check(end, Some(last), &[], &[], &["ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", last]);
    }

    #[test]
    fn what_rests_is_taken_last_and_the_longest_rested_first() {
        let range = r#"[[{"subnet":"10.0.0.0/29"}]]"#;
        let resting = ["10.0.0.4", "10.0.0.1", "10.0.0.3", "10.9.0.1"];
        let expected = ["10.0.0.5", "10.0.0.6", "10.0.0.4", "10.0.0.3"];
        check(range, None, &["10.0.0.2"], &resting, &expected);
    }

    #[test]
    fn a_huge_range_is_counted_at_once() {
        let sets = sets(
            r#"[[{"subnet":"10.0.0.0/29"}],[{"subnet":"fd00::/64"}],[{"subnet":"::/0","rangeEnd":"::9"}]]"#,
        );
        let reserved = addresses(&["10.0.0.2", "10.0.1.2", "fd00::9"]);
        let occupied = Occupied::new(reserved.into_iter(), &sets, Vec::new());
        let counts: Vec<u128> = sets.sets().iter().map(|set| left(set, &occupied.busy)).collect();
        assert_eq!(counts, [4, u128::from(u64::MAX) - 2, 8]);
    }
}
