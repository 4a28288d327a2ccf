//! One guest in each test: its kernel, its results, its panic, its limits.

#![expect(
    clippy::unwrap_used,
    reason = "every line of this file is test code, also outside #[test] functions"
)]

use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use vm::deb::Suite;
use vm::{Cache, Error, Flavour, KernelSpec, Limits, Nic, Timing, Vm, Watch};

/// Two cores are too few for two emulated machines at once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub(crate) fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

/// Runs `test` with the newest kernel, or records why no machine can start.
pub(crate) fn with_vm(test: impl FnOnce(&Vm)) {
    with_kernel(Suite::Backports, test);
}

fn with_kernel(suite: Suite, test: impl FnOnce(&Vm)) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match Cache::open().and_then(|cache| Vm::fetch(&cache, suite, Flavour::Cloud)) {
        Ok(vm) => test(&vm),
        Err(error) => testkit::skip(&format!("no virtual machine: {error}")),
    }
}

/// A boot takes 10 s, and minutes on a busy machine.
pub(crate) fn limits() -> Limits {
    Limits { time: Duration::from_secs(600), ..Limits::default() }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The folders of runs that this process has made and not removed.
fn left_behind() -> Vec<String> {
    let mine = format!("hgvm-{}-", std::process::id());
    let entries = std::fs::read_dir(std::env::temp_dir()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&mine)).collect()
}

#[test]
fn results_come_back_from_the_newest_kernel() {
    with_kernel(Suite::Backports, results_come_back);
}

#[test]
fn results_come_back_from_the_release_s_own_kernel() {
    with_kernel(Suite::Stable, |vm| {
        assert!(vm.kernel().release.starts_with("6.1."), "Debian 12 has {}", vm.kernel().release);
        results_come_back(vm);
    });
}

