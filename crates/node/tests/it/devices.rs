//! Virtual functions of a card as the interfaces of containers, and what is no device.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::net::SocketAddr;
use std::time::Instant;

use linux::netlink::FunctionRules;
use linux::sysfs::{FunctionCard, LinkAttribute, NetSysfs};
use linux::{IfName, Mac, Netlink, Netns, NetnsPath};
use node::Home;
use node::plugin::{Reply, call};
use plan::{
    Fault, Journal, Kernel, Place, Plan, SetFunction, SetLinkAttribute, SetLinkMtu, SetLinkUp, Step, Undone,
    apply, undo,
};
use serde_json::{Value, json};
use testkit::{Dump, Offload, PacketSocket, card, dump, quick_dump, set_card_up, settle_card, shell};

use crate::limits::{assert_limited, bandwidth, transfer};
use crate::scene::{PATIENCE, Scene, address, check_failure, conf, with, works};

/// The functions of a card, by number: each with its link and the address of its device.
fn functions(card: &IfName) -> Vec<(IfName, String)> {
    let sysfs = NetSysfs::open(&Netns::current().unwrap()).unwrap();
    let of_card = |link: &IfName| {
        sysfs.function_of(link).filter(|of| of.card == FunctionCard::Here(card.clone())).map(|of| of.number)
    };
    let mut found: Vec<(u32, IfName)> =
        sysfs.links().unwrap().into_iter().filter_map(|link| Some((of_card(&link)?, link))).collect();
    found.sort();
    found.into_iter().map(|(_, link)| (link.clone(), sysfs.bus_address(&link).unwrap())).collect()
}

/// A card with two virtual functions, and containers for them. The calls of the plugin are in the machine's first
/// namespace, which has the card.
struct Ground {
    card: IfName,
    scene: Scene,
    home: Home,
    journal: Journal,
    /// The functions, as [`functions`] has them.
    made: Vec<(IfName, String)>,
    untouched: Dump,
    with_functions: Dump,
    directory: tempfile::TempDir,
}

impl Ground {
    /// `None`, with the skip recorded, without such a card.
    fn new() -> Option<Ground> {
        let (card, scene) = (card("igb")?, Scene::new()?);
        // A guest has no udev that would load it for the functions. The other would make links of its own when
        // it is first needed.
        shell("modprobe igbvf && modprobe ifb numifbs=0");
        set_card_up(&card);
        let here = Netns::current().unwrap();
        let untouched = dump(&here);
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path().join("run"), directory.path().join("leases"));
        let mut journal = Journal::create(&directory.path().join("journal")).unwrap();
        apply(&functions_wanted(&card, 2), &mut journal, &mut Kernel::new().unwrap()).unwrap();
        let made = functions(&card);
        assert_eq!(made.len(), 2, "{made:?}");
        made.iter().for_each(|(link, _)| settle_card(link));
        // An administrator's rules for one of them.
        shell(&format!("ip link set {card} vf 1 vlan 5 qos 3"));
        let with_functions = dump(&here);
        Some(Ground { card, scene, home, journal, made, untouched, with_functions, directory })
    }

    fn rules(&self, number: u32) -> FunctionRules {
        let netlink = Netlink::open().unwrap();
        netlink.function(netlink.index_of(&self.card).unwrap(), number).unwrap().unwrap()
    }

    /// A call for `eth0` of a container, with a configuration for one of the functions.
    fn ask(&self, command: &str, container: &str, conf: &Value) -> Reply {
        let netns = self.scene.netns(container);
        let variable = |name: &str| match name {
            "CNI_COMMAND" => Some(command.to_owned()),
            "CNI_CONTAINERID" => Some(container.to_owned()),
            "CNI_NETNS" => Some(netns.clone()),
            "CNI_IFNAME" => Some("eth0".to_owned()),
            _ => None,
        };
        call(&self.home, "hostgap", variable, &conf.to_string())
    }

    /// The configuration of a function in VLAN 7 without a check.
    fn conf(&self, number: usize) -> Value {
        device(&self.made[number].1)
    }

    /// Makes a container with a function.
    fn add(&self, container: &str, number: usize) -> Value {
        drop(self.scene.container(container));
        works(self.ask("ADD", container, &self.conf(number)))
    }

    fn del(&self, container: &str, number: usize) {
        let reply = self.ask("DEL", container, &self.conf(number));
        assert!(reply.is_success, "{container}: {:?}", reply.printed);
    }

    /// Ends a container's namespace, and waits until the kernel has brought the function's link back from it.
    fn end(&self, container: &str, number: usize) -> IfName {
        linux::netns::delete(&self.scene.world.name(container)).unwrap();
        let sysfs = NetSysfs::open(&Netns::current().unwrap()).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let [back] = sysfs.links_of(&self.made[number].1).unwrap().as_slice() {
                return back.clone();
            }
            assert!(Instant::now() < deadline, "function {number} does not come back");
            std::thread::yield_now();
        }
    }

    /// Compares the machine with what it was with functions, takes those back, and compares it with what it was before.
    fn assert_as_before(mut self) {
        let here = Netns::current().unwrap();
        assert_eq!(functions(&self.card), self.made);
        self.home.remove_unused_networks().unwrap();
        self.with_functions.assert_same(&dump(&here), "after all containers");
        let undone = undo(&mut self.journal, &mut Kernel::new().unwrap());
        assert!(undone.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{undone:?}");
        assert!(functions(&self.card).is_empty());
        self.untouched.assert_same(&dump(&here), "without functions");
    }
}

