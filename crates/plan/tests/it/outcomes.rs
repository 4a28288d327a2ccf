//! Undo after another program has changed something, and apply when something is in the way.

use linux::netlink::Netlink;
use linux::sysctl::{self, Key};
use plan::{
    ApplyError, Fault, Journal, Kernel, Place, Plan, SetLinkMaster, SetLinkMtu, SetLinkUp, SetQueueCpus,
    Step, StepError, Undone, undo_in_boot,
};
use testkit::{require_root, run, shell};

use crate::sample::{Sample, address, bridge, ensured_bridge, ifname, ip, net, sysctl_step, table, veth};
use crate::scene::Scene;

fn plan_of(steps: &[(Place, Step)]) -> Plan {
    let mut plan = Plan::new();
    for (place, step) in steps {
        plan.push(place, step.clone());
    }
    plan
}

impl Scene {
    pub(crate) fn apply_steps(&self, steps: &[(Place, Step)]) -> Result<(), ApplyError> {
        self.apply(&plan_of(steps), Fault::None).map(drop)
    }

    fn outcomes(&self) -> Vec<Undone> {
        self.undo().0.into_iter().map(|(_, outcome)| outcome).collect()
    }

    pub(crate) fn home(&self, step: Step) -> (Place, Step) {
        (self.sample.home(), step)
    }

    /// Applies the step, runs a command with the names of `home` and `away` filled in, and undoes.
    #[track_caller]
    pub(crate) fn check(
        step: impl FnOnce(&Scene) -> Step,
        command: &str,
        expected: impl FnOnce(&Undone) -> bool,
    ) {
        let scene = Scene::new();
        scene.apply_steps(&[scene.home(step(&scene))]).expect("the step can be done");
        let Sample { home, away, .. } = &scene.sample;
        shell(&command.replace("HOME", home.as_str()).replace("AWAY", away.as_str()));
        let found = scene.outcomes();
        assert_eq!(found.len(), 1);
        assert!(expected(&found[0]), "{found:?}");
        if matches!(found[0], Undone::Restored | Undone::AlreadySo) {
            scene.assert_as_before("after undo");
        }
    }
}

pub(crate) fn is_changed(words: &str) -> impl FnOnce(&Undone) -> bool {
    move |outcome| matches!(outcome, Undone::ChangedByOther { found } if found.contains(words))
}

pub(crate) fn is_gone(outcome: &Undone) -> bool {
    *outcome == Undone::Gone
}

pub(crate) fn is_so(outcome: &Undone) -> bool {
    *outcome == Undone::AlreadySo
}

#[test]
fn what_another_changed_is_left_alone() {
    if !require_root() {
        return;
    }
    let mtu = |_: &Scene| Step::from(SetLinkMtu { link: ifname("own0"), mtu: 1400 });
    Scene::check(mtu, "ip -n HOME link set own0 mtu 1300", is_changed("1300"));
    let rmem = |_: &Scene| sysctl_step("net/ipv4/tcp_rmem", "4096 65536 1048576");
    Scene::check(
        rmem,
        "ip netns exec HOME sysctl -qw net.ipv4.tcp_rmem='4096 70000 99999'",
        is_changed("99999"),
    );
    let again = "ip -n HOME link del hgbr0; ip -n HOME link add hgbr0 type bridge";
    Scene::check(|_| bridge("hgbr0"), again, is_changed("bridge link hgbr0"));
    let master = |_: &Scene| Step::from(SetLinkMaster { link: ifname("free0"), master: ifname("ownbr") });
    let other = "ip -n HOME link add other type bridge; ip -n HOME link set free0 master other";
    Scene::check(master, other, is_changed("a port of other"));
}

#[test]
fn a_route_into_another_tunnel_is_left_alone() {
    if !require_root() {
        return;
    }
    let dev = ifname("hgvx.e");
    let kind = linux::LinkKind::VxlanExternal { port: 8473 };
    let tunnel = linux::Link { name: dev.clone(), kind, mtu: None, mac: None };
    for (dst, via) in [("10.244.4.0/24", "10.244.4.0"), ("fd00:4::/64", "fd00:4::")] {
        let scene = Scene::new();
        let encap = Some(linux::Encap { id: 1, remote: ip("192.0.2.2") });
        let route = linux::Route::via(net(dst), ip(via), dev.clone());
        let steps = [
            Step::AddLink(tunnel.clone()),
            Step::from(SetLinkUp { link: dev.clone() }),
            Step::AddRoute(linux::Route { onlink: true, encap, ..route }),
        ];
        scene.apply_steps(&steps.map(|step| scene.home(step))).unwrap();
        let home = &scene.sample.home;
        shell(&format!(
            "ip -n {home} route replace {dst} encap ip id 9 dst 192.0.2.3 via {via} dev {dev} onlink"
        ));
        let found = scene.outcomes();
        assert!(is_changed("in tunnel 9 to 192.0.2.3")(&found[0]), "{found:?}");
        assert_eq!(found[1..], [Undone::Restored, Undone::Restored]);
        scene.assert_as_before("when the tunnel took the other's route with it");
    }
}

