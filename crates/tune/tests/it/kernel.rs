//! Every knob on the real kernel: it is where the table says, it changes nothing else, and undo restores the
//! old value, wherever apply stopped.

use crate::back::there_and_back;
use linux::ethtool::NicParameter;
use linux::sysfs::LinkAttribute;
use linux::{Netns, NetnsName, sysctl};
use plan::{Fault, Journal, Kernel, Place, Plan, apply, undo};
use record::RequestedValue;
use testkit::{World, bound, dump, require_root, shell};
use tune::{KnobGroup, Lives, Nic, Setting, Since, Site, TABLE, all};

/// A namespace with a link to another one, and routes of both families over that link.
pub(crate) struct Scene {
    world: World,
    pub(crate) site: Site,
    directory: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let world = World::new();
        let (home, away) = (world.name("home"), world.name("away"));
        shell(&format!(
            "ip netns add {home}
ip netns add {away}
ip -n {home} link set lo up
ip -n {home} link add wire0 type veth peer name wire0 netns {away}
ip -n {away} link set wire0 up
ip -n {home} link set wire0 up
ip -n {home} address add 192.0.2.1/24 dev wire0
ip -n {home} address add 2001:db8::1/64 dev wire0 nodad
ip -n {home} route add 198.51.100.0/24 via 192.0.2.2 mtu lock 1400
ip -n {home} -6 route add 2001:db8:9::/48 via 2001:db8::2"
        ));
        let wire = linux::IfName::new("wire0").unwrap();
        let routes = ["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/64", "2001:db8:9::/48"];
        let site = Site {
            process: Place::Netns(home.clone()),
            routes: routes.map(|dst| (dst.parse().unwrap(), wire.clone())).to_vec(),
            node: Place::Netns(home),
            wire,
            cpus: linux::cpu::online().unwrap(),
            nic: Nic::default(),
        };
        Scene { world, site, directory: tempfile::tempdir().unwrap() }
    }

    fn home(&self) -> NetnsName {
        self.world.name("home")
    }

    pub(crate) fn inside<T>(&self, job: impl FnOnce() -> T) -> T {
        self.world.open("home").run(job).unwrap()
    }
}

fn example(knob: &'static tune::Knob) -> Setting {
    Setting::read(knob, &RequestedValue::Text(knob.example.to_owned())).unwrap()
}

pub(crate) fn key(text: &str) -> sysctl::Key {
    sysctl::Key::new(text).unwrap()
}

/// The settings of a family that each namespace has for itself on this kernel.
fn of_this_kernel(family: &KnobGroup) -> Vec<Setting> {
    let here = Since::of_release(&linux::features::release()).unwrap();
    let mut settings = Vec::new();
    for knob in family.knobs.iter().filter(|knob| knob.since.is_none_or(|since| since <= here)) {
        match knob.lives {
            Lives::Machine(_) | Lives::Debug(_) | Lives::Module(_) => {}
            Lives::CpuLatency | Lives::Nowhere { .. } => {}
            // Of a card's features a veth has only the offloads, and it is polled only with a program at its
            // peer.
            Lives::Nic(parameters) if !matches!(parameters[0], NicParameter::Feature(_)) => {}
            Lives::Indirection | Lives::Rss(_) | Lives::Interrupts => {}
            Lives::Nic(_) if knob.id == "rx_gro_hw" => {}
            Lives::Attribute(LinkAttribute::Threaded | LinkAttribute::VirtualFunctions) => {}
            Lives::Sysctl(_)
            | Lives::Route(_)
            | Lives::Queue(_)
            | Lives::RootQdisc
            | Lives::Mtu
            | Lives::Notrack
            | Lives::Nic(_)
            | Lives::Attribute(_) => settings.push(example(knob)),
        }
    }
    settings
}

#[test]
fn a_parameter_of_a_namespace_is_its_own() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let mut tried = 0;
    for setting in TABLE.iter().flat_map(of_this_kernel) {
        let Lives::Sysctl(path) = setting.knob.lives else { continue };
        let id = setting.knob.id;
        let (inside, outside) = (scene.world.open("home"), || sysctl::read(&key(path)).unwrap());
        let read = || inside.run(|| sysctl::read(&key(path))).unwrap().unwrap().unwrap();
        let (before, host) = (read(), outside());
        there_and_back(&setting.plan(&scene.site), Fault::None, || {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&read()), words(setting.knob.example), "{id}");
            assert_ne!(read(), before, "{id}: the example equals the old value");
            assert_eq!(outside(), host, "{id}: the value of this machine changed");
        });
        assert_eq!(read(), before, "{id}");
        tried += 1;
    }
    assert!(tried >= 40, "only {tried} parameters were tried");
}

