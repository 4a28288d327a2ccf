//! Queueing disciplines at the root of links: set, read back and restored, with `tc` as the judge.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use linux::Qdisc;
use linux::features::{Feature, probe};
use linux::qdisc::{Fq, FqCodel, Netem, Probability, Tbf};
use serde_json::Value;

use crate::world::{PATIENCE, TestNetns, ifname, is_missing};

const READ: &str = "queueing disciplines can be listed";

/// A namespace with a link, `p0`, and its other end.
fn with_link() -> (TestNetns, u32) {
    let place = TestNetns::new("qdisc");
    place.judge("ip", &["link", "add", "p0", "type", "veth", "peer", "name", "p1"]);
    let index = place.index("p0");
    place.up("p0", &[]);
    place.up("p1", &[]);
    (place, index)
}

/// The root queueing discipline of a link as `tc` prints it.
fn root(place: &TestNetns, link: &str) -> Value {
    let text = place.judge("tc", &["-s", "-j", "qdisc", "show", "dev", link]);
    let rows: Vec<Value> = serde_json::from_str(&text).expect("asked for JSON");
    rows.into_iter().find(|row| row["root"] == true).expect("every link that is up has one")
}

/// Sets the qdisc over another one of its kind with other options, reads it back, and removes it.
#[track_caller]
fn check(qdisc: &Qdisc, other: &Qdisc, expected: &[(&str, Value)]) {
    let (place, index) = with_link();
    let kernels = root(&place, "p0");
    assert_eq!(place.netlink.root_qdisc(index).expect(READ), None);
    place.netlink.set_root_qdisc(index, other).expect("root may change its own links");
    place.netlink.set_root_qdisc(index, qdisc).expect("root may change its own links");
    let found = place.netlink.root_qdisc(index).expect(READ).expect("it was put there");
    assert!(qdisc.is_met_by(&found.qdisc().expect("its kind is ours")), "{qdisc} is read as {found:?}");
    let shown = root(&place, "p0");
    assert_eq!(shown["kind"], qdisc.kind());
    for (name, value) in expected {
        assert_eq!(shown["options"][name], *value, "{name} of {shown}");
    }
    place.netlink.delete_root_qdisc(index).expect(READ);
    assert_eq!(root(&place, "p0")["kind"], kernels["kind"]);
    assert!(place.netlink.delete_root_qdisc(index).expect_err("nothing is left to delete").is(libc::ENOENT));
}

#[test]
fn a_place_for_filters_is_found_on_its_link_alone() {
    let (place, index) = with_link();
    let tc = |line: &str| place.judge("tc", &line.split(' ').collect::<Vec<_>>());
    let has = |link: &str| place.netlink.has_clsact(place.index(link)).expect("qdiscs can be looked at");
    assert!(!has("p0"));
    tc("qdisc add dev p0 clsact");
    assert!(has("p0") && !has("p1"));
    tc("qdisc del dev p0 clsact");
    assert!(!has("p0"));
    // The older one has the same place, and only half of it.
    tc("qdisc add dev p0 ingress");
    assert!(!has("p0"));
    place.netlink.set_root_qdisc(index, &Qdisc::Pfifo { limit: 7 }).expect("root may change its own links");
    assert!(!has("p1") && !has("p0"));
}

#[test]
fn simple_queues_are_put_and_taken() {
    check(&Qdisc::Pfifo { limit: 7 }, &Qdisc::Pfifo { limit: 8 }, &[("limit", 7.into())]);
    check(&Qdisc::PfifoFast, &Qdisc::Pfifo { limit: 8 }, &[("bands", 3.into())]);
}

