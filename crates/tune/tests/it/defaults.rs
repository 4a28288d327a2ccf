//! Checks the table's statements about kernels against the running one: unset values are the default,
//! promised parameters exist, and obsolete ones have no effect.

use std::net::{TcpListener, TcpStream};

use linux::{Netns, sock_diag, sysctl};
use plan::{Kernel, StepError, preview};
use record::RequestedValue;
use testkit::{World, require_root, skip};
use tune::{ByDefault, Knob, Lives, Setting, Since, Site, all, find};

use crate::kernel::{Scene, key};

/// A new namespace inherits these from the first one, where another program may have changed them.
const INHERITED: [&str; 3] = ["tcp_rmem", "tcp_wmem", "tcp_congestion_control"];
const MIB: u64 = 1 << 20;

/// Parameters that late releases of an older version also have, as their rows state.
const BACKPORTED: [(&str, Since); 1] = [("tcp_shrink_window", Since(6, 1))];

fn here() -> Since {
    Since::of_release(&linux::features::release()).unwrap()
}

/// Whether no other program can have changed the shared settings of this machine.
fn is_ours() -> bool {
    std::env::var_os("HOSTGAP_VM").is_some() || std::env::var_os("CI").is_some()
}

/// Whether another program on this machine may have changed the setting.
fn is_shared(knob: &Knob) -> bool {
    matches!(knob.lives, Lives::Machine(_) | Lives::Debug(_) | Lives::Module(_))
        || INHERITED.contains(&knob.id)
}

/// Checks that setting the default changes no value. Returns for how many rows it did.
fn compare(scene: &Scene, with_shared: bool) -> usize {
    let mut seen = 0;
    for knob in all().filter(|knob| with_shared || !is_shared(knob)) {
        let Some(value) = knob.default.on(here()) else { continue };
        if matches!(knob.default, ByDefault::Capped(..)) {
            capped(knob, value, &numbers(scene, knob.id).unwrap());
            seen += 1;
            continue;
        }
        match as_set(knob, value, &scene.site) {
            Ok(old) => assert_eq!(old, "", "{}: Linux {} should have {value}", knob.id, here()),
            Err(StepError::Kernel(_)) if may_be_absent(knob) => continue,
            Err(error) => panic!("{}: {error}", knob.id),
        }
        seen += 1;
    }
    seen
}

/// debugfs and cubic may be missing on a machine, and no driver polls this link.
fn may_be_absent(knob: &Knob) -> bool {
    let no_vm = std::env::var_os("HOSTGAP_VM").is_none();
    (no_vm && matches!(knob.lives, Lives::Debug(_) | Lives::Module(_)))
        || matches!(knob.lives, Lives::Attribute(linux::sysfs::LinkAttribute::Threaded))
}

/// The value found instead of the expected one. Empty if they are equal.
fn as_set(knob: &'static Knob, value: &str, site: &Site) -> Result<String, StepError> {
    let setting = Setting::read(knob, &RequestedValue::Text(value.to_owned())).unwrap();
    let mut kernel = Kernel::new().unwrap();
    for placed in setting.plan(site).steps {
        let found = preview(&placed, &mut kernel)?.unwrap();
        if !found.is_so {
            return Ok(found.old);
        }
    }
    Ok(String::new())
}

/// The numbers of a parameter, in the test's namespace or the machine's first, wherever it lives.
fn numbers(scene: &Scene, id: &str) -> Option<Vec<u64>> {
    let text = match find(id).unwrap().lives {
        Lives::Sysctl(path) => scene.inside(|| sysctl::read(&key(path))),
        Lives::Machine(path) => sysctl::read(&key(path)),
        other => panic!("{id} lives at {other}"),
    };
    Some(text.unwrap()?.split_whitespace().map(|word| word.parse().unwrap()).collect())
}

fn memory() -> u64 {
    linux::procfs::Procfs::kernel().memory_bytes().unwrap()["MemTotal"]
}

/// Three sizes, the last of which is lower with little memory: `tcp_init` in net/ipv4/tcp.c takes a 128th of
/// the free memory.
fn capped(knob: &Knob, value: &str, found: &[u64]) {
    let expected: Vec<u64> = value.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(found[..2], expected[..2], "{}", knob.id);
    // The free memory at that time is most of the memory, and never more than all of it.
    let (least, most) = (memory() / 256, memory() / 128 * 10 / 9);
    let range = expected[2].min(least)..=expected[2].min(most);
    assert!(range.contains(&found[2]), "{}: Linux {}: {found:?}, not {value}", knob.id, here());
}

