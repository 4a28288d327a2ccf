//! The network of a pod in user mode. Many machines lack its programs, so it is not part of the sample.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use linux::cpu::Scheduling;
use linux::features::{Feature, probe};
use linux::user_net::{ForwardedPort, PortProtocol, UserNetProgram};
use linux::{Mac, Netlink, UserNet};
use plan::{Fault, Kernel, Made, Place, Plan, SetLinkUp, Step, Undone};
use testkit::require_root;

use crate::sample::{ifname, ip, veth};
use crate::scene::Scene;

/// A wire with an address in `away`, and a process there for the link `hgtap7` of `home`. `None`, with the skip
/// recorded, if this machine lacks the program.
fn plan(scene: &Scene, name: &str) -> Option<Plan> {
    let [node, pod] = [scene.sample.away(), scene.sample.home()];
    let wire = ifname("hgq8");
    let (feature, program) = match name {
        "pasta" => {
            let (addresses, gateways) = (vec![ip("10.244.1.2")], vec![ip("10.244.1.1")]);
            let [mac, gateway_mac] = [1, 2].map(|id| Mac::from_id(4, id));
            let wire = wire.clone();
            (Feature::Pasta, UserNetProgram::Pasta { addresses, gateways, mac, gateway_mac, wire })
        }
        _ => {
            let address = Some([10, 244, 1, 2].into());
            (Feature::Slirp4netns, UserNetProgram::Slirp4netns { address, ipv6: false })
        }
    };
    if let Some(why) = probe().unwrap().missing.get(&feature) {
        testkit::skip(&format!("no {name}: {why}"));
        return None;
    }
    let port = |protocol| ForwardedPort { protocol, address: None, port: 8080, to: 80 };
    let net = UserNet {
        name: scene.world.name("away").to_string(),
        pod: pod.netns().unwrap(),
        link: ifname("hgtap7"),
        mtu: 65520,
        program,
        ports: vec![port(PortProtocol::Tcp), port(PortProtocol::Udp)],
        cpus: Some(linux::cpu::allowed().unwrap()),
        scheduling: Scheduling::Normal,
    };
    let mut plan = Plan::new();
    plan.push(&node, veth("hgq8", "hgq9", None));
    plan.push(&node, SetLinkUp { link: wire.clone() });
    plan.push(&node, Step::AddAddress { link: wire, address: "192.0.2.1/24".parse().unwrap() });
    plan.push(&node, Step::StartUserNet(Box::new(net)));
    plan.push(&pod, SetLinkUp { link: ifname("hgtap7") });
    Some(plan)
}

fn process(plan: &Plan) -> &UserNet {
    let mut found = plan.steps.iter().filter_map(|placed| match &placed.step {
        Step::StartUserNet(net) => Some(net),
        _ => None,
    });
    found.next().unwrap()
}

fn has_link(scene: &Scene) -> bool {
    let pod = Netlink::open_in(&scene.world.open("home")).unwrap();
    pod.link(&ifname("hgtap7")).unwrap().is_some()
}

/// Runs a check for each program.
fn for_each(check: fn(Scene, &Plan)) {
    if !require_root() {
        return;
    }
    for name in ["pasta", "slirp4netns"] {
        let scene = Scene::with("ip -n HOME link set dev lo up");
        if let Some(plan) = plan(&scene, name) {
            check(scene, &plan);
        }
    }
}

#[test]
fn typed_commands_and_apply_do_the_same() {
    for_each(|scene, plan| {
        testkit::shell(&plan.commands().join("\n"));
        let (made, changes) = Made::of(plan, &mut Kernel::new().unwrap()).unwrap();
        assert!(changes.is_empty(), "{changes:?}");
        assert_eq!(made.changed(&mut Kernel::new().unwrap()).unwrap(), None);
        let net = process(plan);
        let started = Plan {
            steps: plan.steps.iter().filter(|placed| placed.place == scene.sample.away()).cloned().collect(),
        };
        let error = scene.apply(&started, Fault::None).unwrap_err().to_string();
        assert!(error.contains("there already"), "{error}");
        testkit::shell(&net.removal());
        assert!(!net.dir().exists());
        while net.is_alive() || has_link(&scene) {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_pod_whose_loopback_is_down_is_left_alone() {
    for_each(|scene, plan| {
        testkit::shell(&format!("ip -n {} link set dev lo down", scene.world.name("home")));
        let error = scene.apply(plan, Fault::None).unwrap_err().to_string();
        assert!(error.contains("the loopback of namespace"), "{error}");
        assert!(!has_link(&scene));
    });
}

#[test]
fn a_link_of_the_pod_is_left_alone() {
    for_each(|scene, plan| {
        let pod = scene.sample.home();
        let Place::Netns(name) = &pod else { panic!("{pod}") };
        testkit::shell(&format!("ip -n {name} tuntap add hgtap7 mode tap"));
        let error = scene.apply(plan, Fault::None).unwrap_err().to_string();
        assert!(error.contains("link hgtap7 in namespace") && error.contains("is there already"), "{error}");
        let (results, _) = scene.undo();
        assert!(results.iter().all(|(_, undone)| *undone == Undone::Restored), "{results:?}");
        assert!(has_link(&scene));
    });
}

/// Its link goes with it, and what was set there is gone too.
#[test]
fn a_dead_process_is_noticed_and_leaves_nothing() {
    for_each(|scene, plan| {
        scene.apply(plan, Fault::None).unwrap();
        let mut kernel = Kernel::new().unwrap();
        let (made, changes) = Made::of(plan, &mut kernel).unwrap();
        assert!(changes.is_empty(), "{changes:?}");
        assert_eq!(made.changed(&mut kernel).unwrap(), None);
        let net = process(plan);
        testkit::shell(&format!("kill -KILL $(cat {}/pid)", net.dir().path().display()));
        while net.is_alive() || has_link(&scene) {
            std::thread::yield_now();
        }
        assert!(made.changed(&mut kernel).unwrap().is_some());
        drop((made, kernel));
        let (results, journal) = scene.undo();
        assert!(journal.is_undone(), "{results:?}");
        assert!(!net.dir().exists());
        scene.assert_as_before("after undo without the process");
    });
}

/// A process that was killed while it started the program has not written down that it did.
#[test]
fn undo_takes_all_wherever_apply_stops() {
    for_each(|scene, plan| {
        scene.assert_undo_takes_all(plan);
        assert!(!process(plan).dir().exists());
    });
}
