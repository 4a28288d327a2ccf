use datapath::{Addresses, Prefixes};
use ipnet::IpNet;
use serde_json::json;

use super::super::view::View;
use super::super::wire::KeyValue;
use super::{Choice, Fate, NoneFree, Own, choose};
use crate::flannel;
use crate::lease::Announcement;
use crate::network::{NetworkConfig, Subnets};

/// A node whose address ends in a number.
fn node(last: u8) -> Announcement {
    let public = Addresses { v4: Some([192, 168, 0, last].into()), v6: None };
    Announcement { public, backend: "host-gw".to_owned(), data: None, data_v6: None }
}

fn prefixes(texts: &[&str]) -> Prefixes {
    texts.iter().map(|text| text.parse::<IpNet>().unwrap()).collect()
}

/// Names, whose they are, and their etcd leases, in the order in which they were written.
fn view(entries: &[(&str, u8, i64)]) -> View {
    let kv = |(revision, (name, last, lease)): (i64, &(&str, u8, i64))| KeyValue {
        key: format!("/{name}").into_bytes(),
        create_revision: revision,
        mod_revision: revision,
        value: flannel::announcement_value(&node(*last)).to_string().into_bytes(),
        lease: *lease,
    };
    View::of(&(1..).zip(entries).map(kv).collect::<Vec<_>>(), b"/")
}

/// 10.5.1.0/24 to 10.5.3.0/24, and with IPv6 fc00:0:0:1::/64 to fc00:0:0:3::/64.
fn three(v6: bool) -> Vec<Subnets> {
    let conf = json!({ "Network": "10.5.0.0/22", "EnableIPv6": v6, "IPv6Network": "fc00::/62" });
    NetworkConfig::parse(&conf).unwrap().subnets().unwrap()
}

/// What node 1 does, which had `previous`.
fn chosen(entries: &[(&str, u8, i64)], v6: bool, previous: &[&str]) -> Result<Choice, NoneFree> {
    choose(&view(entries), &three(v6), &node(1), &prefixes(previous), |below| below - 1)
}

fn keep(name: &str) -> Result<Choice, NoneFree> {
    Ok(Choice::Keep { name: name.to_owned() })
}

fn take(pods: &[&str], instead_of: Option<&str>) -> Result<Choice, NoneFree> {
    Ok(Choice::Take { pods: prefixes(pods), instead_of: instead_of.map(str::to_owned) })
}

#[test]
fn what_a_node_has_comes_first_then_what_it_had_then_what_is_free() {
    let others = [("10.5.1.0-24", 2, 7), ("10.5.3.0-24", 1, 8)];
    assert_eq!(chosen(&others, false, &["10.5.2.0/24"]), keep("10.5.3.0-24"));
    assert_eq!(chosen(&others[..1], false, &["10.5.2.0/24"]), take(&["10.5.2.0/24"], None));
    assert_eq!(chosen(&others[..1], false, &["10.5.1.0/24"]), take(&["10.5.3.0/24"], None));
    // It is no part of the network any more, or of another length.
    assert_eq!(chosen(&others[..1], false, &["10.6.2.0/24"]), take(&["10.5.3.0/24"], None));
    assert_eq!(chosen(&others[..1], false, &["10.5.2.0/25"]), take(&["10.5.3.0/24"], None));
    let full = [("10.5.1.0-24", 2, 7), ("10.5.2.0-23", 3, 0)];
    assert_eq!(chosen(&full, false, &[]), Err(NoneFree("IPv4")));
}

#[test]
fn what_no_longer_fits_goes_but_for_reservations() {
    assert_eq!(chosen(&[("10.5.2.0-25", 1, 8)], false, &[]), take(&["10.5.3.0/24"], Some("10.5.2.0-25")));
    assert_eq!(chosen(&[("10.5.2.0-25", 1, 0)], false, &[]), take(&["10.5.3.0/24"], None));
    // One that fits counts before one that does not.
    assert_eq!(chosen(&[("10.5.2.0-25", 1, 0), ("10.5.3.0-24", 1, 8)], false, &[]), keep("10.5.3.0-24"));
    // What was there first stands, and what overlaps it goes.
    let second = [("10.5.2.0-23", 2, 7), ("10.5.3.0-24", 1, 8)];
    assert_eq!(chosen(&second, false, &[]), take(&["10.5.1.0/24"], Some("10.5.3.0-24")));
}

#[test]
fn each_family_is_kept_by_itself() {
    let v4 = [("10.5.2.0-24", 1, 8)];
    let both = ["10.5.2.0/24", "fc00:0:0:3::/64"];
    assert_eq!(chosen(&v4, true, &[]), take(&both, Some("10.5.2.0-24")));
    let both = [("10.5.1.0-24&fc00:0:0:2::-64", 1, 8)];
    assert_eq!(chosen(&both, true, &[]), keep("10.5.1.0-24&fc00:0:0:2::-64"));
    assert_eq!(chosen(&both, false, &[]), take(&["10.5.1.0/24"], Some("10.5.1.0-24&fc00:0:0:2::-64")));
    let all = [("10.5.1.0-24&fc00::-62", 2, 8)];
    assert_eq!(chosen(&all, true, &[]), Err(NoneFree("IPv6")));
}

#[test]
fn whose_a_key_is_decides_its_last_writer() {
    let own =
        Own { name: "10.5.2.0-24".to_owned(), pods: prefixes(&["10.5.2.0/24"]), lease: 8, said: node(1) };
    let fate = |entries: &[(&str, u8, i64)]| own.fate(&view(entries), &node(5));
    assert_eq!(fate(&[("10.5.2.0-24", 1, 8)]), Fate::Held);
    // Its own successor, at the address that it is about to announce.
    assert_eq!(fate(&[("10.5.2.0-24", 5, 9)]), Fate::Held);
    assert_eq!(fate(&[]), Fate::Gone);
    assert_eq!(
        fate(&[("10.5.2.0-24", 2, 9)]),
        Fate::Lost("another node has written to 10.5.2.0-24".to_owned())
    );
    let overlapped = [("10.5.2.0-24&fc00::-64", 2, 7), ("10.5.2.0-24", 1, 8)];
    let why = "10.5.2.0-24 overlaps 10.5.2.0-24&fc00::-64, which was there first";
    assert_eq!(fate(&overlapped), Fate::Lost(why.to_owned()));
    assert_eq!(fate(&[overlapped[1], overlapped[0]]), Fate::Held);
}
