//! What arrives at a link, given to another one: made, read back and removed, with `tc` as the judge.

use linux::LinkKind;
use linux::netlink::{IngressFilter, IngressQdisc};
use testkit::has_redirects;

use crate::world::TestNetns;

/// A namespace with a link, `p0`, and an ifb.
fn with_links() -> (TestNetns, u32, u32) {
    let place = TestNetns::new("ingress");
    place.judge("ip", &["link", "add", "p0", "type", "veth", "peer", "name", "p1"]);
    let ifb = place.add("ifb", LinkKind::Ifb);
    let index = place.index("p0");
    (place, index, ifb)
}

fn tc(place: &TestNetns, line: &str) -> String {
    place.judge("tc", &line.split(' ').collect::<Vec<_>>())
}

fn found(place: &TestNetns, index: u32) -> Option<IngressQdisc> {
    place.netlink.ingress_qdisc(index).expect("qdiscs can be looked at")
}

fn qdisc(kind: &str, filters: &[IngressFilter]) -> Option<IngressQdisc> {
    Some(IngressQdisc { kind: kind.to_owned(), filters: filters.to_owned() })
}

const TYPED: &str =
    "filter add dev p0 ingress protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev ifb";

#[test]
fn a_redirect_is_what_tc_would_make() {
    if !has_redirects() {
        return;
    }
    let (place, index, ifb) = with_links();
    let shown = || {
        let shown = tc(&place, "qdisc show dev p0 ingress") + &tc(&place, "filter show dev p0 ingress");
        // Numbers of actions go on from one to the next.
        shown.lines().filter(|line| !line.starts_with("\tindex ")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(found(&place, index), None);
    place.netlink.ingress_redirect(index, ifb).expect("root may change its own links");
    let made = shown();
    let redirect = qdisc("ingress", &[IngressFilter::Redirect { to: ifb }]);
    assert_eq!(found(&place, index), redirect);
    let again = place.netlink.ingress_redirect(index, ifb).expect_err("a link has one such qdisc");
    assert!(again.is(libc::EEXIST), "{again}");

    place.netlink.delete_ingress_qdisc(index).expect("it is there");
    assert_eq!((found(&place, index), shown().as_str()), (None, ""));
    let gone = place.netlink.delete_ingress_qdisc(index).expect_err("nothing is left to delete");
    assert!(gone.is(libc::ENOENT) || gone.is(libc::EINVAL), "{gone}");

    tc(&place, "qdisc add dev p0 ingress");
    tc(&place, TYPED);
    assert_eq!(found(&place, index), redirect);
    assert_eq!(shown(), made);
    place.netlink.link_del(ifb).expect("it is there");
    assert_eq!(found(&place, index), qdisc("ingress", &[IngressFilter::Redirect { to: 0 }]));
}

#[test]
fn what_lets_packets_by_is_no_redirect() {
    if !has_redirects() {
        return;
    }
    let (place, index, ifb) = with_links();
    let other = || IngressFilter::Other("u32".to_owned());
    let check = |filter: &str| {
        tc(&place, "qdisc add dev p0 ingress");
        tc(&place, &format!("filter add dev p0 ingress {filter}"));
        assert_eq!(found(&place, index), qdisc("ingress", &[other()]), "{filter}");
        tc(&place, "qdisc del dev p0 ingress");
    };
    let everything = "u32 match u32 0 0";
    check(&format!("protocol ip {everything} action mirred egress redirect dev ifb"));
    check("protocol all u32 match u8 0 1 at 9 action mirred egress redirect dev ifb");
    check(&format!("protocol all chain 5 {everything} action mirred egress redirect dev ifb"));
    check(&format!("protocol all {everything} action mirred egress mirror dev ifb"));
    check(&format!("protocol all {everything} action mirred ingress redirect dev ifb"));
    check(&format!("protocol all {everything} flowid 1:1"));
    let mirror = "action mirred egress mirror dev ifb";
    check(&format!("protocol all {everything} {mirror} action mirred egress redirect dev ifb"));

    tc(&place, "qdisc add dev p0 clsact");
    assert_eq!(found(&place, index), qdisc("clsact", &[]));
    tc(&place, TYPED);
    tc(&place, "filter add dev p0 ingress protocol ip prio 2 u32 match u32 0 0 flowid 1:1");
    // What leaves is none of it.
    tc(&place, "filter add dev p0 egress protocol ip prio 3 u32 match u32 0 0 flowid 1:1");
    let both = [IngressFilter::Redirect { to: ifb }, other()];
    assert_eq!(found(&place, index), qdisc("clsact", &both));
}