#[test]
fn netem_is_put_and_taken() {
    if is_missing(Feature::Netem) {
        return;
    }
    let wan = Netem {
        delay_ns: 40_000_001,
        jitter_ns: 0,
        loss: Probability::from_ratio(0.002),
        reorder: Probability::from_ratio(0.01),
        rate_bytes_per_s: Some(12_500_000),
        limit: 5000,
    };
    let expected = [("limit", 5000.into()), ("gap", 1.into())];
    check(&Qdisc::Netem(wan.clone()), &Qdisc::Netem(Netem::default()), &expected);
    // Options that are left out are reset.
    let fast = Netem { rate_bytes_per_s: Some(5 << 32), limit: 1, ..Netem::default() };
    check(&Qdisc::Netem(fast), &Qdisc::Netem(wan.clone()), &[("loss-random", Value::Null)]);
    let long = Netem { delay_ns: 3_600_000_000_000, jitter_ns: 1_000_000_000, limit: 1, ..Netem::default() };
    check(&Qdisc::Netem(long), &Qdisc::Netem(wan), &[]);
}

#[test]
fn fq_is_put_and_taken() {
    if is_missing(Feature::Fq) {
        return;
    }
    let fq = Fq { limit: Some(999), flow_limit: Some(50), quantum: Some(3000), pacing: Some(false) };
    let expected = [("limit", 999.into()), ("flow_limit", 50.into()), ("quantum", 3000.into())];
    check(&Qdisc::Fq(fq.clone()), &Qdisc::Fq(Fq::default()), &expected);
    check(&Qdisc::Fq(Fq::default()), &Qdisc::Fq(fq), &[("limit", 10_000.into())]);
}

#[test]
fn fq_codel_is_put_and_taken() {
    if is_missing(Feature::FqCodel) {
        return;
    }
    let codel = FqCodel {
        limit: Some(999),
        target_us: Some(15_000),
        interval_us: Some(150_000),
        quantum: Some(3000),
        ecn: Some(false),
    };
    let expected = [("limit", 999.into()), ("target", 14_999.into()), ("ecn", Value::Null)];
    check(&Qdisc::FqCodel(codel.clone()), &Qdisc::FqCodel(FqCodel::default()), &expected);
    let expected = [("limit", 10_240.into()), ("ecn", true.into())];
    check(&Qdisc::FqCodel(FqCodel::default()), &Qdisc::FqCodel(codel), &expected);
}

#[test]
fn a_line_rate_is_put_with_its_queue_and_taken() {
    if is_missing(Feature::Tbf) {
        return;
    }
    let line =
        |rate_bytes_per_s, inner| Qdisc::Tbf(Box::new(Tbf { rate_bytes_per_s, burst_bytes: 3028, inner }));
    let (five, queue) = (line(5_000_000, Qdisc::Pfifo { limit: 33 }), Qdisc::Pfifo { limit: 1 });
    check(&five, &queue, &[("rate", 5_000_000.into())]);
    // A rate above 32 bits, in bytes a second.
    check(&line(5 << 30, Qdisc::PfifoFast), &five, &[("rate", (5_u64 << 30).into())]);

    let (place, index) = with_link();
    place.netlink.set_root_qdisc(index, &five).expect("root may change its own links");
    let text = place.judge("tc", &["-j", "qdisc", "show", "dev", "p0"]);
    let rows: Vec<Value> = serde_json::from_str(&text).expect("asked for JSON");
    let inner = rows.iter().find(|row| row["parent"] == "1:1").expect("it stands inside");
    assert_eq!(
        (inner["kind"].as_str(), inner["options"]["limit"].as_u64()),
        (Some("pfifo"), Some(33)),
        "{text}"
    );
    let found = place.netlink.root_qdisc(index).expect(READ).expect("it was put there");
    let other = line(5_000_000, Qdisc::Pfifo { limit: 34 });
    let found_qdisc = found.qdisc().expect("its kind is ours");
    assert!(five.is_met_by(&found_qdisc) && !other.is_met_by(&found_qdisc), "{found:?}");
    assert_eq!(found.irretrievable(), Some("others or filters stand below it"));
}