#[test]
fn undo_brings_back_what_was_wherever_apply_stopped() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let before = dump(&scene.world.open("home"));
    for family in TABLE {
        let mut plan = Plan::new();
        of_this_kernel(family).iter().for_each(|setting| plan.extend(setting.plan(&scene.site)));
        let changed = || {
            let now = dump(&scene.world.open("home"));
            assert!(plan.is_empty() || !before.diff(&now).is_empty(), "{}: nothing changed", family.title);
        };
        there_and_back(&plan, Fault::None, changed);
        for step in 0..plan.steps.len() {
            there_and_back(&plan, Fault::AfterStep(step), || {});
        }
        before.assert_same(&dump(&scene.world.open("home")), &format!("after undo of {}", family.title));
    }
}

/// In our virtual machine the parameters are also set.
#[test]
fn a_parameter_of_the_machine_is_in_no_new_namespace() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let mut tried = 0;
    for knob in all() {
        let Lives::Machine(path) = knob.lives else { continue };
        let read = || sysctl::read(&key(path)).unwrap();
        let Some(before) = read() else {
            assert!(path.starts_with("net/netfilter"), "{} does not exist on this machine", knob.id);
            continue;
        };
        if path.starts_with("net/") {
            let of_namespace = || match sysctl::read(&key(path)) {
                Ok(None) => Ok(()),
                // Some are readable here but cannot be set.
                Ok(Some(value)) => sysctl::write(&key(path), &value),
                Err(error) => Err(error),
            };
            let set = scene.world.open("home").run(of_namespace).unwrap();
            let kept = set.as_ref().is_ok_and(|()| scene_lacks(&scene, path))
                || set.is_err_and(|error| error.source.kind() == std::io::ErrorKind::PermissionDenied);
            assert!(kept, "{}", knob.id);
        }
        if std::env::var_os("HOSTGAP_VM").is_some() {
            let setting = example(knob);
            there_and_back(&setting.plan(&scene.site), Fault::None, || {
                let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                let found = read().unwrap();
                // The only mask of CPUs.
                let expected = if knob.kind == tune::ValueKind::Cpus { "1" } else { knob.example };
                assert_eq!(words(found.trim_start_matches('0')), words(expected), "{}", knob.id);
            });
            assert_eq!(read(), Some(before), "{}", knob.id);
        }
        tried += 1;
    }
    assert!(tried >= 10, "only {tried} parameters were looked at");
}

fn scene_lacks(scene: &Scene, path: &str) -> bool {
    scene.world.open("home").run(|| sysctl::read(&key(path))).unwrap().unwrap().is_none()
}

/// A namespace may set an algorithm by route even if it may not set the parameter.
#[test]
fn an_algorithm_that_is_kept_from_namespaces_goes_by_route() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let available = sysctl::read(&key("net/ipv4/tcp_available_congestion_control")).unwrap().unwrap();
    let allowed = sysctl::read(&key("net/ipv4/tcp_allowed_congestion_control")).unwrap().unwrap();
    let is_allowed = |name: &&str| allowed.split_whitespace().any(|other| other == *name);
    let Some(kept) = available.split_whitespace().find(|name| !is_allowed(name)) else {
        return testkit::skip("this machine allows every available algorithm in namespaces");
    };
    let value = RequestedValue::Text(kept.to_owned());
    let setting = Setting::read(tune::find("tcp_congestion_control").unwrap(), &value).unwrap();
    let path = scene.directory.path().join("refused");
    let mut journal = Journal::create(&path).unwrap();
    let refused = apply(&setting.plan(&scene.site), &mut journal, &mut Kernel::new().unwrap());
    assert!(refused.unwrap_err().to_string().contains("not permitted"), "{kept}");
    undo(&mut journal, &mut Kernel::new().unwrap());
    let plan = setting.by_route().unwrap().plan(&scene.site);
    there_and_back(&plan, Fault::None, || {
        let routes = shell(&format!("ip -n {} route", scene.home()));
        assert_eq!(routes.matches(&format!("congctl {kept}")).count(), 2, "{routes}");
    });
    assert!(!shell(&format!("ip -n {} route", scene.home())).contains("congctl"));
}