#[test]
fn what_is_gone_is_no_error() {
    if !require_root() {
        return;
    }
    Scene::check(|_| bridge("hgbr0"), "ip -n HOME link del hgbr0", is_gone);
    Scene::check(
        |_| address("own0", "192.0.2.77/24"),
        "ip -n HOME address del 192.0.2.77/24 dev own0",
        is_gone,
    );
    Scene::check(|_| address("own0", "192.0.2.77/24"), "ip -n HOME link del own0", is_gone);
    let mtu = |_: &Scene| Step::from(SetLinkMtu { link: ifname("own0"), mtu: 1400 });
    Scene::check(mtu, "ip -n HOME link del own0", is_gone);
    let nft = |_: &Scene| Step::AddNftTable(table("hostgap"));
    Scene::check(nft, "ip netns exec HOME nft delete table ip hostgap", is_gone);
}

#[test]
fn what_another_put_back_is_so_already() {
    if !require_root() {
        return;
    }
    let forward = |_: &Scene| sysctl_step("net/ipv4/conf/lo/rp_filter", "1");
    Scene::check(forward, "ip netns exec HOME sysctl -qw net.ipv4.conf.lo.rp_filter=0", is_so);
    let mtu = |_: &Scene| Step::from(SetLinkMtu { link: ifname("own0"), mtu: 1400 });
    Scene::check(mtu, "ip -n HOME link set own0 mtu 1500", is_so);
    // A link loses its parameters when it changes namespaces, whichever program brings it back.
    let moved = |scene: &Scene| Step::MoveLink {
        link: ifname("spare0"),
        to: scene.sample.away(),
        name: ifname("spare1"),
    };
    Scene::check(moved, "ip -n AWAY link set spare1 netns HOME name spare0", is_so);
    // The link was up before, so there was nothing to do.
    Scene::check(|_| Step::from(SetLinkUp { link: ifname("own0") }), "true", is_so);
}

/// Whoever has a link may give it names, and one of them may be another link's where it came from.
#[test]
fn a_link_comes_back_without_names_that_are_taken() {
    if !require_root() {
        return;
    }
    let moved = |scene: &Scene| Step::MoveLink {
        link: ifname("spare0"),
        to: scene.sample.away(),
        name: ifname("spare1"),
    };
    let names = "ip -n AWAY link property add dev spare1 altname own0 altname a-name-longer-than-a-link-has";
    Scene::check(moved, names, |outcome| *outcome == Undone::Restored);
}

/// A plan has made a namespace, and a bridge in it.
fn with_a_namespace() -> Scene {
    let scene = Scene::new();
    let made = scene.sample.made();
    scene
        .apply_steps(&[(made.clone(), Step::AddNetns), (made, bridge("hgbr0"))])
        .expect("nothing of it is there yet");
    scene
}

#[test]
fn a_namespace_of_the_same_name_is_not_ours() {
    if !require_root() {
        return;
    }
    let scene = with_a_namespace();
    let name = &scene.sample.made;
    shell(&format!("ip netns del {name}\nip netns add {name}\nip -n {name} link add hgbr0 type bridge"));
    let found = scene.outcomes();
    assert_eq!(found[0], Undone::Gone);
    assert!(is_changed("another namespace")(&found[1]), "{found:?}");
    let links = run(&scene.world.open("made"), "ip", &["-br", "link"]);
    assert!(links.contains("hgbr0"), "the other program's link is still there: {links}");
}

#[test]
fn a_deletion_that_was_cut_short_is_done_to_its_end() {
    if !require_root() {
        return;
    }
    let scene = with_a_namespace();
    // The name is there, and leads to no namespace any more.
    let name = &scene.sample.made;
    shell(&format!("umount --lazy /run/netns/{name}"));
    assert_eq!(scene.outcomes(), [Undone::Gone, Undone::Restored]);
    assert!(!linux::netns::exists(name));
}