/// A qdisc that a user made with `tc` is restored exactly, with its handle and options.
#[track_caller]
fn check_restored(words: &str) {
    let (place, index) = with_link();
    let add = format!("qdisc add dev p0 root handle 7: {words}");
    place.judge("tc", &add.split(' ').collect::<Vec<_>>());
    let before = root(&place, "p0");
    let old = place.netlink.root_qdisc(index).expect(READ).expect("it was put there");
    assert_eq!((old.major, old.irretrievable()), (7, None), "{words}");
    place.netlink.set_root_qdisc(index, &Qdisc::Pfifo { limit: 2 }).expect("root may change its own links");
    assert_ne!(root(&place, "p0"), before);
    place.netlink.restore_root_qdisc(index, &old).expect("root may change its own links");
    assert_eq!(place.netlink.root_qdisc(index).expect(READ).as_ref(), Some(&old), "{words}");
    let after = root(&place, "p0");
    assert_eq!([&after["handle"], &after["options"]], [&before["handle"], &before["options"]], "{words}");
}

#[test]
fn others_simple_queues_are_put_back() {
    check_restored("pfifo limit 33");
    check_restored("bfifo limit 3300");
    check_restored("pfifo_fast");
    check_restored("noqueue");
}

#[test]
fn others_netem_is_put_back() {
    if !is_missing(Feature::Netem) {
        check_restored("netem delay 100s loss 0.3% 25% duplicate 1% rate 5gbit 20");
        check_restored("netem delay 1ms reorder 25% 50% gap 5 limit 77");
        check_restored("netem loss gemodel 1% 10% 70% 0.1%");
    }
}

#[test]
fn others_queues_of_flows_are_put_back() {
    if !is_missing(Feature::Fq) {
        check_restored("fq limit 77 maxrate 5mbit ce_threshold 3ms");
    }
    if !is_missing(Feature::FqCodel) {
        check_restored("fq_codel limit 77 flows 16 target 3ms interval 33ms ce_threshold 1ms");
    }
}

#[test]
fn what_could_not_be_put_back_is_named() {
    let (place, index) = with_link();
    let irretrievable = |words: &str| {
        let replace = format!("qdisc replace dev p0 root handle 7: {words}");
        place.judge("tc", &replace.split(' ').collect::<Vec<_>>());
        place.netlink.root_qdisc(index).unwrap().unwrap().irretrievable()
    };
    assert_eq!(irretrievable("htb"), Some("the kernel does not report its options as they are set"));
    place.judge(
        "tc",
        &["class", "add", "dev", "p0", "parent", "7:", "classid", "7:1", "htb", "rate", "1mbit"],
    );
    place.judge("tc", &["qdisc", "add", "dev", "p0", "parent", "7:1", "pfifo", "limit", "3"]);
    let found = place.netlink.root_qdisc(index).unwrap().unwrap();
    assert_eq!(found.irretrievable(), Some("others or filters stand below it"));
    if !is_missing(Feature::Netem) {
        place.netlink.delete_root_qdisc(index).unwrap();
        let why = Some("the kernel does not report the distribution of its jitter");
        assert_eq!(irretrievable("netem delay 9ms 1ms distribution normal"), why);
    }
}