fn results_come_back(vm: &Vm) {
    let script = "uname -r; echo $GREETING >&2; mkdir /out/sub; printf a >/out/sub/file; \
                  touch /etc/hostgap-was-here && test -e /etc/hostgap-was-here && exit 7";
    let mut command = shell(script);
    command.env("GREETING", "hello 'there'");
    let mut watched: Vec<u8> = Vec::new();
    let output = vm.run_watched(&command, &limits(), &mut |bytes: &[u8]| watched.extend(bytes)).unwrap();
    assert_eq!(text(&output.stdout).trim(), vm.kernel().release);
    assert_eq!(watched, output.stdout);
    assert_eq!(text(&output.stderr), "hello 'there'\n");
    assert_eq!(output.status, 7);
    assert_eq!(output.files.get("sub/file").map(Vec::as_slice), Some(b"a".as_slice()));
    assert!(!std::path::Path::new("/etc/hostgap-was-here").exists(), "the guest wrote into the host");
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn links_that_need_modules_can_be_made() {
    for suite in [Suite::Backports, Suite::Stable] {
        with_kernel(suite, links_are_made);
    }
}

fn links_are_made(vm: &Vm) {
    let script = "ip link add d0 type dummy && ip link set d0 up \
                  && ip link add iv0 link d0 type ipvlan mode l3s && ip netns add n && ip link set iv0 netns n \
                  && ip -n n -d link show iv0 && tc qdisc add dev d0 root netem delay 1ms && tc qdisc show dev d0 \
                  && echo add table ip t | nft -f - && nft list tables";
    let output = vm.run(&shell(script), &limits()).unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(output.status, 0, "{stdout}{}", text(&output.stderr));
    for expected in ["ipvlan  mode l3s", "qdisc netem", "table ip t"] {
        assert!(stdout.contains(expected), "no {expected:?} in {stdout}");
    }
}

/// The cards with their queues and interrupts. The cards reach only each other.
#[test]
fn network_cards_reach_each_other_alone() {
    if !testkit::require_root() {
        return;
    }
    with_vm(|vm| {
        let script = "modprobe virtio_net && modprobe vmxnet3 && ip netns add far && ip link set eth1 netns far && \
                      ip -n far link set eth1 up && ip -n far address add 192.0.2.2/24 dev eth1 && \
                      ip link set eth0 up && ip address add 192.0.2.1/24 dev eth0 && \
                      for try in $(seq 100); do echo x >/dev/udp/192.0.2.2/9; \
                      ip neighbour | grep -q lladdr && break; sleep 0.3; done; \
                      ls /sys/class/net/eth0/queues; cat /proc/interrupts; ip route; ls /sys/class/net; ip neighbour";
        let mut command = Command::new("/bin/bash");
        command.args(["-c", script]);
        let (nics, timing) = (vec![Nic::Virtio { queues: 4 }, Nic::Vmxnet3], Timing::RealTime { cpus: 4 });
        let output = vm.run(&command, &Limits { nics, timing, ..limits() }).unwrap();
        let stdout = text(&output.stdout);
        for expected in ["rx-3", "tx-3", "input.3", "output.3", "192.0.2.2 dev eth0 lladdr 52:54:00:12:34:57"]
        {
            assert!(stdout.contains(expected), "no {expected:?} in {stdout}{}", text(&output.stderr));
        }
        assert!(!stdout.contains("via") && !stdout.lines().any(|line| line == "eth1"), "{stdout}");
    });
    assert!(!std::path::Path::new("/sys/class/net/card0").exists(), "the tap is in this namespace");
}

/// An image and its modules, named as a user would. The guest must run with and without KVM.
#[test]
fn a_kernel_of_one_s_own_boots() {
    with_vm(|vm| {
        let kernel = vm.kernel();
        let modules = kernel.modules.join("lib/modules").join(&kernel.release);
        let wanted = KernelSpec::parse(kernel.image.to_str().unwrap(), Some(&modules)).unwrap();
        let cache = Cache::open().unwrap();
        let own = wanted.fetch(&cache, Flavour::Cloud).unwrap().tried_with_kvm(&cache);
        assert_eq!(own.kernel().release, kernel.release);
        let output = own.run(&shell("uname -r; modprobe dummy && echo loaded"), &limits()).unwrap();
        assert_eq!(text(&output.stdout), format!("{}\nloaded\n", kernel.release));
        let other =
            KernelSpec::parse(kernel.image.to_str().unwrap(), Some(std::path::Path::new("/etc"))).unwrap();
        let message = other.fetch(&Cache::open().unwrap(), Flavour::Cloud).unwrap_err().to_string();
        assert!(message.contains(&kernel.release) && message.contains("/etc"), "{message}");
    });
}

/// A watch receives both streams and can end the guest.
#[test]
fn a_watch_ends_the_guest() {
    struct UntilBoth([bool; 2]);
    impl Watch for UntilBoth {
        fn stdout(&mut self, bytes: &[u8]) {
            self.0[0] |= bytes.starts_with(b"out");
        }
        fn stderr(&mut self, bytes: &[u8]) {
            self.0[1] |= bytes.starts_with(b"err");
        }
        fn stops(&mut self) -> bool {
            self.0 == [true; 2]
        }
    }
    with_vm(|vm| {
        let command = shell("echo out; echo err >&2; sleep 600");
        let error = vm.run_watched(&command, &limits(), &mut UntilBoth([false; 2])).unwrap_err();
        let Error::Stopped { stdout } = error else { panic!("{error}") };
        assert_eq!(text(&stdout), "out\n");
        assert_eq!(left_behind(), Vec::<String>::new());

        // A boot is silent too, for up to half of that on a busy machine.
        let quiet = Limits { silence: Duration::from_secs(25), ..limits() };
        let error = vm.run(&shell("echo once; sleep 600"), &quiet).unwrap_err();
        assert!(matches!(error, Error::Silent { .. }), "{error}");
    });
}

/// The guest runs a loop of fixed length, and sleeps longer than it may live.
#[test]
fn counted_time_is_the_same_twice_and_sleep_is_skipped() {
    with_vm(|vm| {
        let limits = Limits { timing: Timing::Counted, time: Duration::from_secs(390), ..Limits::default() };
        let script = "now() { echo $((${EPOCHREALTIME/./})); }; a=$(now); for ((i = 0; i < 50000; i++)); do :; done; \
                      b=$(now); sleep 400; c=$(now); echo $((b - a)) $((c - b)) $(nproc)";
        let run = || -> Vec<u64> {
            let mut bash = Command::new("/bin/bash");
            let output = vm.run(bash.args(["-c", script]), &limits).unwrap();
            text(&output.stdout).split_whitespace().map(|word| word.parse().unwrap()).collect()
        };
        let (first, second) = (run(), run());
        let (loop_us, sleep_us) = (first[0], first[1]);
        assert!(loop_us.abs_diff(second[0]) * 100 <= loop_us, "{loop_us} and {} µs", second[0]);
        assert!(loop_us > 10_000, "fifty thousand turns took {loop_us} µs, less than 200 instructions each");
        assert!((400_000_000..401_000_000).contains(&sleep_us), "400 s took {sleep_us} µs");
        assert_eq!(first[2], 1);
    });
}

#[test]
fn panic_is_reported_with_the_console() {
    with_vm(|vm| {
        let command = shell("echo before; sleep 1; echo c >/proc/sysrq-trigger; sleep 600");
        let error = vm.run(&command, &limits()).unwrap_err();
        let Error::Died { console, stdout } = error else { panic!("{error}") };
        assert!(console.contains("Kernel panic"), "{console}");
        assert_eq!(text(&stdout), "before\n");
        assert_eq!(left_behind(), Vec::<String>::new());
    });
}

#[test]
fn limits_end_the_guest() {
    with_vm(|vm| {
        let limits = Limits { time: Duration::from_secs(120), output_bytes: 1 << 16, ..Limits::default() };
        let start = Instant::now();
        let error = vm.run(&shell("yes"), &limits).unwrap_err();
        assert!(matches!(error, Error::TooMuchOutput { .. }), "{error}");
        assert!(start.elapsed() < limits.time);

        let limits = Limits { time: Duration::from_secs(2), ..Limits::default() };
        let error = vm.run(&shell("sleep 600"), &limits).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert_eq!(left_behind(), Vec::<String>::new());
    });
}