impl Drop for Ground {
    /// A test that fails leaves no functions to the next one.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let sysfs = NetSysfs::open(&Netns::current().unwrap()).unwrap();
            let _ = sysfs.write_attribute(&self.card, LinkAttribute::VirtualFunctions, 0);
        }
    }
}

/// The attach that hands a device over, in a VLAN, whichever card the guest has.
fn device(id: &str) -> Value {
    let vlan = with(with(conf("host-device"), "vlan", json!(7)), "spoof_check", json!(false));
    with(with(vlan, "wire", json!("lo")), "runtimeConfig", json!({ "deviceID": id }))
}

const IN_VLAN: FunctionRules =
    FunctionRules { vlan: 7, priority: Some(0), service_tag: false, spoof_check: false };

#[test]
fn functions_are_made_given_to_containers_and_taken_back() {
    let Some(ground) = Ground::new() else { return };
    let (scene, before) = (&ground.scene, [ground.rules(0), ground.rules(1)]);
    assert_eq!((before[1].vlan, before[1].priority), (5, Some(3)));
    let netlink = Netlink::open().unwrap();
    let results = ["a", "b"].into_iter().enumerate().map(|(number, container)| {
        let result = ground.add(container, number);
        let (link, _) = &ground.made[number];
        assert!(netlink.link(link).unwrap().is_none(), "{link} is in its container");
        result
    });
    let results: Vec<Value> = results.collect();
    assert_eq!([ground.rules(0), ground.rules(1)], [IN_VLAN; 2]);
    scene.exchange("a", "b", SocketAddr::new(address(&results[0], 0).parse().unwrap(), 80));
    scene.exchange("b", "a", SocketAddr::new(address(&results[1], 1).parse().unwrap(), 80));
    let check = with(ground.conf(0), "prevResult", results[0].clone());
    assert!(ground.ask("CHECK", "a", &check).is_success);
    let taken = ground.ask("ADD", "far", &ground.conf(0));
    check_failure(&taken, 7, "no link of this node belongs to a device of that address");

    // What a container sets at its link goes with the container. One of them goes before it is taken back, so that the
    // kernel brings its link back under the name of the inside, or one of its own.
    for (container, last) in [("a", 1), ("b", 2)] {
        let inside = scene.world.name(container);
        shell(&format!(
            "ip -n {inside} link set eth0 down
ip -n {inside} link set eth0 address 02:00:00:00:00:0{last} mtu 1400
ip -n {inside} link set eth0 up"
        ));
    }
    ground.del("a", 0);
    assert_ne!(ground.end("b", 1), ground.made[1].0);
    ground.del("b", 1);
    assert_eq!([ground.rules(0), ground.rules(1)], before);
    assert_eq!(ground.home.remove_unused_networks().unwrap().removed, ["pods"]);
    // When a link goes down, its driver takes the address that it has for the permanent one (`igbvf_reset` in
    // drivers/net/ethernet/intel/igbvf/netdev.c).
    ground.made.iter().for_each(|(link, _)| settle_card(link));
    ground.assert_as_before();
}

