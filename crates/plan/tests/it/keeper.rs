//! A unit that is kept by one process after another: its parts come, change and go, and what strangers break is mended.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::collections::BTreeMap;

use linux::Route;
use linux::netlink::{Change, Watch};
use plan::{Book, BookError, Keeper, Kept, Kernel, Plan, Step, UnitState};
use testkit::{require_root, shell};

use crate::reconcile::{FOREIGN, peer, tunnel, tunnel_of_mtu};
use crate::sample::{ifname, ip, net};
use crate::scene::Scene;

const UNIT: &str = "pods";
/// The size of a page, of which files on a `tmpfs` have whole ones.
const PAGE: u64 = 4096;

/// A scene with a book.
struct Stage {
    scene: Scene,
    book: Book,
}

impl Stage {
    fn new() -> Stage {
        let scene = Scene::with(FOREIGN);
        let book = Book::at(scene.directory.path().join("book"));
        Stage { scene, book }
    }

    fn open(&self) -> Keeper {
        Keeper::open(&self.book, UNIT, "pods over nodes").unwrap()
    }

    fn plan_of(&self, steps: impl IntoIterator<Item = Step>) -> Plan {
        self.scene.plan_of(steps)
    }

    /// A tunnel and a peer in it.
    fn tunnelled(&self) -> BTreeMap<String, Plan> {
        let parts = [("node", tunnel(1)), ("peer-b", peer("192.0.2.2", 2))];
        parts.map(|(name, steps)| (name.to_owned(), self.plan_of(steps))).into()
    }

    /// The same peer without a tunnel.
    fn direct(&self) -> BTreeMap<String, Plan> {
        let route = |dst, via| Step::ReplaceRoute(Route::via(net(dst), ip(via), ifname("own0")));
        let routes = [route("10.244.2.0/24", "192.0.2.2"), route("fd00:2::/64", "2001:db8::2")];
        let parts = [("node", Plan::new()), ("peer-b", self.plan_of(routes))];
        parts.map(|(name, plan)| (name.to_owned(), plan)).into()
    }
}

#[track_caller]
fn keep(keeper: &mut Keeper, wanted: &BTreeMap<String, Plan>) -> Kept {
    let mut kernel = Kernel::new().unwrap();
    let kept = keeper.keep(wanted, &mut kernel).unwrap();
    assert!(kept.failed.is_empty(), "{:?}", kept.failed);
    let again = keeper.keep(wanted, &mut kernel).unwrap();
    assert!(again.changed.is_empty() && again.failed.is_empty(), "{again:?}");
    kept
}

#[test]
fn a_unit_outlives_its_processes() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let mut keeper = stage.open();
    assert_eq!(keep(&mut keeper, &stage.tunnelled()).changed.len(), 2);
    assert!(matches!(Keeper::open(&stage.book, UNIT, ""), Err(BookError::Held { .. })));
    drop(keeper);
    let found = stage.book.find(UNIT).unwrap().unwrap();
    assert_eq!((found.state, found.note.as_deref()), (UnitState::Standing, Some("pods over nodes")));
    // While none keeps it, a node joins and a stranger deletes a route.
    stage.scene.at("ip -n HOME route del 10.244.2.0/24");
    let mut keeper = stage.open();
    let kept = keep(&mut keeper, &stage.tunnelled());
    assert_eq!(kept.changed.keys().collect::<Vec<_>>(), ["peer-b"]);
    assert_eq!(kept.changed["peer-b"].repaired.len(), 1);
    drop(keeper);
    let outcomes = Keeper::take_back(&stage.book, UNIT, &mut Kernel::new().unwrap()).unwrap();
    assert!(outcomes.iter().all(|journal| !journal.is_kept()), "{outcomes:?}");
    assert_eq!(stage.book.find(UNIT).unwrap(), None);
    stage.scene.assert_as_before("after it is taken back");
}

#[test]
fn a_link_that_is_made_again_gets_all_that_it_had() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let mut keeper = stage.open();
    keep(&mut keeper, &stage.tunnelled());
    stage.scene.at("ip -n HOME link del hgvx.1");
    let kept = keep(&mut keeper, &stage.tunnelled());
    let repaired = |part: &str| kept.changed[part].repaired.len();
    assert_eq!((repaired("node"), repaired("peer-b")), (tunnel(1).len(), peer("192.0.2.2", 2).len()));
    keep(&mut keeper, &BTreeMap::new());
    stage.scene.assert_as_before("after all parts are gone");
}

/// A process that does not know what is wanted keeps what the journals say, in an order in which it can be made.
#[test]
fn what_was_adapted_is_kept_by_its_journal_alone() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let mut keeper = stage.open();
    let mut wanted = stage.tunnelled();
    keep(&mut keeper, &wanted);
    wanted.insert("node".to_owned(), stage.plan_of(tunnel_of_mtu(1, 1300)));
    keep(&mut keeper, &wanted);
    drop(keeper);
    let mut keeper = stage.open();
    let parts = keeper.parts().clone();
    assert_eq!(parts["node"].steps.len(), tunnel(1).len());
    stage.scene.at("ip -n HOME link del hgvx.1");
    let kept = keep(&mut keeper, &parts);
    assert_eq!(kept.changed["node"].repaired.len(), tunnel(1).len());
    assert!(stage.scene.at("ip -n HOME link show hgvx.1").contains("mtu 1300"));
    keep(&mut keeper, &BTreeMap::new());
    stage.scene.assert_as_before("after all parts are gone");
}

