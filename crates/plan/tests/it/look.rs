//! A look at what a plan has made: at first all of it is as planned, and every later change is named.

use std::path::PathBuf;

use bpf::forward::{self, Endpoint, Program};
use bpf::{Hook, pins};
use linux::{Mac, Netlink, netns};
use plan::{Fault, Kernel, Made, Place, Plan, SetLinkUp, Step, StepState, look};
use testkit::{require_root, shell};

use crate::sample::{Sample, address, ifname};
use crate::scene::Scene;

/// A scene in which the sample's plan was applied and found as planned.
struct Stage {
    scene: Scene,
    kernel: Kernel,
    made: Made,
}

impl Stage {
    fn new() -> Stage {
        let scene = Scene::new();
        let plan = scene.sample.plan();
        Stage::of(scene, &plan)
    }

    fn of(scene: Scene, plan: &Plan) -> Stage {
        scene.apply(plan, Fault::None).unwrap_or_else(|error| panic!("{error}"));
        let mut kernel = Kernel::new().expect("the kernel can be opened");
        let (made, changes) = Made::of(plan, &mut kernel).expect("the kernel answers");
        assert_eq!(changes, [], "everything is as planned after apply");
        Stage { scene, kernel, made }
    }

    fn changed(&mut self) -> Option<String> {
        let change = self.made.changed(&mut self.kernel).expect("the kernel answers");
        change.map(|change| change.to_string())
    }

    /// The folder of pins of `home`.
    fn folder(&self) -> PathBuf {
        pins::folder(&self.scene.sample.node())
    }

    fn index(&self, link: &str) -> u32 {
        let home = self.scene.world.open("home");
        let netlink = Netlink::open_in(&home).expect("a socket can be opened there");
        netlink.index_of(&ifname(link)).expect("the link is there")
    }

    /// Runs the closure in the namespace `home`.
    fn at_home<T>(&self, work: impl FnOnce() -> T) -> T {
        self.scene.world.open("home").run(work).expect("the namespace is there")
    }

    fn shell(&self, command: &str) {
        let Sample { home, away, made } = &self.scene.sample;
        let command = command.replace("HOME", home.as_str()).replace("AWAY", away.as_str());
        shell(&command.replace("MADE", made.as_str()));
    }

    /// Runs a command and checks that the change is named. Runs a second command and checks that nothing is
    /// changed.
    #[track_caller]
    fn check(&mut self, change: &str, says: &str, back: &str) {
        self.shell(change);
        let found = self.changed().unwrap_or_else(|| panic!("{change}: no change was seen"));
        assert!(found.contains(says), "{change}: {found}");
        assert!(found.starts_with("namespace hgt-"), "{found}");
        self.shell(back);
        assert_eq!(self.changed(), None, "after {back}");
    }
}

#[test]
fn what_a_plan_has_made_is_so_until_it_is_undone() {
    if !require_root() {
        return;
    }
    let mut stage = Stage::new();
    assert_eq!(stage.changed(), None);
    let plan = stage.scene.sample.plan();
    let added = |step: &Step| {
        matches!(
            step,
            Step::AddAddress { .. }
                | Step::EnsureLink(_)
                | Step::EnsureAddress { .. }
                | Step::AddRoute(_)
                | Step::AddNeighbour(_)
                | Step::AddFdb(_)
                | Step::AddNftTable(_)
                | Step::LoadPrograms(_)
                | Step::AttachProgram(_)
                | Step::AddEndpoint(_)
                | Step::AddTunnel(_)
                | Step::AddUplink(_)
        )
    };
    let home = stage.scene.sample.home();
    let added: Vec<_> = plan.steps.iter().filter(|one| added(&one.step) && one.place == home).collect();
    assert!(added.len() > 20);
    for placed in &added {
        assert_eq!(look(placed, &mut stage.kernel).unwrap(), StepState::So, "{placed:?}");
    }
    stage.scene.undo();
    for placed in &added {
        assert_eq!(look(placed, &mut stage.kernel).unwrap(), StepState::Absent, "{placed:?}");
    }
}