/// A limit stays in the container that had it: neither DEL nor the end of the namespace leaves any of
/// it at the function.
#[test]
fn what_a_container_receives_by_a_function_is_limited() {
    let Some(ground) = Ground::new() else { return };
    let scene = &ground.scene;
    let limited = |number: usize| {
        let runtime = json!({ "deviceID": ground.made[number].1, "bandwidth": bandwidth(&["ingress"]) });
        with(ground.conf(number), "runtimeConfig", runtime)
    };
    let results = ["a", "b"].into_iter().enumerate().map(|(number, container)| {
        drop(scene.container(container));
        works(ground.ask("ADD", container, &limited(number)))
    });
    let results: Vec<Value> = results.collect();
    assert_limited(transfer(scene, "b", "a", &address(&results[0], 0)), "received from another function");
    assert_limited(transfer(scene, "a", "b", &address(&results[1], 1)), "received from another function");
    let check = with(limited(0), "prevResult", results[0].clone());
    assert!(ground.ask("CHECK", "a", &check).is_success);
    ground.del("a", 0);
    ground.end("b", 1);
    ground.del("b", 1);
    ground.made.iter().for_each(|(link, _)| settle_card(link));
    ground.assert_as_before();
}

/// The DEL of a container that has gone can come when another one has its function already.
#[test]
fn a_late_del_takes_nothing_from_the_next_container() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.rules(0);
    ground.add("a", 0);
    ground.end("a", 0);
    let result = ground.add("b", 0);
    ground.del("a", 0);
    assert_eq!(ground.rules(0), IN_VLAN, "those of b");
    let check = with(ground.conf(0), "prevResult", result);
    assert!(ground.ask("CHECK", "b", &check).is_success);
    ground.del("b", 0);
    assert_eq!(ground.rules(0), before);

    // The same where the next one is another program's, which may want the same rules.
    ground.add("c", 0);
    let link = ground.end("c", 0);
    let other = ground.scene.world.name("far");
    shell(&format!("ip link set {link} netns {other} name other0 mtu 1300"));
    ground.del("c", 0);
    assert_eq!(ground.rules(0), IN_VLAN);
    let kept =
        Netlink::open_in(&ground.scene.world.open("far")).unwrap().link(&IfName::new("other0").unwrap());
    assert_eq!(kept.unwrap().unwrap().mtu, 1300);

    let (home, (link, _), check) = (std::process::id(), &ground.made[0], before.spoof_check);
    let (card, check) = (&ground.card, if check { "on" } else { "off" });
    shell(&format!(
        "ip -n {other} link set other0 netns {home} name {link} mtu 1500
ip link set {card} vf 0 vlan {} spoofchk {check}",
        before.vlan
    ));
    ground.assert_as_before();
}

/// Of two ADDs at once for one device no more than one has it, and that one keeps it.
#[test]
fn two_at_once_do_not_take_a_device_from_each_other() {
    let Some(ground) = Ground::new() else { return };
    ["a", "b"].into_iter().for_each(|name| drop(ground.scene.container(name)));
    for round in 0..6 {
        let conf = ground.conf(0);
        let ask = |name| ground.ask("ADD", name, &conf);
        let replies = std::thread::scope(|scope| {
            ["a", "b"].map(|name| scope.spawn(move || ask(name))).map(|asked| asked.join().unwrap())
        });
        assert!(!replies.iter().all(|reply| reply.is_success), "round {round}: both have it");
        for (name, reply) in ["a", "b"].into_iter().zip(&replies) {
            if reply.is_success {
                let inside = Netlink::open_in(&ground.scene.world.open(name)).unwrap();
                let has = inside.link(&IfName::new("eth0").unwrap()).unwrap();
                assert!(has.is_some(), "round {round}: the other took it from {name}");
            }
            ground.del(name, 0);
        }
    }
    ground.assert_as_before();
}