#[test]
fn a_part_that_cannot_be_made_keeps_no_other_from_it() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let mut keeper = stage.open();
    let mut wanted = stage.tunnelled();
    let nowhere = Step::ReplaceRoute(Route::via(net("10.244.3.0/24"), ip("203.0.113.1"), ifname("own0")));
    wanted.insert("peer-a".to_owned(), stage.plan_of([nowhere]));
    let mut kernel = Kernel::new().unwrap();
    let kept = keeper.keep(&wanted, &mut kernel).unwrap();
    assert_eq!(kept.changed.keys().collect::<Vec<_>>(), ["node", "peer-b"]);
    let why = kept.failed["peer-a"].to_string();
    assert!(why.contains("route replace 10.244.3.0/24 via 203.0.113.1"), "{why}");
    // As soon as it can be made it is.
    stage.scene.at("ip -n HOME address add 203.0.113.9/24 dev own0");
    keep(&mut keeper, &wanted);
    stage.scene.at("ip -n HOME address del 203.0.113.9/24 dev own0");
    drop(keeper);
    Keeper::take_back(&stage.book, UNIT, &mut kernel).unwrap();
    stage.scene.assert_as_before("after it is taken back");
}

#[test]
fn from_a_tunnel_to_none_and_back_no_route_is_ever_missing() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let mut keeper = stage.open();
    keep(&mut keeper, &stage.tunnelled());
    let mut watch = Watch::open_in(&stage.scene.world.open("home")).unwrap();
    keep(&mut keeper, &stage.direct());
    keep(&mut keeper, &stage.tunnelled());
    let changes = watch.changes().unwrap();
    for dst in ["10.244.2.0/24", "fd00:2::/64"].map(net) {
        let is_of = |change: &&Change| matches!(change, Change::Route { dst: of, .. } if *of == dst);
        let seen: Vec<_> = changes.iter().filter(is_of).collect();
        let is_gone = |change: &&Change| matches!(change, Change::Route { is_gone: true, .. });
        assert!(seen.len() == 2 && !seen.iter().any(is_gone), "{seen:?}");
    }
    drop(keeper);
    Keeper::take_back(&stage.book, UNIT, &mut Kernel::new().unwrap()).unwrap();
    stage.scene.assert_as_before("after it is taken back");
}

/// A part that takes another one's place does not keep that one's as what was there before.
#[test]
fn places_change_hands_between_parts() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let mut keeper = stage.open();
    let to = |prefix: &str, via: &str| {
        stage.plan_of([Step::ReplaceRoute(Route::via(net(prefix), ip(via), ifname("own0")))])
    };
    let parts = |a: (&str, &str), b: Option<(&str, &str)>| {
        let mut parts = BTreeMap::from([("peer-a".to_owned(), to(a.0, a.1))]);
        parts.extend(b.map(|(prefix, via)| ("peer-b".to_owned(), to(prefix, via))));
        parts
    };
    keep(&mut keeper, &parts(("10.244.2.0/24", "192.0.2.3"), Some(("10.244.3.0/24", "192.0.2.4"))));
    // They exchange their prefixes, then one gets what the other had and that one goes.
    keep(&mut keeper, &parts(("10.244.3.0/24", "192.0.2.3"), Some(("10.244.2.0/24", "192.0.2.4"))));
    keep(&mut keeper, &parts(("10.244.2.0/24", "192.0.2.3"), None));
    let routes = stage.scene.at("ip -n HOME route");
    assert!(routes.contains("10.244.2.0/24 via 192.0.2.3") && !routes.contains("10.244.3.0/24"), "{routes}");
    keep(&mut keeper, &BTreeMap::new());
    stage.scene.assert_as_before("after all parts are gone");
}

/// What a part gives away is all that it loses: the rest of it is in use meanwhile.
#[test]
fn a_part_that_gives_one_place_away_keeps_the_others() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let mut keeper = stage.open();
    let parts = |of_a: &[&str], of_b: &[&str]| {
        let plan = |prefixes: &[&str], via: &str| {
            let route = |prefix: &&str| Step::ReplaceRoute(Route::via(net(prefix), ip(via), ifname("own0")));
            stage.plan_of(prefixes.iter().map(route).collect::<Vec<_>>())
        };
        BTreeMap::from([
            ("peer-a".to_owned(), plan(of_a, "192.0.2.3")),
            ("peer-b".to_owned(), plan(of_b, "192.0.2.4")),
        ])
    };
    keep(&mut keeper, &parts(&["10.244.2.0/24", "10.244.3.0/24"], &["10.244.4.0/24"]));
    let kept = keep(&mut keeper, &parts(&["10.244.2.0/24"], &["10.244.3.0/24", "10.244.4.0/24"]));
    let given = &kept.changed["peer-a"];
    assert_eq!((given.removed.len(), given.made.len()), (1, 0), "{given:?}");
    let routes = stage.scene.at("ip -n HOME route");
    for line in ["10.244.2.0/24 via 192.0.2.3", "10.244.3.0/24 via 192.0.2.4", "10.244.4.0/24 via 192.0.2.4"]
    {
        assert!(routes.contains(line), "{routes}");
    }
    keep(&mut keeper, &BTreeMap::new());
    stage.scene.assert_as_before("after all parts are gone");
}

