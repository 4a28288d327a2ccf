//! Races between two machines that are guests of QEMU: each with a kernel of its own, and with cards.

mod races;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::{IfName, Netns, NetnsName};
use testkit::{World, dump};
use vm::{Bridges, Cache, Flavour, Join, Limits, Nic, Timing, UNGUARDED, Vm, Watch, deb};

use super::{ip, sshd_program, write_config};
use crate::kernel::is_debian;
use crate::sandbox::{HOSTGAP, Sandbox, sandbox, stdout, text, until_within};

/// The cards of each guest, and what they are joined to.
const CARDS: [(Nic, &str); 2] = [(Nic::Virtio { queues: 4 }, "sw0"), (Nic::Igb, "sw1")];
/// For all that a test does with a guest, on the slowest machine.
const TIME_MAX: Duration = Duration::from_secs(2700);
/// A boot takes 10 s; where others have the CPUs it was seen to take minutes.
const BOOT_MAX: Duration = Duration::from_secs(300);

/// What runs in a guest: its cards get their addresses, and sshd waits for callers. Modules that data paths need are
/// there, so that their parameters are not new after a race. The shell is one that reads no files of this machine's.
const SCRIPT: &str = r#"
set -e
modprobe --all virtio_net igb veth nf_conntrack nf_tables
printf 'root:x:0:0::/root:/bin/sh\nsshd:x:65534:65534::/run/sshd:/usr/sbin/nologin\n' >/etc/passwd
mkdir -p /run/sshd /run/netns
number=0
for subnet in 10.9.0 10.9.1; do
    ip address add "$subnet.$2/24" dev "eth$number"
    ip link set "eth$number" up
    number=$((number + 1))
done
exec "$3" -D -e -f "$1/sshd_config"
"#;

/// A machine that is there as long as this is.
struct Guest {
    off: Arc<AtomicBool>,
    /// What it said on stderr.
    words: Arc<Mutex<String>>,
    running: Option<JoinHandle<vm::Result<vm::Output>>>,
}

/// What a guest says, and whether it loses its power.
struct Ear {
    off: Arc<AtomicBool>,
    words: Arc<Mutex<String>>,
}

impl Watch for Ear {
    fn stdout(&mut self, _: &[u8]) {}

    fn stderr(&mut self, bytes: &[u8]) {
        self.words.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
    }

    fn stops(&mut self) -> bool {
        self.off.load(Ordering::Relaxed)
    }
}

impl Guest {
    /// Switches a machine on, the `number`th from 1 on.
    fn start(vm: &Vm, number: usize, netns: NetnsName, dir: &Path) -> Guest {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "guest"]).arg(dir).arg(number.to_string());
        command.arg(sshd_program().unwrap()).env("HOME", "/root");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let of_cards = CARDS.map(|(_, bridge)| IfName::new(bridge).unwrap()).to_vec();
        let bridges = Bridges { netns, of_cards, first: (number - 1) * CARDS.len() };
        let limits = Limits {
            time: TIME_MAX,
            memory_mib: 1024,
            timing: Timing::RealTime { cpus: 2 },
            nics: CARDS.map(|(nic, _)| nic).to_vec(),
            join: Join::Bridges(bridges),
            ..Limits::default()
        };
        let (off, words) = (Arc::<AtomicBool>::default(), Arc::<Mutex<String>>::default());
        let mut ear = Ear { off: Arc::clone(&off), words: Arc::clone(&words) };
        let vm = vm.clone();
        let running = std::thread::spawn(move || vm.run_watched(&command, &limits, &mut ear));
        Guest { off, words, running: Some(running) }
    }

    fn until_it_listens(&self) {
        until_within(BOOT_MAX, "a guest listens", || {
            let has_ended = self.running.as_ref().unwrap().is_finished();
            assert!(!has_ended, "it has ended, and had said at last:\n{}", self.last_words());
            self.words.lock().unwrap().contains("Server listening on 0.0.0.0")
        });
    }

    fn last_words(&self) -> String {
        let words = self.words.lock().unwrap();
        let lines: Vec<&str> = words.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.off.store(true, Ordering::Relaxed);
        let _ = self.running.take().map(JoinHandle::join);
    }
}

/// Two machines, and this one at the same bridges: `a` and `b` are reached over their first cards, `a1` and `b1` are
/// the same by their second ones.
struct Guests {
    /// Before the bridges to which their cards are joined, so that they end first.
    guests: BTreeMap<&'static str, Guest>,
    world: World,
    sandbox: Sandbox,
    vm: Vm,
    /// The program under test without what only debuggers need: less than half of it is copied to the guests.
    program: PathBuf,
}

/// What of a machine may not change, line by line.
type State = BTreeSet<String>;

