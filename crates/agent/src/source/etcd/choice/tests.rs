use datapath::{Addresses, Prefixes};
use ipnet::IpNet;
use linux::{PrivateKey, PublicKey};
use serde_json::json;

use super::super::view::View;
use super::super::wire::KeyValue;
use super::{Choice, Fate, NoneFree, Own, choose};
use crate::flannel;
use crate::lease::{Announcement, TunnelData};
use crate::network::{NetworkConfig, Subnets};

/// A node whose address ends in a number.
fn node(last: u8) -> Announcement {
    let public = Addresses { v4: Some([192, 168, 0, last].into()), v6: None };
    Announcement { public, backend: "host-gw".to_owned(), data: None, data_v6: None }
}

fn prefixes(texts: &[&str]) -> Prefixes {
    texts.iter().map(|text| text.parse::<IpNet>().unwrap()).collect()
}

/// The same, with encrypted tunnels.
fn keyed(last: u8, key: PublicKey) -> Announcement {
    Announcement { backend: "wireguard".to_owned(), data: Some(TunnelData::WireGuard(key)), ..node(last) }
}

/// Names, whose they are, and their etcd leases, in the order in which they were written.
fn view(entries: &[(&str, u8, i64)]) -> View {
    let named: Vec<_> = entries.iter().map(|(name, last, lease)| (*name, node(*last), *lease)).collect();
    view_of(&named)
}

fn view_of(entries: &[(&str, Announcement, i64)]) -> View {
    let kv = |(revision, (name, node, lease)): (i64, &(&str, Announcement, i64))| KeyValue {
        key: format!("/{name}").into_bytes(),
        create_revision: revision,
        mod_revision: revision,
        value: flannel::announcement_value(node).to_string().into_bytes(),
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
    choose(&view(entries), &three(v6), &node(1), None, &prefixes(previous), |below| below - 1)
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
    let own = Own {
        name: "10.5.2.0-24".to_owned(),
        pods: prefixes(&["10.5.2.0/24"]),
        lease: 8,
        announcement: node(1),
        is_claimed: false,
    };
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

#[test]
fn a_node_is_known_by_its_key_where_its_address_is_another_one() {
    let [own, others] = [(); 2].map(|()| PrivateKey::generate().unwrap().public());
    let chosen = |entries: &[(&str, Announcement, i64)], key: Option<PublicKey>| {
        let previous = prefixes(&[]);
        choose(&view_of(entries), &three(false), &keyed(1, own), key, &previous, |below| below - 1)
    };
    let before = [("10.5.1.0-24", keyed(9, own), 7), ("10.5.2.0-24", keyed(2, others), 8)];
    assert_eq!(chosen(&before, Some(own)), keep("10.5.1.0-24"));
    assert_eq!(chosen(&before, None), take(&["10.5.3.0/24"], None), "it is another machine's");
    // Nodes without keys have none in common.
    assert_eq!(chosen(&[("10.5.1.0-24", node(9), 7)], None), take(&["10.5.3.0/24"], None));
    // What has the node's address comes first.
    let both = [before[0].clone(), ("10.5.3.0-24", keyed(1, own), 9)];
    assert_eq!(chosen(&both, Some(own)), keep("10.5.3.0-24"));
}

/// Machines of which one was made from the other one's image have one key.
#[test]
fn a_claimed_lease_goes_back_to_the_machine_that_held_it() {
    let [key, others] = [(); 2].map(|()| PrivateKey::generate().unwrap().public());
    let (name, pods) = ("10.5.2.0-24".to_owned(), prefixes(&["10.5.2.0/24"]));
    let own = Own { name, pods, lease: 8, announcement: keyed(1, key), is_claimed: false };
    let fate =
        |own: &Own, by: &Announcement| own.fate(&view_of(&[("10.5.2.0-24", by.clone(), 9)]), &keyed(1, key));
    let lost = Fate::Lost("another node has written to 10.5.2.0-24".to_owned());
    assert_eq!(fate(&own, &keyed(3, key)), Fate::Claimed);
    assert_eq!(fate(&own, &keyed(3, others)), lost);
    let claimed = Own { is_claimed: true, ..own };
    assert_eq!(fate(&claimed, &keyed(3, key)), lost, "they do not write in turns");
    assert_eq!(fate(&claimed, &keyed(1, key)), Fate::Held);
}