#[test]
fn what_fails_again_and_again_does_not_make_a_journal_grow() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let mut keeper = stage.open();
    let wanted = stage.direct();
    keep(&mut keeper, &wanted);
    stage.scene.at("ip -n HOME link set own0 down");
    let mut kernel = Kernel::new().unwrap();
    for _ in 0..100 {
        assert!(keeper.keep(&wanted, &mut kernel).unwrap().failed.contains_key("peer-b"));
    }
    let journal = stage.book.path().join(UNIT).join("peer-b.journal");
    let lines = std::fs::read_to_string(journal).unwrap().lines().count();
    assert!(lines < 110, "{lines} lines");
    stage.scene.at("ip -n HOME link set own0 up");
    stage.scene.at("ip -n HOME address add 2001:db8::1/64 dev own0 nodad");
    keep(&mut keeper, &wanted);
}

/// Another program's tunnel had the route before. It goes while ours is in its place.
#[test]
fn what_was_displaced_from_a_link_that_is_gone_is_not_put_back() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let home = "ip -n HOME link add flannel.9 type vxlan id 9 dstport 8472 dev own0; ip -n HOME link set flannel.9 up";
    let book = Book::at(scene.directory.path().join("book"));
    scene.at(home);
    scene.at("ip -n HOME route add 10.244.2.0/24 via 10.244.2.0 dev flannel.9 onlink");
    let mut keeper = Keeper::open(&book, UNIT, "").unwrap();
    let route = Step::ReplaceRoute(Route::via(net("10.244.2.0/24"), ip("192.0.2.2"), ifname("own0")));
    keep(&mut keeper, &BTreeMap::from([("peer-a".to_owned(), scene.plan_of([route]))]));
    scene.at("ip -n HOME link del flannel.9");
    keep(&mut keeper, &BTreeMap::new());
    scene.assert_as_before("after the part is gone");
}

/// The place is another program's by the time at which it would be put back.
#[test]
fn what_has_come_into_a_free_place_stays() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let mut keeper = stage.open();
    keep(&mut keeper, &stage.tunnelled());
    stage.scene.at("ip -n HOME link del hgvx.1; ip -n HOME route add 10.244.2.0/24 via 192.0.2.7");
    keep(&mut keeper, &BTreeMap::new());
    let routes = stage.scene.at("ip -n HOME route");
    assert!(routes.contains("10.244.2.0/24 via 192.0.2.7"), "{routes}");
}

/// What is mended is in the journal already, and the journal of what goes, goes with it.
#[test]
fn a_full_disk_keeps_nothing_from_being_mended_or_taken_back() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let disk = stage.book.path().to_owned();
    shell(&format!("mkdir {0}; mount -t tmpfs -o size=1m none {0}", disk.display()));
    let mut keeper = stage.open();
    let mut wanted = stage.tunnelled();
    // Until what the last page has left is too little for the outcomes of undo, a line for each of its steps.
    let journal = disk.join(UNIT).join("peer-b.journal");
    let others = |number| {
        Step::ReplaceRoute(Route::via(net(&format!("10.245.{number}.0/24")), ip("192.0.2.9"), ifname("own0")))
    };
    let is_nearly_full = (2..60).any(|number| {
        let steps = peer(&format!("192.0.2.{number}"), 2).into_iter().chain((0..40).map(others));
        wanted.insert("peer-b".to_owned(), stage.plan_of(steps.collect::<Vec<_>>()));
        keep(&mut keeper, &wanted);
        PAGE - journal.metadata().unwrap().len() % PAGE < 1000
    });
    assert!(is_nearly_full);
    shell(&format!("! head -c 2m /dev/zero >{}/fill 2>/dev/null", disk.display()));
    for _ in 0..3 {
        stage.scene.at("ip -n HOME route del 10.244.2.0/24");
        assert_eq!(keep(&mut keeper, &wanted).changed["peer-b"].repaired.len(), 1);
    }
    wanted.remove("peer-b");
    keep(&mut keeper, &wanted);
    assert!(!journal.exists());
    shell(&format!("rm {}/fill", disk.display()));
    keep(&mut keeper, &BTreeMap::new());
    drop(keeper);
    Keeper::take_back(&stage.book, UNIT, &mut Kernel::new().unwrap()).unwrap();
    shell(&format!("umount {}", disk.display()));
    stage.scene.assert_as_before("after all");
}