#[test]
fn what_somebody_changes_of_links_and_routes_is_named() {
    if !require_root() {
        return;
    }
    let mut stage = Stage::new();
    let mut check = |change, says, back| stage.check(change, says, back);
    check("ip -n HOME link set hgp0 down", "link hgp0 is down", "ip -n HOME link set hgp0 up");
    check(
        "ip -n HOME link set free0 nomaster",
        "link free0 is no longer a port of ownbr but of none",
        "ip -n HOME link set free0 master ownbr",
    );
    check(
        "ip -n HOME link set free0 master hgbr0",
        "link free0 is no longer a port of ownbr but of hgbr0",
        "ip -n HOME link set free0 master ownbr",
    );
    check(
        "ip -n MADE link set eth0 mtu 1300",
        "link eth0 is now a macvlan link with MTU 1300 and address 02:03:00:00:00:01",
        "ip -n MADE link set eth0 mtu 1400",
    );
    check(
        "bridge -n HOME link set dev hgp0 hairpin off",
        "hairpin mode of link hgp0 is now off",
        "bridge -n HOME link set dev hgp0 hairpin on",
    );
    check(
        "ip -n HOME route replace 10.244.2.0/24 via 192.0.2.2",
        "the route to 10.244.2.0/24 is now another route to 10.244.2.0/24 by 192.0.2.2",
        "ip -n HOME route replace 10.244.2.0/24 via 10.244.1.2 dev hgv0",
    );
    check(
        "ip -n HOME route del 10.244.5.0/24",
        "the route to 10.244.5.0/24 is gone",
        "ip -n HOME route add 10.244.5.0/24 encap ip6 id 1 dst 2001:db8::2 csum via 10.244.5.0 dev hgvx.e onlink",
    );
    check(
        "ip -n MADE address del 10.244.1.2/24 dev hgv1 && ip -n MADE address add 10.244.1.2/25 dev hgv1",
        "address 10.244.1.2/24 of link hgv1 is gone",
        "ip -n MADE address del 10.244.1.2/25 dev hgv1 && ip -n MADE address add 10.244.1.2/24 dev hgv1 && \
         ip -n MADE route add 10.9.0.0/16 dev hgv1 src 10.244.1.2 && ip -n MADE route add default via 10.244.1.1",
    );
    check(
        "ip -n HOME neighbour replace 10.244.1.2 lladdr 02:00:00:00:00:77 dev hgv0",
        "neighbour 10.244.1.2 of link hgv0 is now neighbour 10.244.1.2 with 02:00:00:00:00:77",
        "ip -n HOME neighbour replace 10.244.1.2 lladdr 02:02:00:00:00:02 dev hgv0",
    );
    check(
        "bridge -n HOME fdb del 02:04:00:00:00:02 dev hgvx.1 dst 192.0.2.2",
        "the forwarding entry for 02:04:00:00:00:02 of link hgvx.1 is gone",
        "bridge -n HOME fdb append 02:04:00:00:00:02 dev hgvx.1 dst 192.0.2.2 permanent",
    );
}

#[test]
fn what_somebody_sets_is_named() {
    if !require_root() {
        return;
    }
    let mut stage = Stage::new();
    let mut check = |change, says, back| stage.check(change, says, back);
    check(
        "ip netns exec MADE sysctl -qw net.ipv4.ip_forward=0",
        "net/ipv4/ip_forward is now 0",
        "ip netns exec MADE sysctl -qw net.ipv4.ip_forward=1",
    );
    check(
        "tc -n MADE qdisc change dev hgv1 parent 1:1 handle 2: pfifo limit 5",
        "inside it pfifo limit 5",
        "tc -n MADE qdisc change dev hgv1 parent 1:1 handle 2: pfifo limit 78",
    );
    check(
        "ip -n MADE link set hgv1 gso_max_segs 18",
        "the limit of segments in a packet of link hgv1 is now 18",
        "ip -n MADE link set hgv1 gso_max_segs 17",
    );
    check(
        "ip -n HOME route change 198.51.100.0/24 via 192.0.2.2 quickack 1",
        "rto_min of the route to 198.51.100.0/24 is now",
        "ip -n HOME route change 198.51.100.0/24 via 192.0.2.2 quickack 1 rto_min 5ms",
    );
    check(
        "ip netns exec MADE sh -c 'mount -t sysfs sysfs /sys; echo 1 > /sys/class/net/hgv1/queues/rx-0/rps_cpus'",
        "of link hgv1 is now 0",
        "ip netns exec MADE sh -c 'mount -t sysfs sysfs /sys; echo 3 > /sys/class/net/hgv1/queues/rx-0/rps_cpus'",
    );
}

#[test]
fn what_somebody_adds_is_named() {
    if !require_root() {
        return;
    }
    let mut stage = Stage::new();
    let mut check = |change, says, back| stage.check(change, says, back);
    check(
        "ip -n HOME route add 10.244.2.7/32 dev own0",
        "the route to 10.244.2.7/32 by link own0 in table 254 is new",
        "ip -n HOME route del 10.244.2.7/32",
    );
    check(
        "ip -n MADE rule add priority 77 lookup 99",
        "the policy rule of priority 77 is new",
        "ip -n MADE rule del priority 77",
    );
    check("ip -n HOME link add other type bridge", "link other is new", "ip -n HOME link del other");
    check(
        "tc -n HOME qdisc add dev hgp1 root handle 9: pfifo limit 9",
        "queueing discipline pfifo of link hgp1 is new",
        "tc -n HOME qdisc del dev hgp1 root",
    );
    // A neighbour that was learnt comes and goes by itself, and is no change.
    stage.shell("ip -n HOME neighbour add 192.0.2.33 lladdr 02:00:00:00:00:33 dev own0 nud stale");
    assert_eq!(stage.changed(), None);
}

