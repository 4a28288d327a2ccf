//! Places by path: namespaces of a process or a container runtime, which may disappear at any time.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

use linux::{LinkKind, Mac, Netlink, Netns, NetnsPath, NetnsRef, VethPeer};
use plan::{Fault, Place, Plan, SetLinkUp, Step, Undone};
use testkit::{dump, require_root, run};

use crate::sample::{address, ifname, sysctl_step};
use crate::scene::Scene;

/// A process in a namespace without a name, like the first process of a container.
struct Container(Child);

impl Container {
    fn start() -> Container {
        let netns = Netns::anonymous().expect("root can make namespaces");
        // It ends when its input is closed.
        let child =
            netns.run(|| Command::new("cat").stdin(Stdio::piped()).spawn()).expect("a thread may enter it");
        Container(child.expect("every machine has cat"))
    }

    fn path(&self) -> NetnsPath {
        NetnsPath::new(format!("/proc/{}/ns/net", self.0.id())).expect("a sound path")
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("it is ours");
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.end();
    }
}

/// A pair into the namespace, a link that is moved there, an address and a parameter.
fn pod(scene: &Scene, path: &NetnsPath) -> Plan {
    let (home, inside) = (scene.sample.home(), Place::Path(path.clone()));
    let mut plan = Plan::new();
    let peer = VethPeer { name: ifname("eth0"), netns: Some(path.clone().into()), mtu: None, mac: None };
    let (kind, mac) = (LinkKind::Veth { peer }, Some(Mac::from_id(2, 1)));
    plan.push(&home, Step::AddLink(linux::Link { name: ifname("hgv0"), kind, mtu: None, mac }));
    let moved = Step::MoveLink { link: ifname("spare0"), to: inside.clone(), name: ifname("eth1") };
    plan.push(&home, moved);
    plan.push(&inside, sysctl_step("net/ipv6/conf/eth0/accept_dad", "0"));
    for link in ["eth0", "eth1"] {
        plan.push(&inside, SetLinkUp { link: ifname(link) });
    }
    plan.push(&inside, address("eth0", "10.244.1.2/24"));
    plan
}

/// The sample with paths in place of the names of the existing namespaces.
fn by_path(scene: &Scene) -> Plan {
    let mut plan = scene.sample.plan();
    let path = |place: &Place| match place {
        Place::Netns(name) if *name != scene.sample.made => {
            Place::Path(NetnsPath::new(format!("/run/netns/{name}")).expect("a sound path"))
        }
        Place::Host | Place::Netns(_) | Place::Path(_) => place.clone(),
    };
    for placed in &mut plan.steps {
        placed.place = path(&placed.place);
        if let Step::AddLink(linux::Link { kind: LinkKind::Veth { peer }, .. }) = &mut placed.step {
            peer.netns = peer.netns.take().and_then(|netns| path(&netns.into()).netns());
        }
    }
    plan
}

#[test]
fn every_step_can_be_done_by_path() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let plan = by_path(&scene);
    scene.apply(&plan, Fault::None).unwrap();
    assert!(scene.is_changed(), "the plan changes something");
    let (results, _) = scene.undo();
    let odd: Vec<_> = results.iter().filter(|(_, outcome)| *outcome != Undone::Restored).collect();
    assert!(odd.is_empty(), "{odd:?}");
    scene.assert_as_before("after undo");
}

#[test]
fn a_container_is_left_as_it_was_wherever_apply_stopped() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let container = Container::start();
    let plan = pod(&scene, &container.path());
    let inside = || dump(&Netns::open_path(&container.path()).unwrap());
    let before = inside();
    let lines = scene.apply(&plan, Fault::None).unwrap();
    scene.undo();
    scene.undo_wherever_apply_stops(&plan, lines, |when| {
        scene.assert_as_before(when);
        before.assert_same(&inside(), when);
    });
}

/// The process ends before undo: the kernel removes what was inside, and a veth pair with it.
#[test]
fn undo_after_the_container_has_nothing_to_do() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let mut container = Container::start();
    let mut plan = pod(&scene, &container.path());
    // The kernel deletes a veth with its namespace, so a moved one could not come back. This plan moves none.
    plan.steps.retain(|placed| !matches!(placed.step, Step::MoveLink { .. }));
    plan.steps.retain(|placed| placed.step != SetLinkUp { link: ifname("eth1") }.into());
    scene.apply(&plan, Fault::None).unwrap();
    container.end();
    let (results, journal) = scene.undo();
    assert!(journal.is_undone(), "{results:?}");
    let inside = results.iter().filter(|(placed, _)| matches!(placed.place, Place::Path(_)));
    assert!(inside.clone().count() > 0 && inside.clone().all(|(_, undone)| *undone == Undone::Gone));
    scene.assert_as_before("after undo");
}

/// The runtime's file now refers to another namespace, which has links of the same names.
#[test]
fn a_path_that_leads_elsewhere_is_left_alone() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let file = scene.directory.path().join("pod");
    File::create(&file).unwrap();
    let path = NetnsPath::new(file.to_str().unwrap()).unwrap();
    let bind = |netns: &Netns| {
        let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&netns.as_fd()));
        rustix::mount::mount_bind(from, &file).unwrap();
    };
    let unbind = || rustix::mount::unmount(&file, rustix::mount::UnmountFlags::DETACH).unwrap();
    let (first, second) = (Netns::anonymous().unwrap(), Netns::anonymous().unwrap());
    bind(&first);
    scene.apply(&pod(&scene, &path), Fault::None).unwrap();
    unbind();
    bind(&second);
    for name in ["eth0", "eth1"] {
        run(&second, "ip", &["link", "add", name, "type", "bridge"]);
        run(&second, "ip", &["link", "set", name, "up"]);
    }
    let before = dump(&second);
    let (results, journal) = scene.undo();
    assert!(journal.is_undone(), "{results:?}");
    before.assert_same(&dump(&second), "after undo");
    let left = Netlink::open_in(&first).unwrap();
    assert!(left.link(&ifname("eth0")).unwrap().is_none(), "the pair went with its end in the node");
    unbind();
}

#[test]
fn what_is_no_namespace_is_refused() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    for (path, expected) in [
        ("/proc/self/ns/mnt", "enter namespace /proc/self/ns/mnt"),
        ("/dev/null", "enter namespace /dev/null"),
        ("/nowhere/netns", "open the network namespace /nowhere/netns"),
    ] {
        let mut plan = Plan::new();
        let place = Place::from(NetnsRef::from(NetnsPath::new(path).unwrap()));
        plan.push(&place, sysctl_step("net/ipv4/ip_forward", "1"));
        let error = scene.apply(&plan, Fault::None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        let mut plan = Plan::new();
        plan.push(&place, Step::AddNetns);
        let error = scene.apply(&plan, Fault::None).unwrap_err().to_string();
        assert!(error.contains("cannot be made"), "{error}");
    }
}

#[test]
fn commands_enter_by_path() {
    let path = NetnsPath::new("/run/pods/it's").unwrap();
    let place = Place::Path(path);
    let mut plan = Plan::new();
    plan.push(&place, address("eth0", "10.244.1.2/24"));
    let typed = plan.commands();
    assert!(typed[0].starts_with(r"nsenter --net='/run/pods/it'\''s' ip address add"), "{typed:?}");
}
