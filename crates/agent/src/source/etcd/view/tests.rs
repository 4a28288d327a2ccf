use datapath::Addresses;
use proptest::prelude::*;

use super::super::wire::{Event, KeyValue};
use super::{View, shared};

/// A key as written at a revision, by a node whose address ends in a number.
fn kv(name: &str, revision: i64, last: u8) -> KeyValue {
    KeyValue {
        key: format!("/{name}").into_bytes(),
        create_revision: revision,
        mod_revision: revision,
        value: format!(r#"{{"PublicIP":"192.168.0.{last}","BackendType":"host-gw"}}"#).into_bytes(),
        lease: 7,
    }
}

fn v4(last: u8) -> Addresses {
    Addresses { v4: Some([192, 168, 0, last].into()), v6: None }
}

/// What a node at 192.168.0.1 without a lease sees of others: their addresses, or what is wrong.
fn others(view: &View) -> Vec<(String, String)> {
    let others = view.others(None, v4(1)).into_iter();
    let parsed = |lease: Result<crate::lease::Lease, String>| match lease {
        Ok(lease) => lease.node.public.v4.unwrap().to_string(),
        Err(why) => why,
    };
    others.map(|(name, lease)| (name, parsed(lease))).collect()
}

#[test]
fn a_change_that_is_older_than_what_is_known_changes_nothing() {
    let mut view = View::of(&[kv("10.5.1.0-24", 5, 2)], b"/");
    let change = |kind, revision, last| Event { kind, kv: Some(kv("10.5.1.0-24", revision, last)) };
    view.apply(&change(1, 4, 3), b"/");
    view.apply(&change(0, 5, 3), b"/");
    assert_eq!(others(&view), [("10.5.1.0-24".to_owned(), "192.168.0.2".to_owned())]);
    view.apply(&change(0, 6, 3), b"/");
    assert_eq!(others(&view)[0].1, "192.168.0.3");
    view.apply(&change(1, 7, 3), b"/");
    assert_eq!(others(&view).len(), 0);
}

#[test]
fn of_those_that_overlap_the_first_one_counts() {
    let kvs = [
        kv("10.5.0.0-16", 4, 4),
        kv("10.5.1.0-24", 2, 2),
        kv("10.5.2.0-24", 3, 3),
        kv("10.6.0.0-16", 5, 5),
        kv("10.6.1.0-24&fc00::-64", 6, 6),
        kv("10.7.1.0-24", 7, 7),
    ];
    let seen = others(&View::of(&kvs, b"/"));
    let seen: Vec<_> = seen.iter().map(|(name, parsed)| (name.as_str(), parsed.as_str())).collect();
    assert_eq!(
        seen,
        [
            ("10.5.0.0-16", "it overlaps 10.5.1.0-24, which was there first"),
            ("10.5.1.0-24", "192.168.0.2"),
            ("10.5.2.0-24", "192.168.0.3"),
            ("10.6.0.0-16", "192.168.0.5"),
            ("10.6.1.0-24&fc00::-64", "it overlaps 10.6.0.0-16, which was there first"),
            ("10.7.1.0-24", "192.168.0.7"),
        ]
    );
}

#[test]
fn addresses_of_one_node_share_a_family() {
    let v6 = |last: u16| Some([0xfd00, 0, 0, 0, 0, 0, 0, last].into());
    let both = |v4_last: u8, v6_last| Addresses { v6: v6(v6_last), ..v4(v4_last) };
    assert!(shared(v4(1), both(1, 2)) && shared(both(1, 3), both(1, 2)));
    assert!(shared(Addresses { v4: None, v6: v6(2) }, both(1, 2)));
    assert!(!shared(both(1, 2), both(2, 2)) && !shared(v4(1), Addresses { v4: None, v6: v6(2) }));
    assert!(!shared(Addresses::default(), Addresses::default()));
}

proptest! {
    /// Whatever is in the store, nothing panics, and each key is either seen or a reservation.
    #[test]
    fn anything_can_be_in_the_store(
        kvs in prop::collection::vec(
            ("(/10\\.[0-9]\\.[0-9]\\.0-(8|16|24))|.*", 0..9_i64, "\\{\\}|\\{\"BackendType\":\"x\"\\}|.*"),
            0..20,
        ),
    ) {
        let kvs: Vec<KeyValue> = kvs
            .into_iter()
            .map(|(key, revision, value)| KeyValue {
                key: key.into_bytes(),
                create_revision: revision,
                mod_revision: revision,
                value: value.into_bytes(),
                lease: 0,
            })
            .collect();
        let view = View::of(&kvs, b"/");
        let reserved = |(_, entry): &(&str, &super::Entry)| {
            entry.parsed.as_ref().is_ok_and(|lease| lease.node.backend.is_empty())
        };
        let reservations = view.iter().filter(reserved).count();
        prop_assert_eq!(view.others(None, v4(1)).len() + reservations, view.iter().count());
    }
}