#[test]
fn after_a_restart_of_the_machine_nothing_is_touched() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    scene.apply_steps(&[scene.home(bridge("hgbr0"))]).unwrap();
    let boot_id = scene.directory.path().join("boot_id");
    std::fs::write(&boot_id, "another\n").unwrap();
    let mut journal = Journal::open(&scene.path()).unwrap();
    let results = undo_in_boot(&mut journal, &mut Kernel::new().unwrap(), &boot_id);
    assert_eq!(results[0].1, Undone::Rebooted);
    assert!(journal.is_undone());
    assert!(run(&scene.world.open("home"), "ip", &["-br", "link"]).contains("hgbr0"));
}

#[test]
fn what_is_there_already_is_refused_and_not_undone() {
    if !require_root() {
        return;
    }
    let steps: [(Step, &str); 6] = [
        (bridge("own0"), "veth link own0"),
        (veth("hgv0", "own0", None), "veth link own0"),
        (address("own0", "192.0.2.1/24"), "the same"),
        (address("own0", "2001:db8::1/128"), "address 2001:db8::1/64"),
        (
            Step::AddRoute(linux::Route::on_link("198.51.100.0/24".parse().unwrap(), ifname("own0"))),
            "another route",
        ),
        (Step::MoveLink { link: ifname("own0"), to: Place::Host, name: ifname("hgx") }, "while it is up"),
    ];
    for (step, words) in steps {
        let scene = Scene::new();
        let error = scene.apply_steps(&[scene.home(step.clone())]).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        let refused = matches!(
            error,
            ApplyError::Step { why: StepError::Exists { .. } | StepError::Refused { .. }, .. }
        );
        assert!(refused, "{error:?}");
        scene.assert_as_before("after a refusal");
        assert_eq!(scene.outcomes(), []);
        scene.assert_as_before("after undo of a refusal");
    }
}

#[test]
fn an_error_names_command_place_and_cause() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let error = scene.apply_steps(&[scene.home(bridge("own0"))]).unwrap_err().to_string();
    let home = scene.sample.home.as_str();
    let place = format!("in namespace {home}: veth link own0 with index ");
    assert!(
        error.starts_with(&format!(
            "do ip -n {home} link add name own0 address 02:01:00:00:00:01 type bridge\n{place}"
        )),
        "{error}"
    );
    assert!(
        error.ends_with(&format!("remove it with `ip -n {home} link del own0` if it is not needed")),
        "{error}"
    );
}

#[test]
fn a_value_that_the_kernel_changes_is_an_error_and_goes_back() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    // No machine has CPU 8191 today. The kernel drops that CPU from the mask or refuses the mask.
    let step = Step::from(SetQueueCpus {
        link: ifname("own0"),
        queue: plan::Queue::Rx(0),
        cpus: [0, 8191].into_iter().collect(),
    });
    let error = scene.apply_steps(&[scene.home(step)]).unwrap_err();
    assert!(matches!(error, ApplyError::Step { why: StepError::NotTaken { .. } | StepError::Kernel(_), .. }));
    scene.outcomes();
    scene.assert_as_before("after undo");
}

#[test]
fn the_host_is_where_the_process_is() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let home = scene.world.open("home");
    home.run(|| scene.apply_steps(&[(Place::Host, bridge("hgbr0"))])).unwrap().unwrap();
    assert!(run(&home, "ip", &["-br", "link"]).contains("hgbr0"));

    let elsewhere = scene.outcomes();
    assert!(matches!(&elsewhere[0], Undone::Failed { why } if why.contains("another network namespace")));
    let at_home = home.run(|| scene.outcomes()).unwrap();
    assert_eq!(at_home, [Undone::Restored]);
    scene.assert_as_before("after undo at home");
}

#[test]
fn a_neighbours_secondary_address_survives() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    scene.apply_steps(&[scene.home(address("free0", "10.1.1.1/24"))]).unwrap();
    let home = scene.world.open("home");
    let promotes = Key::new("net/ipv4/conf/free0/promote_secondaries").unwrap();
    let promotes = || home.run(|| sysctl::read(&promotes)).unwrap().unwrap();
    let before = promotes();
    run(&home, "ip", &["address", "add", "10.1.1.2/24", "dev", "free0", "label", "free0:vip"]);
    run(&home, "ip", &["address", "add", "10.1.1.3/24", "dev", "free0"]);
    assert_eq!(scene.outcomes(), [Undone::Restored]);
    let addresses = run(&home, "ip", &["address", "show", "free0"]);
    assert!(addresses.contains("10.1.1.2/24 scope global free0:vip"), "{addresses}");
    assert!(addresses.contains("10.1.1.3/24") && !addresses.contains("10.1.1.1"), "{addresses}");
    assert_eq!(promotes(), before);
}