/// `None`: there is no sshd, or no QEMU.
fn guests() -> Option<Guests> {
    if sshd_program().is_none() {
        testkit::skip("HOSTGAP_SSHD does not say where an sshd is");
        return None;
    }
    if !is_debian() {
        return None;
    }
    let (sandbox, world) = (sandbox(), World::new());
    let vm = match Cache::open().and_then(|cache| Vm::fetch(&cache, deb::Suite::Backports, Flavour::Full)) {
        Ok(vm) => vm.with_kernel_arguments(UNGUARDED),
        Err(error) => {
            testkit::skip(&format!("no virtual machine: {error}"));
            return None;
        }
    };
    let switch = world.name("switch").to_string();
    world.add("switch");
    write_config(sandbox.out());
    let file = |name: &str| sandbox.out().join(name);
    let mut config = std::fs::read_to_string(file("ssh_config")).unwrap();
    for (number, (_, bridge)) in CARDS.into_iter().enumerate() {
        let address = format!("10.9.{number}.254/24");
        ip(&["-n", &switch, "link", "add", bridge, "type", "bridge"]);
        ip(&["-n", &switch, "link", "set", bridge, "up"]);
        ip(&["-n", &switch, "address", "add", &address, "dev", bridge]);
    }
    config.push_str("Host a1\n  HostName 10.9.1.1\nHost b1\n  HostName 10.9.1.2\n");
    // A test that is killed takes its guests along, and what still speaks to them ends.
    let all = "Host *\n  ServerAliveInterval 30";
    std::fs::write(file("ssh_config"), config.replace("Host a b c absent", all)).unwrap();
    let program = file("hostgap");
    text(Command::new("strip").arg("-o").arg(&program).arg(HOSTGAP));
    let mut guests = Guests { guests: BTreeMap::new(), world, sandbox, vm, program };
    guests.switch_on(&["a", "b"]);
    Some(guests)
}

impl Guests {
    fn switch_on(&mut self, names: &[&'static str]) {
        for name in names {
            let number = if *name == "a" { 1 } else { 2 };
            let guest = Guest::start(&self.vm, number, self.world.name("switch"), self.sandbox.out());
            self.guests.insert(name, guest);
        }
        names.iter().for_each(|name| self.guests[name].until_it_listens());
    }

    /// As without power: nothing says a last word, and nothing of the machine is there afterwards.
    fn switch_off(&mut self, name: &str) {
        self.guests.remove(name);
    }

    /// A command on a machine.
    fn on(&self, machine: &str, script: &str) -> Command {
        let mut command = self.sandbox.command_in(self.world.name("switch").as_str(), "ssh");
        command.arg("-F").arg(self.sandbox.out().join("ssh_config")).args([machine, script]);
        command
    }

    /// Asks a machine what it has now, as a test of this program sees it there.
    fn ask(&self, machine: &str, first: &str) -> Command {
        let own = std::env::current_exe().unwrap();
        self.on(machine, &format!("{first}exec {} --ignored --exact {STATE} --nocapture", own.display()))
    }

    /// What a machine has now; `None` if it changed meanwhile.
    fn glimpse(&self, machine: &str) -> Option<State> {
        state_of(&self.ask(machine, "").output().unwrap())
    }

    /// The same of one on which nothing happens.
    #[track_caller]
    fn state(&self, machine: &str) -> State {
        let said = || self.guests[machine].last_words();
        self.glimpse(machine)
            .unwrap_or_else(|| panic!("{machine} does not answer; it had said at last:\n{}", said()))
    }

    /// Sends a signal to processes of hostgap on a machine that were started so; 0 only looks for them. False: there is
    /// none.
    fn signal_on(&self, machine: &str, option: &str, signal: u8) -> bool {
        // The brackets are in the command line of grep itself, which so does not match.
        let script = format!(
            "for file in $(grep -als '/hostgap/[r]emote/.*{option}' /proc/[0-9]*/cmdline); do \
             process=${{file#/proc/}}; kill -{signal} ${{process%/*}} && echo there; done; true"
        );
        text(&mut self.on(machine, &script)).contains("there")
    }

    /// A race between two machines by these names of theirs, which the first one leads.
    fn race(&self, [client, server]: [&str; 2], args: &[&str]) -> Command {
        let ssh = format!("ssh -F {}", self.sandbox.out().join("ssh_config").display());
        let program = self.program.display().to_string();
        let mut command = self.sandbox.command_in(self.world.name("switch").as_str(), &program);
        command.args(["race", "--ssh", &ssh, "--cpus", "0", "--server-cpus", "1", "--json"]);
        command.args(["--client", &format!("ssh://{client}"), "--server", &format!("ssh://{server}")]);
        command.arg("--out").arg(self.sandbox.out().join("results")).args(args);
        command
    }

    /// Waits until a machine is as it was, from which nothing is missing and to which nothing came.
    #[track_caller]
    fn until_as_before(&self, machine: &str, before: &State) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let now = self.glimpse(machine).unwrap_or_default();
            let differences: Vec<_> = before.symmetric_difference(&now).collect();
            if differences.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{machine} differs: {differences:#?}");
        }
    }
}

/// What a machine that was asked has said; `None` if something changed while it looked.
fn state_of(answer: &Output) -> Option<State> {
    let lines = stdout(answer);
    let lines = lines.lines().filter_map(|line| line.strip_prefix("state "));
    answer.status.success().then(|| lines.map(str::to_owned).collect())
}

const STATE: &str = "machines::guests::state_of_this_machine";

/// What of the machine on which this runs may not change, and what of hostgap is there.
#[test]
#[ignore = "a guest runs it for the other tests"]
fn state_of_this_machine() {
    let print = |line: &str| println!("state {line}");
    dump(&Netns::current().unwrap()).lines().for_each(print);
    let names = |folder: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().display().to_string()).collect::<Vec<_>>()
    };
    names("/run/netns").iter().for_each(|netns| print(netns));
    names("/run/hostgap/lab").iter().filter(|unit| !unit.ends_with(".lock")).for_each(|unit| print(unit));
    let lines = names("/proc").into_iter().filter_map(|process| std::fs::read(process + "/cmdline").ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains("/hostgap/remote/")).for_each(|line| print(&line));
}