/// Where the kernel tracks connections, it must not track those of the port.
#[test]
fn connections_to_an_untracked_port_are_not_tracked() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    shell(&format!(
        "ip netns exec {0} nft add table ip own
ip netns exec {0} nft 'add chain ip own in {{ type filter hook input priority 0; }}'
ip netns exec {0} nft add rule ip own in ct state established accept",
        scene.home()
    ));
    let tracked = |port: u16| {
        let connect = || {
            let listener = bound(|| std::net::TcpListener::bind(("127.0.0.1", port))).unwrap();
            let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            let count = sysctl::read(&key("net/netfilter/nf_conntrack_count")).unwrap().unwrap();
            drop((client, listener));
            count.parse::<u32>().unwrap()
        };
        scene.world.open("home").run(connect).unwrap()
    };
    let setting = example(tune::find("notrack").unwrap());
    there_and_back(&setting.plan(&scene.site), Fault::None, || {
        assert_eq!(tracked(8080), 0, "the port of the setting");
        assert_eq!(tracked(8081), 1, "another port");
    });
    assert_eq!(tracked(8080), 2, "after undo it is tracked, beside the other");
}

/// The written form of a queueing discipline matches the kernel's state.
#[test]
fn a_qdisc_has_the_options_that_were_asked_for() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let shown = || shell(&format!("tc -n {} qdisc show dev wire0", scene.home()));
    let before = shown();
    let check = |value: &str, expected: &str| {
        let knob = tune::find("qdisc").unwrap();
        let setting = Setting::read(knob, &RequestedValue::Text(value.to_owned())).unwrap();
        there_and_back(&setting.plan(&scene.site), Fault::None, || {
            assert!(shown().contains(expected), "{value}: {}", shown());
        });
        assert_eq!(shown(), before, "{value}");
    };
    check("pfifo limit 50", "limit 50p");
    let lacks = |kind: &str| {
        let (home, lo) = (scene.home(), "dev lo root");
        let tried = format!("tc -n {home} qdisc add {lo} {kind} 2>&1 && tc -n {home} qdisc del {lo} || true");
        !shell(&tried).is_empty()
    };
    if lacks("fq") || lacks("fq_codel") {
        return testkit::skip("this kernel has no fq, or no fq_codel");
    }
    check("fq_codel target 4ms interval 80ms noecn", "target 4ms interval 80ms");
    check("fq flow_limit 200 nopacing", "flow_limit 200p");
}

/// A real machine's setting is left alone. In our virtual machine it is set and restored.
#[test]
fn a_number_of_debugfs_is_set_and_taken_back() {
    if !require_root() {
        return;
    }
    if std::env::var_os("HOSTGAP_VM").is_none() {
        return testkit::skip("the whole machine shares it; it needs a virtual machine of ours");
    }
    shell("mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug");
    let scene = Scene::new();
    let read = || std::fs::read_to_string("/sys/kernel/debug/sched/migration_cost_ns").unwrap();
    let before = read();
    let setting = example(tune::find("sched_migration_cost_ns").unwrap());
    for fault in [Fault::None, Fault::AfterStep(0)] {
        there_and_back(&setting.plan(&scene.site), fault, || assert_eq!(read(), "5000000\n"));
        assert_eq!(read(), before);
    }
}

/// Parameters of a module are set and restored; a value that another program sets meanwhile stays.
#[test]
fn a_parameter_of_a_module_is_set_and_taken_back() {
    if !require_root() {
        return;
    }
    if std::env::var_os("HOSTGAP_VM").is_none() {
        return testkit::skip("the whole machine shares it; it needs a virtual machine of ours");
    }
    let scene = Scene::new();
    let netns = Netns::current().unwrap();
    for (knob, value, other) in [("hystart", "0", None), ("hystart_detect", "2", Some("1"))] {
        let file = format!("/sys/module/tcp_cubic/parameters/{knob}");
        let read = || std::fs::read_to_string(&file).unwrap().trim().to_owned();
        let before = dump(&netns);
        let plan = Setting::named(knob, &RequestedValue::Text(value.to_owned())).unwrap().plan(&scene.site);
        for fault in [Fault::None, Fault::AfterStep(0)] {
            there_and_back(&plan, fault, || {
                assert_eq!(read(), value);
                assert_eq!(before.diff(&dump(&netns)).len(), 2, "one line was another, and one is new");
            });
            before.assert_same(&dump(&netns), &format!("after {knob} and {fault:?}"));
        }
        let Some(other) = other else { continue };
        let old = read();
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(&directory.path().join("journal")).unwrap();
        let mut kernel = Kernel::new().unwrap();
        apply(&plan, &mut journal, &mut kernel).unwrap();
        std::fs::write(&file, other).unwrap();
        let results = undo(&mut journal, &mut kernel);
        assert_eq!(read(), other, "{results:?}");
        std::fs::write(&file, old).unwrap();
    }
}