/// Compares the formulas of rows that have one with the kernel's results.
fn formulas(scene: &Scene, with_shared: bool) -> usize {
    let mut seen = 0;
    for knob in all().filter(|knob| with_shared || !is_shared(knob)) {
        let ByDefault::Memory(words) = knob.default else { continue };
        let Some(found) = numbers(scene, knob.id) else {
            assert!(knob.id.starts_with("nf_conntrack"), "{} is nowhere", knob.id);
            continue;
        };
        let (memory, first) = (memory(), found[0]);
        // The kernel computes with all its memory, and reports it without its own reserve, which is at most a
        // tenth.
        let rounded = |each: u64, least: u64, most: u64| {
            let of = |memory: u64| (memory / each).next_power_of_two().clamp(least, most);
            (of(memory)..=of(memory * 10 / 9)).contains(&first)
        };
        let close = |value: u64, to: u64| (to * 7 / 10..=to * 11 / 10).contains(&value);
        let by_step = |count: u64| match count {
            4097.. => 262_144,
            1025.. => 65_536,
            _ => memory / (128 << 10),
        };
        let holds = match knob.id {
            "tcp_max_syn_backlog" => rounded(16 * MIB, 128, 4096),
            "tcp_max_tw_buckets" => rounded(MIB / 4, 1, 262_144),
            "tcp_mem" => {
                let each = memory / 4096 / 64;
                close(first, 3 * each) && close(found[1], 4 * each) && found[2] == 2 * first
            }
            "file_max" => first == i64::MAX as u64 || close(first, memory / 10_240),
            "nf_conntrack_buckets" => close(first, by_step(memory / MIB)),
            "nf_conntrack_max" => Some(found) == numbers(scene, "nf_conntrack_buckets"),
            other => panic!("{other} says {words:?}: add its formula here"),
        };
        assert!(holds, "{}: {words}: {:?} with {memory} bytes of memory", knob.id, numbers(scene, knob.id));
        seen += 1;
    }
    seen
}

/// Shared settings are checked only where no other program can have changed them.
#[test]
fn an_unset_value_is_the_default() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let seen = compare(&scene, is_ours()) + formulas(&scene, is_ours());
    assert!(seen >= if is_ours() { 60 } else { 45 }, "only {seen} rows were looked at");
}

/// The same tests on a kernel in a virtual machine, together with those of versions and obsolete parameters.
#[test]
fn a_kernel_of_ours_is_as_the_table_says() {
    if std::env::var_os("HOSTGAP_VM").is_none() {
        return skip("it is about the kernel of a virtual machine of ours");
    }
    testkit::shell("mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug");
    an_unset_value_is_the_default();
    parameters_come_with_the_kernel_that_the_table_says();
    obsolete_parameters_have_no_effect();
}

/// A version that is too early or too late shows on any kernel between the two.
#[test]
fn parameters_come_with_the_kernel_that_the_table_says() {
    if !require_root() {
        return;
    }
    let world = World::new();
    testkit::shell(&format!("ip netns add {}", world.name("home")));
    let netns = world.open("home");
    let mut young = 0;
    for knob in all() {
        let Lives::Sysctl(path) = knob.lives else { continue };
        let is_there = netns.run(|| sysctl::read(&key(path))).unwrap().unwrap().is_some();
        let is_due =
            knob.since.is_none_or(|since| since <= here()) || BACKPORTED.contains(&(knob.id, here()));
        assert_eq!(is_there, is_due, "{} on Linux {}", knob.id, here());
        young += usize::from(knob.since.is_some());
    }
    assert!(young >= 5, "no row names a version");
}

/// An obsolete parameter has an effect before the version that its row names, and none from that version on.
#[test]
fn obsolete_parameters_have_no_effect() {
    if !require_root() {
        return;
    }
    for knob in all() {
        let Some(until) = knob.until else { continue };
        let felt = match knob.id {
            "tcp_adv_win_scale" => first_window(Some("-2")) != first_window(None),
            other => panic!("add how to see the effect of {other}"),
        };
        assert_eq!(felt, here() < until, "{} on Linux {}", knob.id, here());
    }
}

/// The first window of a connection over the loopback of a new namespace, with a value of
/// `tcp_adv_win_scale`.
fn first_window(scale: Option<&str>) -> u32 {
    let connect = || {
        testkit::shell("ip link set lo up");
        if let Some(scale) = scale {
            let knob = find("tcp_adv_win_scale").unwrap();
            let value = Setting::read(knob, &RequestedValue::Text(scale.to_owned())).unwrap().value;
            sysctl::write(&key("net/ipv4/tcp_adv_win_scale"), &value.to_string()).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = client.local_addr().unwrap();
        let sockets = sock_diag::tcp_sockets(1 << 1).unwrap();
        sockets.iter().find(|socket| socket.local == own).unwrap().tcp.unwrap().snd_wnd
    };
    let window = Netns::anonymous().unwrap().run(connect).unwrap();
    assert!(window > 0, "the kernel reports no window");
    window
}
