//! Elements that lead UDP elsewhere: a client that keeps its port follows them, also where undo was interrupted.

use std::net::UdpSocket;

use linux::netlink::Conntrack;
use linux::nft::{
    Base, Chain, ChainKind, Datum, Element, Family, Hook, Map, PacketField, Rule, Statement, Table,
};
use linux::{Link, LinkKind};
use plan::{Fault, Journal, Kernel, Place, Plan, Step, undo};
use testkit::{require_root, shell};

use crate::sample::ifname;
use crate::scene::Scene;

const TABLE: &str = "hostgap-led";
const KEY: [PacketField; 2] = [PacketField::Protocol, PacketField::Dport];

/// Port 8080 of the namespace, by UDP, leads to its port 81. A link is made before and goes behind.
fn plan(home: &Place) -> Plan {
    let led = Statement::DnatBy { parts: KEY.to_vec(), map: "ports".to_owned() };
    let value = vec![PacketField::Daddr, PacketField::Dport];
    let table = Table {
        family: Family::Ip,
        name: TABLE.to_owned(),
        maps: vec![Map { name: "ports".to_owned(), key: KEY.to_vec(), value }],
        chains: vec![Chain {
            name: "output".to_owned(),
            base: Some(Base { kind: ChainKind::Nat, hook: Hook::Output, priority: -100 }),
            rules: vec![Rule { matches: Vec::new(), then: led }],
        }],
    };
    let address = Datum::Address("127.0.0.1".parse().expect("an address"));
    let element = Element {
        family: Family::Ip,
        table: TABLE.to_owned(),
        map: "ports".to_owned(),
        key: vec![Datum::Udp, Datum::Port(8080)],
        value: vec![address, Datum::Port(81)],
    };
    let mut plan = Plan::new();
    plan.push(
        home,
        Step::AddLink(Link { name: ifname("hgd0"), kind: LinkKind::Bridge, mtu: None, mac: None }),
    );
    plan.push(home, Step::AddNftTable(table));
    plan.push(home, Step::AddNftElement(element));
    plan
}

/// A scene whose connections are tracked whatever the plan does, and a client there.
fn scene() -> Option<(Scene, UdpSocket)> {
    if !require_root() {
        return None;
    }
    let scene = Scene::with(
        "ip netns exec HOME nft add table ip asking
         ip netns exec HOME nft 'add chain ip asking in { type filter hook input priority 0; }'
         ip netns exec HOME nft add rule ip asking in ct state established accept",
    );
    let client = scene.world.open("home").run(|| UdpSocket::bind("127.0.0.1:0"));
    Some((scene, client.expect("a namespace").expect("a free port")))
}

/// Sends to the port; the container that is to answer by now.
fn answered_from(scene: &Scene, client: &UdpSocket) -> Vec<String> {
    client.send_to(b"x", "127.0.0.1:8080").expect("nobody has to listen");
    let conntrack = Conntrack::open_in(&scene.world.open("home")).expect("root may ask");
    let found = conntrack.udp(false, Some(8080)).expect("a list");
    found.iter().map(|one| one.answered_from.to_string()).collect()
}

#[test]
fn a_client_follows_what_is_made_and_what_goes() {
    let Some((scene, client)) = scene() else { return };
    let plan = plan(&scene.sample.home());
    assert_eq!(answered_from(&scene, &client), ["127.0.0.1:8080"]);
    scene.apply(&plan, Fault::None).expect("the plan can be applied");
    assert_eq!(answered_from(&scene, &client), ["127.0.0.1:81"]);
    let _ = scene.undo();
    assert_eq!(answered_from(&scene, &client), ["127.0.0.1:8080"]);
    // Another program has removed it.
    scene.apply(&plan, Fault::None).expect("the plan can be applied");
    assert_eq!(answered_from(&scene, &client), ["127.0.0.1:81"]);
    let home = &scene.sample.home;
    shell(&format!("ip netns exec {home} nft delete element ip {TABLE} ports '{{ udp . 8080 }}'"));
    assert_eq!(answered_from(&scene, &client), ["127.0.0.1:81"], "the connection goes on");
    let _ = scene.undo();
    assert_eq!(answered_from(&scene, &client), ["127.0.0.1:8080"]);
}

#[test]
fn a_client_follows_wherever_undo_was_interrupted() {
    let Some((scene, client)) = scene() else { return };
    let plan = plan(&scene.sample.home());
    for undone in 1..plan.steps.len() {
        let lines = scene.apply(&plan, Fault::None).expect("the plan can be applied");
        assert_eq!(answered_from(&scene, &client), ["127.0.0.1:81"]);
        let mut journal = Journal::open(&scene.path()).expect("the journal is sound");
        let mut kernel = Kernel::new().expect("the kernel can be opened");
        kernel.inject(Fault::DeadAfterLine(lines + undone));
        let results = undo(&mut journal, &mut kernel);
        assert_eq!(results.len(), undone, "{results:?}");
        drop(journal);
        let (_, journal) = scene.undo();
        assert!(journal.is_undone());
        assert_eq!(answered_from(&scene, &client), ["127.0.0.1:8080"], "after {undone} steps");
    }
}

/// Undo is not at its end before netfilter has answered: nothing else would make the client follow.
#[test]
fn a_client_follows_when_netfilter_answers_again() {
    let Some((scene, client)) = scene() else { return };
    scene.apply(&plan(&scene.sample.home()), Fault::None).expect("the plan can be applied");
    assert_eq!(answered_from(&scene, &client), ["127.0.0.1:81"]);
    let mut journal = Journal::open(&scene.path()).expect("the journal is sound");
    let mut kernel = Kernel::new().expect("the kernel can be opened");
    kernel.inject(Fault::InTracking);
    let results = undo(&mut journal, &mut kernel);
    let failed: Vec<_> = results.iter().filter(|(_, undone)| !undone.is_final()).collect();
    assert!(failed.len() == 1 && !journal.is_undone(), "{results:?}");
    drop(journal);
    let (_, journal) = scene.undo();
    assert!(journal.is_undone());
    assert_eq!(answered_from(&scene, &client), ["127.0.0.1:8080"]);
}