#[test]
fn a_kind_that_is_missing_is_named() {
    let missing = probe().unwrap().missing;
    let (place, index) = with_link();
    let netem = Qdisc::Netem(Netem { limit: 1, ..Netem::default() });
    match place.netlink.set_root_qdisc(index, &netem) {
        Ok(()) => assert!(!missing.contains_key(&Feature::Netem)),
        Err(error) => {
            assert!(missing.contains_key(&Feature::Netem) && error.is(libc::ENOENT), "{error}");
            let expected = format!("put netem limit 1 at the root of link {index}");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }
}

/// Two places on a wire, with netem at either end.
fn wire(netem: &Netem) -> [TestNetns; 2] {
    let places = [TestNetns::new("near"), TestNetns::new("far")];
    places[0].wire(&places[1], "w0", "192.0.2.1/24", "192.0.2.2/24");
    for place in &places {
        place
            .netlink
            .set_root_qdisc(place.index("w0"), &Qdisc::Netem(netem.clone()))
            .expect("root may change its own links");
    }
    places
}

fn bound(place: &TestNetns, address: &str) -> UdpSocket {
    let bind = || UdpSocket::bind(address);
    let socket = place.netns.run(bind).expect("the namespace is there").expect("the place has the address");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    socket
}

/// A packet that goes there and back waits at least twice as long, however slow the machine is.
#[test]
fn netem_delays() {
    if is_missing(Feature::Netem) {
        return;
    }
    let delay = Duration::from_millis(30);
    let [near, far] = wire(&Netem { delay_ns: 30_000_000, limit: 100, ..Netem::default() });
    let [ours, theirs] = [bound(&near, "192.0.2.1:0"), bound(&far, "192.0.2.2:0")];
    let mut byte = [0];
    for _ in 0..3 {
        let start = Instant::now();
        ours.send_to(&[1], theirs.local_addr().unwrap()).unwrap();
        let (_, from) = theirs.recv_from(&mut byte).unwrap();
        theirs.send_to(&[1], from).unwrap();
        ours.recv_from(&mut byte).unwrap();
        assert!(start.elapsed() >= 2 * delay, "{:?}", start.elapsed());
    }
}

/// Of 4000 packets, each lost with a probability of 20 %, 800 are lost within six standard deviations (152).
/// That holds in all but one of half a billion runs.
#[test]
fn netem_loses() {
    if is_missing(Feature::Netem) {
        return;
    }
    let [near, far] = wire(&Netem { loss: Probability::from_ratio(0.2), limit: 10_000, ..Netem::default() });
    let (ours, theirs) = (bound(&near, "192.0.2.1:0"), bound(&far, "192.0.2.2:0"));
    // A permanent neighbour entry, because netem would lose neighbour requests too.
    let mac = far.netlink.link(&ifname("w0")).unwrap().unwrap().mac.unwrap().to_string();
    near.judge("ip", &["neighbour", "replace", "192.0.2.2", "lladdr", &mac, "dev", "w0"]);
    let counters = || {
        let shown = root(&near, "w0");
        ["packets", "drops"].map(|name| shown[name].as_u64().expect("tc counts"))
    };
    let before = counters();
    let address = theirs.local_addr().unwrap();
    for _ in 0..4000 {
        // Here the sender gets an error for a lost packet. On a real network it does not.
        let _lost = ours.send_to(&[0; 100], address);
    }
    let after = counters();
    let [passed, lost] = [after[0] - before[0], after[1] - before[1]];
    // The kernel sends a packet of its own now and then.
    assert!((4000..4020).contains(&(passed + lost)), "{passed} passed and {lost} were lost");
    assert!((648..=952).contains(&lost), "{lost} of {} were lost", passed + lost);
}

/// 50 000 bytes at 100 000 bytes a second take half a second. The last packet cannot arrive earlier.
#[test]
fn netem_has_a_rate() {
    if is_missing(Feature::Netem) {
        return;
    }
    let rate = Netem { rate_bytes_per_s: Some(100_000), limit: 1000, ..Netem::default() };
    let [near, far] = wire(&rate);
    let (ours, theirs) = (bound(&near, "192.0.2.1:0"), bound(&far, "192.0.2.2:0"));
    let address = theirs.local_addr().unwrap();
    let start = Instant::now();
    for _ in 0..50 {
        // 1000 bytes with the headers of UDP, IP and Ethernet.
        ours.send_to(&[0; 958], address).unwrap();
    }
    for _ in 0..50 {
        theirs.recv_from(&mut [0; 1000]).unwrap();
    }
    assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
}