#[test]
fn links_that_followed_an_mtu_go_back_also_when_they_were_not_written_down() {
    if !require_root() {
        return;
    }
    // The MTU of a macvlan link falls with its parent's, but does not rise with it. So does that of links
    // above it.
    let scene = Scene::with(
        "ip -n HOME link add follower link own0 address 02:aa:00:00:02:01 type macvlan
ip -n HOME link add bridge2 address 02:aa:00:00:02:02 type bridge
ip -n HOME link set follower master bridge2",
    );
    let plan = plan_of(&[scene.home(Step::from(SetLinkMtu { link: ifname("own0"), mtu: 1400 }))]);
    for fault in [Fault::None, Fault::AfterStep(0), Fault::DeadAfterLine(2)] {
        let applied = scene.apply(&plan, fault);
        assert_eq!(applied.is_ok(), fault == Fault::None, "{applied:?}");
        scene.undo();
        scene.assert_as_before(&format!("after {fault:?}"));
    }
}

#[test]
fn who_followed_a_parameter_goes_back_also_when_another_put_that_back() {
    if !require_root() {
        return;
    }
    // Equivalent to an undo that is killed between the two writes.
    let forward = |_: &Scene| sysctl_step("net/ipv4/ip_forward", "1");
    let is_restored = |outcome: &Undone| *outcome == Undone::Restored;
    Scene::check(forward, "ip netns exec HOME sysctl -qw net.ipv4.ip_forward=0", is_restored);
}

#[test]
fn a_parameter_that_has_its_value_takes_no_other_along() {
    if !require_root() {
        return;
    }
    // A write of 1 over 1 to `all` would change the links too (`addrconf_forward_change`).
    let scene = Scene::with(
        "ip netns exec HOME sysctl -qw net.ipv6.conf.all.forwarding=1
ip netns exec HOME sysctl -qw net.ipv6.conf.own0.forwarding=0",
    );
    scene.apply_steps(&[scene.home(sysctl_step("net/ipv6/conf/all/forwarding", "1"))]).unwrap();
    scene.assert_as_before("after a step that had nothing to do");
    assert_eq!(scene.outcomes(), [Undone::AlreadySo]);
    scene.assert_as_before("after undo");
}

/// The link is gone, and another program has moved one in from a namespace where it had the same index.
#[test]
fn a_link_that_came_with_the_index_of_ours_is_not_ours() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let up = Step::from(SetLinkUp { link: ifname("hgv0") });
    scene.apply_steps(&[scene.home(veth("hgv0", "hgv1", None)), scene.home(up)]).unwrap();
    scene.world.add("third");
    let (home, third) = (&scene.sample.home, scene.world.name("third"));
    let netlink = Netlink::open_in(&scene.world.open("home")).unwrap();
    let index = netlink.index_of(&ifname("hgv0")).unwrap();
    shell(&format!(
        "ip -n {home} link del hgv0
         ip -n {third} link add theirs index {index} type veth peer name their1
         ip -n {third} link set theirs netns {home}
         ip -n {home} link set theirs up"
    ));
    assert_eq!(netlink.index_of(&ifname("theirs")).unwrap(), index);
    assert_eq!(scene.outcomes(), [Undone::Gone, Undone::Gone]);
    let theirs = netlink.link(&ifname("theirs")).unwrap();
    assert!(theirs.is_some_and(|link| link.up));
}

/// Its process died before it made the link, and somebody makes one of that name himself.
#[test]
fn a_link_of_the_name_is_not_ours_where_none_was_made() {
    if !require_root() {
        return;
    }
    for step in [ensured_bridge("hgbe0"), bridge("hgbe0")] {
        let scene = Scene::new();
        let plan = plan_of(&[scene.home(step)]);
        scene.apply(&plan, Fault::BeforeStep(0)).unwrap_err();
        shell(&format!("ip -n {} link add hgbe0 type bridge", scene.sample.home));
        let found = scene.outcomes();
        assert!(is_changed("bridge link hgbe0")(&found[0]), "{found:?}");
    }
}