#[test]
fn a_changed_ruleset_is_seen_though_its_table_is_there() {
    if !require_root() {
        return;
    }
    for (command, says) in [
        ("nft flush chain ip hostgap postrouting", "the nftables rules have changed"),
        ("nft delete table ip hostgap", "nftables table ip hostgap is gone"),
        ("nft flush ruleset", "nftables table ip hostgap is gone"),
        ("nft add table ip6 another", "the nftables rules have changed"),
    ] {
        let mut stage = Stage::new();
        stage.shell(&format!("ip netns exec MADE {command}"));
        let found = stage.changed().unwrap();
        assert!(found.contains(says), "{command}: {found}");
    }
}

/// Changes something about the programs, and checks that the change is named.
#[track_caller]
fn check_programs(change: impl Fn(&Stage), says: &str) {
    if !require_root() {
        return;
    }
    let mut stage = Stage::new();
    change(&stage);
    let found = stage.changed().unwrap_or_else(|| panic!("{says}: no change was seen"));
    assert!(found.contains(says), "{found}");
}

#[test]
fn an_unmounted_bpffs_is_named() {
    let unmount = |stage: &Stage| drop(shell(&format!("umount --lazy {}", stage.folder().display())));
    check_programs(unmount, "the bpffs with the programs of hgt-");
}

#[test]
fn a_detached_program_is_named() {
    let detach = |stage: &Stage| {
        let program = Program::FromPod.pin(&stage.folder());
        let pin = Program::FromPod.link_pin(&stage.folder(), &ifname("hgv0"));
        let index = stage.index("hgv0");
        let how = stage.at_home(|| bpf::attached(&program, index, &pin)).unwrap().unwrap();
        stage.at_home(|| bpf::detach(how, index, &pin, false)).unwrap();
    };
    check_programs(detach, "program from_pod is no longer at link hgv0");
}

#[test]
fn a_pod_that_the_programs_have_forgotten_is_named() {
    let forget = |stage: &Stage| {
        let addresses = ["10.244.1.2", "fd00:1::2"].map(|text| text.parse().unwrap()).to_vec();
        let pod = Endpoint { link: stage.index("hgv0"), mac: Mac::from_id(2, 2), addresses, queued: false };
        forward::remove_endpoint(&stage.folder(), &pod).unwrap();
    };
    check_programs(forget, "the entry for the pod at link hgv0 in the maps of hgt-");
}

#[test]
fn another_program_beside_ours_is_named() {
    let add = |stage: &Stage| {
        let (program, pin) = (Program::FromTunnel.pin(&stage.folder()), stage.folder().join("another"));
        let index = stage.index("own0");
        // On a kernel without tcx our place is taken, so another filter is added after ours.
        if stage.at_home(|| bpf::attach(&program, Hook::Ingress, index, &pin)).is_err() {
            stage
                .shell("tc -n HOME filter add dev own0 ingress prio 7 protocol all bpf bytecode '1,6 0 0 0'");
        }
    };
    check_programs(add, "program from_wire at link own0 is now one of 2 programs and filters of that link");
}

/// The pin of a bpf link outlives its network link, and a new link of the same name has no program.
#[test]
fn a_pin_is_not_believed() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let home = scene.sample.home();
    let mut plan = Plan::new();
    plan.push(&home, scene.sample.load_programs());
    plan.push(&home, scene.sample.attach(Program::FromPod, "free0"));
    let mut stage = Stage::of(scene, &plan);
    let pin = Program::FromPod.link_pin(&stage.folder(), &ifname("free0"));
    let is_pinned = pin.exists();
    stage.shell("ip -n HOME link del free0; ip -n HOME link add free0 type veth peer name free1");
    assert_eq!(pin.exists(), is_pinned);
    let found = stage.changed().unwrap();
    assert!(found.contains("program from_pod is no longer at link free0"), "{found}");
}

#[test]
fn a_namespace_that_lost_its_name_is_named() {
    if !require_root() {
        return;
    }
    let mut stage = Stage::new();
    let made = stage.scene.sample.made.clone();
    netns::delete(&made).unwrap();
    assert_eq!(stage.changed(), Some(format!("namespace {made}: the namespace is gone")));
    shell(&format!("ip netns add {made}"));
    let another = format!("namespace {made}: the namespace is now another one of that name");
    assert_eq!(stage.changed(), Some(another));
}

/// If something differs from the plan at the start, that may be intended. It is reported once and not
/// expected later.
#[test]
fn what_is_otherwise_from_the_start_is_reported_once() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let mut plan = Plan::new();
    plan.push(&scene.sample.home(), address("own0", "192.0.2.77/24"));
    plan.push(&scene.sample.home(), SetLinkUp { link: ifname("free0") });
    scene.apply(&plan, Fault::None).unwrap();
    shell(&format!("ip -n {} link set free0 down", scene.sample.home));
    let mut kernel = Kernel::new().unwrap();
    let (made, changes) = Made::of(&plan, &mut kernel).unwrap();
    let reported: Vec<_> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(reported, [format!("namespace {}: link free0 is down", scene.sample.home)]);
    assert_eq!(made.changed(&mut kernel).unwrap(), None);
    let place = Place::Netns(scene.sample.away.clone());
    assert_eq!(changes.iter().filter(|change| change.place == place).count(), 0);
}