/// What a death has left of an earlier attachment and cannot be taken back is named with whose it is.
#[test]
fn the_owner_of_a_leftover_is_named() {
    let Some(ground) = Ground::new() else { return };
    ground.add("a", 0);
    ground.end("a", 0);
    let journal = ground.directory.path().join("run/cni-attachments/a.i-eth0/pod.journal");
    let whole = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, [b"{\n".as_slice(), &whole].concat()).unwrap();
    drop(ground.scene.container("b"));
    let refused = ground.ask("ADD", "b", &ground.conf(0));
    assert!(!refused.is_success);
    let printed = refused.printed.unwrap().to_string();
    assert!(printed.contains("interface eth0 of container a in network pods"), "{printed}");
    std::fs::write(&journal, whole).unwrap();
    ground.del("b", 0);
    ground.del("a", 0);
    ground.assert_as_before();
}

/// A card that has by now the name of one that is gone.
#[test]
fn another_card_of_the_name_stays_as_it_is() {
    let Some(mut ground) = Ground::new() else { return };
    ground.add("a", 0);
    ground.end("a", 0);
    let [(gone, id), (other, _)] = ground.made.as_slice() else { unreachable!("there are two") };
    shell(&format!(
        "echo {id} >/sys/bus/pci/drivers/igbvf/unbind
ip link set {other} down
ip link set {other} name {gone} mtu 1300"
    ));
    ground.del("a", 0);
    let kept = Netlink::open().unwrap().link(gone).unwrap().unwrap();
    assert_eq!(kept.mtu, 1300);
    shell(&format!("ip link set {gone} name {other} mtu 1500"));
    ground.home.remove_unused_networks().unwrap();
    let undone = undo(&mut ground.journal, &mut Kernel::new().unwrap());
    assert!(undone.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{undone:?}");
    ground.untouched.assert_same(&dump(&Netns::current().unwrap()), "without functions");
}

/// A card does not take every address from a function again: the administrator may have given it one meanwhile.
#[test]
fn a_refused_address_does_not_keep_del_from_ending() {
    let Some(mut ground) = Ground::new() else { return };
    ground.add("a", 0);
    let inside = ground.scene.world.name("a");
    shell(&format!(
        "ip -n {inside} link set eth0 down
ip -n {inside} link set eth0 address 02:00:00:00:00:09 mtu 1400
ip link set {} vf 0 mac 02:00:00:00:00:0a",
        ground.card
    ));
    let reply = ground.ask("DEL", "a", &ground.conf(0));
    assert!(reply.is_success, "{reply:?}");
    let [left] = reply.left.as_slice() else { panic!("{:?}", reply.left) };
    assert!(left.contains("could not be as before"), "{left}");
    let back = Netlink::open().unwrap().link(&ground.made[0].0).unwrap().unwrap();
    assert_eq!(back.mtu, 1500, "what it takes is as before");
    let again = ground.ask("DEL", "a", &ground.conf(0));
    assert!(again.is_success && again.left.is_empty(), "{again:?}");
    ground.home.remove_unused_networks().unwrap();
    let undone = undo(&mut ground.journal, &mut Kernel::new().unwrap());
    assert!(undone.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{undone:?}");
    ground.untouched.assert_same(&dump(&Netns::current().unwrap()), "without functions");
}

/// For experiments of a site (IEEE 802).
const ETHERTYPE: u16 = 0x88b5;

/// A frame to all, with a mark in it.
fn frame(source: Mac, mark: u8) -> Vec<u8> {
    [[0xff; 6].as_slice(), &source.0, &ETHERTYPE.to_be_bytes(), &[mark; 46]].concat()
}

/// The card's switch keeps VLANs apart, whatever a container sends. Source addresses it does not check where QEMU 11
/// emulates it (hw/net/igb_core.c reads of DTXSWC the loopback alone), so that a frame with another's is only shown to
/// pass without the check.
#[test]
fn a_frame_of_another_vlan_does_not_arrive() {
    let Some(ground) = Ground::new() else { return };
    ["a", "b"].into_iter().enumerate().for_each(|(number, name)| drop(ground.add(name, number)));
    let [a, b] = ["a", "b"].map(|name| ground.scene.world.open(name));
    let link = IfName::new("eth0").unwrap();
    let (sender, receiver) = (PacketSocket::sender(&a, &link), PacketSocket::receiver(&b, &link));
    let own = Netlink::open_in(&a).unwrap().link(&link).unwrap().unwrap().mac.unwrap();
    let send = |source, mark| sender.send(&frame(source, mark), Offload::default(), ETHERTYPE).unwrap();
    let arrived = || loop {
        let bytes = receiver.receive(PATIENCE).expect("a frame arrives").bytes;
        if bytes[12..14] == ETHERTYPE.to_be_bytes() {
            return bytes[14];
        }
    };
    send(own, 1);
    assert_eq!(arrived(), 1);
    send(Mac([2, 0, 0, 0, 0, 9]), 2);
    assert_eq!(arrived(), 2, "no check of its source");
    let vlan = |vlan: u16| drop(shell(&format!("ip link set {} vf 1 vlan {vlan}", ground.card)));
    vlan(8);
    send(own, 3);
    vlan(7);
    send(own, 4);
    assert_eq!(arrived(), 4, "the one before was of another VLAN");
    drop((sender, receiver, a, b));
    ground.del("a", 0);
    ground.del("b", 1);
    ground.assert_as_before();
}

fn functions_wanted(card: &IfName, value: u64) -> Plan {
    let mut plan = Plan::new();
    let attribute = LinkAttribute::VirtualFunctions;
    plan.push(&Place::Host, SetLinkAttribute { link: card.clone(), attribute, value });
    plan
}

/// The kernel takes functions from whoever has them, and changes their number only by way of none.
#[test]
fn functions_that_are_in_use_stay() {
    let Some(mut ground) = Ground::new() else { return };
    let (card, (_, id)) = (ground.card.clone(), ground.made[0].clone());
    let result = ground.add("a", 0);
    let holder = ground.scene.netns("a");
    let in_use = format!(
        "virtual function 0 of link {card} is in use: the link of device {id} is in namespace {holder}"
    );
    // All else that was set with them goes back.
    let (link, mtu) = (card.clone(), 1400);
    let mut beside = Plan::new();
    beside.push(&Place::Host, SetLinkMtu { link, mtu });
    apply(&beside, &mut ground.journal, &mut Kernel::new().unwrap()).unwrap();
    let undone = undo(&mut ground.journal, &mut Kernel::new().unwrap());
    let [(_, Undone::Restored), (_, Undone::Failed { why })] = undone.as_slice() else {
        panic!("{undone:?}")
    };
    assert_eq!(*why, in_use);
    let directory = tempfile::tempdir().unwrap();
    for (value, says) in [(0, in_use.as_str()), (1, "makes another number of them only from 0")] {
        let path = directory.path().join(value.to_string());
        let mut journal = Journal::create(&path).unwrap();
        let plan = functions_wanted(&card, value);
        let refused = apply(&plan, &mut journal, &mut Kernel::new().unwrap()).unwrap_err().to_string();
        assert!(refused.contains(says) && journal.is_undone(), "{refused}");
    }
    let sysfs = NetSysfs::open(&Netns::current().unwrap()).unwrap();
    let by_hand = sysfs.write_attribute(&card, LinkAttribute::VirtualFunctions, 1).unwrap_err().to_string();
    assert!(by_hand.contains("busy"), "{by_hand}");
    let check = with(ground.conf(0), "prevResult", result);
    assert!(ground.ask("CHECK", "a", &check).is_success);
    ground.del("a", 0);
    ground.assert_as_before();
}

/// Rules, name, MTU and queues come back after a fault behind any step and a death around the first two, and where the
/// container's namespace has gone meanwhile.
#[test]
fn a_function_comes_back_wherever_apply_died() {
    let Some(ground) = Ground::new() else { return };
    let (here, inside) = (Netns::current().unwrap(), NetnsPath::new(ground.scene.netns("a")).unwrap());
    let (place, name) = (Place::Path(inside), IfName::new("eth0").unwrap());
    let mut plan = Plan::new();
    let (vlan, spoof_check) = (Some(7), Some(false));
    plan.push(&Place::Host, SetFunction { link: ground.card.clone(), number: 1, vlan, spoof_check });
    let (link, to) = (ground.made[1].0.clone(), place.clone());
    plan.push(&Place::Host, Step::MoveLink { link, to, name: name.clone() });
    plan.push(&place, SetLinkMtu { link: name.clone(), mtu: 1400 });
    plan.push(&place, SetLinkUp { link: name });
    let (before, rules) = (quick_dump(&here), ground.rules(1));
    let steps = plan.steps.len();
    // The first line is the journal's header, and each step has two.
    let dead = [2, 3, 4].map(Fault::DeadAfterLine);
    let faults = (0..steps).map(Fault::AfterStep).chain(dead);
    let directory = tempfile::tempdir().unwrap();
    for (number, fault) in faults.chain([Fault::None]).enumerate() {
        drop(ground.scene.container("a"));
        let path = directory.path().join(number.to_string());
        let mut kernel = Kernel::new().unwrap();
        kernel.inject(fault);
        let applied = apply(&plan, &mut Journal::create(&path).unwrap(), &mut kernel);
        assert_eq!(applied.is_ok(), fault == Fault::None, "{fault:?}: {applied:?}");
        drop(kernel);
        // Every second namespace goes before undo.
        let goes = number % 2 == 1 || fault == Fault::None;
        if goes {
            ground.end("a", 1);
        }
        let outcomes = undo(&mut Journal::open(&path).unwrap(), &mut Kernel::new().unwrap());
        assert!(outcomes.iter().all(|(_, outcome)| outcome.is_final()), "{fault:?}: {outcomes:?}");
        assert_eq!(ground.rules(1), rules, "{fault:?}");
        before.assert_same(&quick_dump(&here), &format!("after {fault:?}"));
        if !goes {
            linux::netns::delete(&ground.scene.world.name("a")).unwrap();
        }
    }
    ground.assert_as_before();
}

#[test]
fn what_is_no_device_is_refused() {
    let Some(scene) = Scene::new() else { return };
    drop(scene.container("a"));
    let none = with(conf("host-device"), "wire", json!("wire0"));
    check_failure(&scene.call("ADD", "a", &none), 7, "`deviceID` is not set");
    let unknown = with(none.clone(), "deviceID", json!("0000:ff:1f.7"));
    let says = "\"0000:ff:1f.7\", and no link of this node belongs to a device of that address";
    check_failure(&scene.call("ADD", "a", &unknown), 7, says);
    let far = with(unknown, "vlan", json!(4095));
    check_failure(&scene.call("ADD", "a", &far), 7, "`vlan` is 4095");
    let other = with(conf("ptp"), "deviceID", json!("0000:00:03.0"));
    check_failure(
        &scene.call("ADD", "a", &other),
        2,
        "`deviceID` is \"0000:00:03.0\", which is for host-device",
    );
    let capability = with(conf("ptp"), "runtimeConfig", json!({ "deviceID": "0000:00:03.0" }));
    check_failure(&scene.call("ADD", "a", &capability), 2, "ptp takes no device of its own");
    let mac = with(none, "runtimeConfig", json!({ "deviceID": "x", "mac": "02:00:00:00:00:01" }));
    check_failure(&scene.call("ADD", "a", &mac), 2, "wire or device");
}
