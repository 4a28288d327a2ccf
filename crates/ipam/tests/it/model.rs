//! Random calls on small ranges, compared with a map from keys to addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipam::{Key, RangeSets, Store};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::{address, key, sets};

/// Two ranges with another gateway in the middle, and a set of the other family with less room.
const RANGES: &str = r#"[
    [{"subnet":"10.0.0.0/29","gateway":"10.0.0.3"},{"subnet":"10.0.1.0/29","rangeEnd":"10.0.1.3"}],
    [{"subnet":"fd00::/125"}]
]"#;

#[derive(Debug, Clone)]
enum Call {
    /// `is_new`: whether the caller says that the container has no addresses yet.
    Reserve {
        container: usize,
        wanted: Vec<IpAddr>,
        is_new: bool,
    },
    Release {
        container: usize,
    },
    KeepOnly {
        containers: Vec<usize>,
    },
}

fn call() -> impl Strategy<Value = Call> {
    let container = 0..9_usize;
    let wanted = prop::sample::subsequence(
        ["10.0.0.3", "10.0.0.5", "10.0.1.2", "10.0.1.4", "fd00::5", "fd00::1"].map(address).to_vec(),
        0..=2,
    );
    let wanted = prop_oneof![3 => Just(Vec::new()), 1 => wanted];
    prop_oneof![
        6 => (container.clone(), wanted, any::<bool>())
            .prop_map(|(container, wanted, is_new)| Call::Reserve { container, wanted, is_new }),
        3 => container.clone().prop_map(|container| Call::Release { container }),
        1 => prop::collection::vec(container, 0..5).prop_map(|containers| Call::KeepOnly { containers }),
    ]
}

/// What may be given, by set.
fn given() -> [BTreeSet<IpAddr>; 2] {
    let of = |texts: &[&str]| texts.iter().map(|text| address(text)).collect();
    let v4 = ["10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.1.2", "10.0.1.3"];
    [of(&v4), of(&["fd00::2", "fd00::3", "fd00::4", "fd00::5", "fd00::6", "fd00::7"])]
}

#[derive(Debug, Default)]
struct Model {
    of_key: BTreeMap<Key, Vec<IpAddr>>,
}

impl Model {
    fn taken(&self) -> BTreeSet<IpAddr> {
        self.of_key.values().flatten().copied().collect()
    }

    /// Whether a reservation must succeed.
    fn is_possible(&self, key: &Key, wanted: &[IpAddr]) -> bool {
        let taken = self.taken();
        !self.of_key.contains_key(key)
            && given().iter().all(|set| {
                let asked: Vec<_> = wanted.iter().filter(|address| set.contains(address)).collect();
                match asked[..] {
                    [] => !set.is_subset(&taken),
                    [address] => !taken.contains(address),
                    _ => false,
                }
            })
            && wanted.iter().all(|address| given().iter().any(|set| set.contains(address)))
    }

    fn reserve(&mut self, store: &Store, sets: &RangeSets, key: Key, wanted: &[IpAddr], is_new: bool) {
        let possible = self.is_possible(&key, wanted);
        let is_new = is_new && !self.of_key.contains_key(&key);
        let reserve = if is_new { Store::reserve_for_new } else { Store::reserve };
        let result = reserve(store, &key, sets, wanted);
        assert_eq!(result.is_ok(), possible, "{key} wants {wanted:?}: {result:?}");
        let Ok(reserved) = result else { return };
        let addresses: Vec<IpAddr> = reserved.iter().map(|reserved| reserved.address.addr()).collect();
        assert!(wanted.iter().all(|address| addresses.contains(address)), "{addresses:?} for {wanted:?}");
        let taken = self.taken();
        for (set, address) in given().iter().zip(&addresses) {
            assert!(set.contains(address) && !taken.contains(address), "{address} for {key}");
        }
        assert_eq!(addresses.len(), 2);
        self.of_key.insert(key, addresses);
    }

    fn apply(&mut self, store: &Store, sets: &RangeSets, call: &Call) {
        let named = |container: &usize| key(&format!("c{container}"));
        match call {
            Call::Reserve { container, wanted, is_new } => {
                self.reserve(store, sets, named(container), wanted, *is_new);
            }
            Call::Release { container } => {
                let expected = self.of_key.remove(&named(container)).unwrap_or_default();
                assert_eq!(store.release(&named(container)).unwrap(), expected);
            }
            Call::KeepOnly { containers } => {
                let kept: Vec<Key> = containers.iter().map(named).collect();
                let before = self.taken().len();
                self.of_key.retain(|key, _| kept.contains(key));
                assert_eq!(
                    store.keep_only(|holder| kept.iter().any(|key| holder.is(key))).unwrap().len(),
                    before - self.taken().len()
                );
            }
        }
    }

    fn compare(&self, store: &Store, sets: &RangeSets) {
        let all: BTreeMap<IpAddr, String> =
            store.all().unwrap().into_iter().map(|(address, holder)| (address, holder.to_string())).collect();
        let of_key = self.of_key.iter();
        let expected: BTreeMap<IpAddr, String> = of_key
            .flat_map(|(key, addresses)| addresses.iter().map(move |address| (*address, key.to_string())))
            .collect();
        assert_eq!(all, expected);
        let taken = self.taken();
        let left = given().map(|set| set.difference(&taken).count() as u128);
        assert_eq!(store.left(sets).unwrap(), left);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_given_twice_and_each_pod_gets_all_or_none(
        calls in prop::collection::vec(call(), 1..40),
        quarantine_s in prop::sample::select(vec![0, 30]),
    ) {
        let root = TempDir::new().unwrap();
        let store = Store::open(root.path(), "n").unwrap().with_quarantine(Duration::from_secs(quarantine_s));
        let sets = sets(RANGES);
        let mut model = Model::default();
        for call in &calls {
            model.apply(&store, &sets, call);
            model.compare(&store, &sets);
        }
    }
}
