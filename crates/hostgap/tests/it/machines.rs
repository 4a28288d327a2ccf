//! Races between two machines: two network namespaces at one switch, each with a `/run` and an sshd of its own.

mod clients;
mod guests;
mod login;
mod lost;
mod settings;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use testkit::{Dump, World, dump};

use crate::sandbox::{
    HOSTGAP, OwnRun, Sandbox, check, check_race, json, kill, own_run, sandbox, stderr, stdout, until,
    until_within,
};

/// Two machines at one switch. The client's is the sandbox's; the server's is reached by ssh as `b`.
struct Machines {
    world: World,
    sandbox: Sandbox,
    /// The `/run` of the server's machine.
    far: OwnRun,
    sshd: Child,
    before: [Dump; 2],
}

fn sshd_program() -> Option<PathBuf> {
    std::env::var_os("HOSTGAP_SSHD").map(PathBuf::from)
}

/// `None`: there is no sshd.
fn machines() -> Option<Machines> {
    let Some(sshd) = sshd_program() else {
        testkit::skip("HOSTGAP_SSHD does not say where an sshd is");
        return None;
    };
    let (sandbox, far, world) = (sandbox(), own_run(), World::new());
    let switch = world.name("switch").to_string();
    world.add("switch");
    ip(&["-n", &switch, "link", "add", "sw0", "type", "bridge"]);
    ip(&["-n", &switch, "link", "set", "sw0", "up"]);
    for number in [1, 2] {
        plug(&world, number);
    }
    write_config(sandbox.out());
    let sshd = start_sshd(&sshd, &far, world.name("b").as_str(), sandbox.out());
    let before = ["a", "b"].map(|name| dump(&world.open(name)));
    Some(Machines { world, sandbox, far, sshd, before })
}

/// Adds a machine, whose card leads to the switch. It has the same addresses each time.
fn plug(world: &World, number: usize) {
    let name = ["a", "b", "c"][number - 1];
    world.add(name);
    let [switch, netns] = ["switch", name].map(|name| world.name(name).to_string());
    let [ethernet, address] = [format!("02:00:00:00:09:0{number}"), format!("10.9.0.{number}/24")];
    let port = port(name);
    let add = ["-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0"];
    ip(&[&add[..], &["address", &ethernet, "netns", &netns]].concat());
    ip(&["-n", &switch, "link", "set", &port, "master", "sw0", "up"]);
    ip(&["-n", &netns, "addr", "add", &address, "dev", "eth0"]);
    for link in ["eth0", "lo"] {
        ip(&["-n", &netns, "link", "set", link, "up"]);
    }
}

/// The switch's port to a machine.
fn port(name: &str) -> String {
    format!("port-{name}")
}

/// The files of both sides of ssh. As some users' shells do, those of the machines greet before they do anything.
fn write_config(dir: &Path) {
    let file = |name: &str| dir.join(name).display().to_string();
    for key in ["host-key", "user-key"] {
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &file(key)]).status();
        assert!(made.unwrap().success());
    }
    // The daemon wants a user of its own, and an installed package made one.
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let sshd = "sshd:x:65534:65534::/run/sshd:/usr/sbin/nologin\n";
    std::fs::write(file("passwd"), users + sshd + login::OPERATOR).unwrap();
    let config = format!(
        "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPidFile none\nUsePAM no\nPermitRootLogin yes\n\
         SetEnv XDG_CACHE_HOME={} PATH={}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin\n\
         ForceCommand echo welcome; eval \"$SSH_ORIGINAL_COMMAND\"\n",
        file("host-key"),
        file("user-key.pub"),
        file("cache"),
        file("bin")
    );
    std::fs::create_dir(dir.join("bin")).unwrap();
    std::fs::write(dir.join("bin/sudo"), login::SUDO).unwrap();
    std::fs::set_permissions(dir.join("bin/sudo"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(file("sshd_config"), config).unwrap();
    let config = format!(
        "Host a b c absent\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  \
         UserKnownHostsFile /dev/null\n  LogLevel ERROR\nHost a\n  HostName 10.9.0.1\nHost b\n  HostName 10.9.0.2\nHost c\n  HostName 10.9.0.3\nHost absent\n  HostName 10.9.0.9\n",
        file("user-key")
    );
    std::fs::write(file("ssh_config"), config).unwrap();
}

/// The daemon of a machine.
fn start_sshd(sshd: &Path, far: &OwnRun, netns: &str, dir: &Path) -> Child {
    let file = |name: &str| dir.join(name).display().to_string();
    let log_name = format!("{netns}.log");
    let script = format!(
        "mkdir -p /run/sshd /run/netns && mount --bind {} /etc/passwd && exec {} -D -e -f {}",
        file("passwd"),
        sshd.display(),
        file("sshd_config")
    );
    let mut command = far.command_in(netns, "sh");
    let log = std::fs::File::create(file(&log_name)).unwrap();
    let daemon = command.args(["-c", &script]).stderr(log).spawn().unwrap();
    until("sshd listens", || {
        std::fs::read_to_string(file(&log_name)).unwrap().contains("Server listening on 0.0.0.0")
    });
    daemon
}

fn ip(args: &[&str]) {
    assert!(Command::new("ip").args(args).status().unwrap().success(), "{args:?}");
}

impl Machines {
    /// hostgap on the client's machine.
    fn hostgap(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.command_in(self.world.name("a").as_str(), HOSTGAP);
        command.args(args);
        command
    }

    /// A race with the server's machine: two CPUs, one for each.
    fn race(&self, args: &[&str]) -> Command {
        let ssh = format!("ssh -F {}", self.sandbox.out().join("ssh_config").display());
        let mut usual = vec!["--server", "hostgap", "--rate", "200"];
        for (option, value) in [("--cpus", "0"), ("--server-cpus", "1"), ("--connections", "4")] {
            if !args.contains(&option) {
                usual.extend([option, value]);
            }
        }
        let mut command = self.hostgap(&["race", "--ssh", &ssh]);
        command.args(["--out"]).arg(self.sandbox.out().join("results")).args(usual).args(args);
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.race(args).output().unwrap()
    }

    /// Sets a parameter of the server's machine.
    fn set_on_b(&self, setting: &str) {
        ip(&["netns", "exec", self.world.name("b").as_str(), "sysctl", "-qw", setting]);
    }

    /// What the only race's doctor said of the machines.
    fn doctor(&self) -> serde_json::Value {
        let races = std::fs::read_dir(self.sandbox.out().join("results")).unwrap();
        let races: Vec<PathBuf> = races.map(|race| race.unwrap().path()).collect();
        let [race] = &races[..] else { panic!("{races:?}") };
        let text = std::fs::read_to_string(race.join("doctor.txt")).unwrap();
        assert!(text.lines().next().unwrap().contains(" machines: "), "{text}");
        serde_json::from_str(&std::fs::read_to_string(race.join("doctor.json")).unwrap()).unwrap()
    }

    /// The process that works on the server's machine.
    fn worker(&self) -> Option<u32> {
        copied(&self.far, " remote --connection ")
    }

    /// Waits until a server answers on the server's machine.
    fn until_something_stands(&self) {
        until("a server runs there", || !self.far.servers().is_empty());
    }

    /// The finished rounds of all races here.
    fn rounds(&self) -> usize {
        self.count_in_records("{\"round\":{")
    }

    /// How often that stands in the records of all races here.
    fn count_in_records(&self, words: &str) -> usize {
        let Ok(races) = std::fs::read_dir(self.sandbox.out().join("results")) else { return 0 };
        let records = races.map(|race| race.unwrap().path().join("race.jsonl"));
        let texts = records.filter_map(|record| std::fs::read_to_string(record).ok());
        texts.map(|text| text.matches(words).count()).sum()
    }

    /// Where other races have the CPUs too, a round takes minutes.
    fn until_rounds(&self, count: usize) {
        until_within(Duration::from_secs(600), "rounds are written down", || self.rounds() >= count);
    }

    /// Neither machine has anything that it did not have before; what ends is waited for.
    #[track_caller]
    fn assert_as_before(&self) {
        until("the processes there have ended", || self.worker().is_none() && self.far.servers().is_empty());
        until("the watching process has ended", || {
            self.far.processes().iter().all(|line| !line.contains("remote --watch"))
        });
        for (run, netns, before) in
            [(&*self.sandbox, "a", &self.before[0]), (&self.far, "b", &self.before[1])]
        {
            assert_eq!((run.namespaces(), run.owners()), (Vec::new(), Vec::new()), "{netns}");
            before.assert_same(&dump(&self.world.open(netns)), netns);
        }
    }
}

/// The program that was copied to a machine, where it runs with this in its command line.
fn copied(run: &OwnRun, arguments: &str) -> Option<u32> {
    let is_copy =
        |line: &str| line.split(' ').next().is_some_and(|program| program.contains("/hostgap/remote/"));
    let mut found = run.pids().into_iter().filter(|(_, line)| is_copy(line) && line.contains(arguments));
    found.next().map(|(pid, _)| pid)
}

impl Drop for Machines {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

/// Trials in the closed loop, with those that do not count: on a busy machine that may be all.
fn visits(candidate: &serde_json::Value) -> u64 {
    let count = |key: &str| candidate["rates"][0][key].as_u64().unwrap();
    count("trials") + count("void_trials")
}

#[test]
fn two_machines_race_and_are_as_before() {
    let Some(machines) = machines() else { return };
    let paths = "bridge+vxlan,ptp+direct,ebpf+direct,docker";
    machines.set_on_b("net.ipv4.tcp_sack=0");
    let output = machines.output(&["--server", "ssh://b", "--paths", paths, "--rounds", "2", "--json"]);
    check_race(&output, "connecting to ssh://b");
    let result = json(&output);
    let candidates: Vec<&str> =
        result["candidates"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(candidates, ["host", "host again", "docker", "bridge+vxlan", "ptp+direct", "ebpf+direct"]);
    for candidate in result["candidates"].as_array().unwrap() {
        assert!(visits(candidate) > 0, "{candidate}");
    }
    let warned = |line: &str| line.starts_with("doctor: HG121 ") && line.ends_with("on ssh://b");
    assert!(stderr(&output).lines().any(warned), "{}", stderr(&output));
    let diagnoses = machines.doctor();
    for (of, name) in diagnoses["machines"].as_array().unwrap().iter().zip(["this machine", "ssh://b"]) {
        assert_eq!((of["machine"].as_str(), &of["failed"]), (Some(name), &serde_json::Value::Null), "{of}");
        assert_eq!(of["diagnosis"].to_string().contains("\"HG121\""), name == "ssh://b", "{of}");
    }
    machines.set_on_b("net.ipv4.tcp_sack=1");
    let facts = &result["machine"]["facts"];
    assert!(facts["server's machine"].as_str().unwrap().starts_with("ssh://b: Linux "), "{facts}");
    assert!(
        facts["server's link"].as_str().unwrap().starts_with("eth0: MTU 1500, veth, 10 Gbit/s"),
        "{facts}"
    );
    machines.assert_as_before();
    let shown =
        machines.output(&["--server", "ssh://b", "--sudo", "--paths", "ptp+direct", "--show-commands"]);
    check(&shown, 0, "connecting to ssh://b");
    let text = stdout(&shown);
    for line in
        ["# on the client's machine", "# on the server's machine", "ip netns add hg-ptp-direct-server"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    machines.assert_as_before();
}

#[test]
fn whoever_is_killed_nothing_is_left() {
    let Some(machines) = machines() else { return };
    let paths = ["--server", "ssh://b", "--paths", "bridge+vxlan,ebpf+vxlan", "--rounds", "1000"];
    // The process there. Another race does not wait for its machine.
    let race = machines.race(&paths).spawn().unwrap();
    machines.until_something_stands();
    let other = machines.output(&["--server", "ssh://b", "--sudo"]);
    check(&other, 1, "use ssh://b: take the machine for a race: another race (process ");
    kill(machines.worker().unwrap(), Signal::KILL);
    let output = race.wait_with_output().unwrap();
    check(&output, 1, "could not finish the race");
    assert!(stderr(&output).contains("use ssh://b: "), "{}", stderr(&output));
    machines.assert_as_before();
    // The race here: what it leaves on its own machine the next one removes.
    let mut race = machines.race(&paths).spawn().unwrap();
    machines.until_something_stands();
    kill(race.id(), Signal::KILL);
    race.wait().unwrap();
    until("the other machine is as before", || machines.far.owners().is_empty());
    check(&machines.hostgap(&["clean"]).output().unwrap(), 0, "");
    machines.assert_as_before();
    // The connection.
    let race = machines.race(&paths).spawn().unwrap();
    machines.until_something_stands();
    let ssh = machines.sandbox.pids().into_iter().find(|(_, line)| line.starts_with("ssh ")).unwrap();
    kill(ssh.0, Signal::KILL);
    check(&race.wait_with_output().unwrap(), 1, "use ssh://b: ");
    machines.assert_as_before();
    // Both, by their user.
    let race = machines.race(&paths).spawn().unwrap();
    machines.until_something_stands();
    kill(race.id(), Signal::INT);
    check(&race.wait_with_output().unwrap(), 130, "interrupted");
    machines.assert_as_before();
}

/// Two races that cross would wait for each other: each has the other's server's machine.
#[test]
fn neither_machine_is_waited_for_while_it_has_another_race() {
    let Some(Three { machines, client, .. }) = &three() else { return };
    let endless = ["race", "--paths", "docker", "--rounds", "1000", "--rate", "1k", "--out"];
    let waits = |run: &OwnRun, args: &[&str]| {
        let mut other = run.command(HOSTGAP);
        let mut other = other.args(endless).arg(machines.sandbox.out().join("other")).spawn().unwrap();
        until("the other race has begun", || !run.owners().is_empty());
        let output = machines.output(args);
        kill(other.id(), Signal::INT);
        other.wait().unwrap();
        check(&output, 1, "take the machine for a race: another race (process ")
    };
    let said = waits(&machines.sandbox, &["--server", "ssh://b"]);
    assert!(said.contains("hint: try again when it has ended"), "{said}");
    let said = waits(client, &["--client", "ssh://a", "--server", "ssh://b"]);
    assert!(said.contains("use ssh://a: ") && said.contains("hint: try again when it has ended"), "{said}");
    assert_nothing_left(machines, client);
}

/// Client and server are on two machines, and the race is started on a third one.
#[test]
fn a_race_between_two_other_machines_is_led_by_the_clients() {
    let Some(Three { machines, client, .. }) = &three() else { return };
    let both = ["--client", "ssh://a", "--server", "ssh://b", "--paths", "bridge+vxlan,ebpf+direct"];
    let output = machines.output(&[&both[..], &["--rounds", "2", "--json"]].concat());
    check_race(&output, "connecting to ssh://a");
    let result = json(&output);
    let names = result["candidates"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["host", "host again", "bridge+vxlan", "ebpf+direct"]);
    assert!(visits(&result["candidates"][2]) > 0, "{result}");
    let examined = machines.doctor();
    let examined =
        examined["machines"].as_array().unwrap().iter().map(|one| one["machine"].as_str().unwrap());
    assert_eq!(examined.collect::<Vec<_>>(), ["ssh://a", "ssh://b"]);
    let nothing_left = || assert_nothing_left(machines, client);
    nothing_left();
    // The user ends it, then each of the three parties dies.
    let long = [&both[..], &["--rounds", "1000"]].concat();
    let started = || {
        let race = machines.race(&long).spawn().unwrap();
        machines.until_something_stands();
        race
    };
    let race = started();
    kill(race.id(), Signal::INT);
    check(&race.wait_with_output().unwrap(), 130, "interrupted");
    nothing_left();
    let mut race = started();
    kill(race.id(), Signal::KILL);
    race.wait().unwrap();
    nothing_left();
    let race = started();
    kill(copied(client, " remote --lead ").unwrap(), Signal::KILL);
    check(&race.wait_with_output().unwrap(), 1, "use ssh://a: ");
    nothing_left();
    let race = started();
    kill(machines.worker().unwrap(), Signal::KILL);
    let printed = check(&race.wait_with_output().unwrap(), 1, "use ssh://b: ");
    assert!(!printed.contains("use ssh://a"), "it was the server's machine alone: {printed}");
    nothing_left();
}

/// Two machines, and the client's reached by ssh as `a`.
pub(crate) struct Three {
    machines: Machines,
    /// What the client's machine has when it is reached so: its network is that of `Machines::sandbox`.
    client: OwnRun,
    daemon: Child,
}

pub(crate) fn three() -> Option<Three> {
    let machines = machines()?;
    let sshd = sshd_program().unwrap();
    let (client, netns) = (own_run(), machines.world.name("a").to_string());
    let daemon = start_sshd(&sshd, &client, &netns, machines.sandbox.out());
    Some(Three { machines, client, daemon })
}

impl Drop for Three {
    fn drop(&mut self) {
        let _ = (self.daemon.kill(), self.daemon.wait());
    }
}

#[track_caller]
fn assert_nothing_left(machines: &Machines, client: &OwnRun) {
    until("the client's machine has nothing of it", || {
        client.owners().is_empty() && client.namespaces().is_empty() && client.servers().is_empty()
    });
    until("nothing of hostgap runs there", || {
        client.processes().iter().all(|line| !line.contains(" remote "))
    });
    machines.assert_as_before();
}

/// Kills one of the three processes of a race between two other machines after this time: the one here, the
/// client's or the server's.
pub(crate) fn killed_after(number: u32, after: Duration, three: &Three) {
    let Three { machines, client, .. } = three;
    let both = ["--client", "ssh://a", "--server", "ssh://b", "--paths", "bridge+vxlan,ebpf+direct"];
    let mut race = machines.race(&[&both[..], &["--rounds", "1000"]].concat()).spawn().unwrap();
    std::thread::sleep(after);
    let victim = match number % 3 {
        0 => Some(race.id()),
        1 => copied(client, " remote --lead "),
        _ => machines.worker(),
    };
    // One that has not begun yet is not killed, and the user ends the race.
    match victim {
        Some(pid) => kill(pid, Signal::KILL),
        None => kill(race.id(), Signal::INT),
    }
    race.wait().unwrap();
    assert_nothing_left(machines, client);
}

#[test]
fn what_cannot_race_on_another_machine_is_refused_with_the_reason() {
    let Some(Three { machines, client, .. }) = &three() else { return };
    let refused = |args: &[&str], code, says: &str| check(&machines.output(args), code, says);
    refused(
        &["--server", "ssh://absent"],
        1,
        "use ssh://absent: ssh: connect to host 10.9.0.9 port 22: No route to host",
    );
    refused(&["--server", "ssh://b", "--delay", "5ms"], 2, "it is a real one");
    refused(&["--server", "ssh://b", "--paths", "macvlan"], 4, "switches and clouds drop");
    let led = ["--client", "ssh://a", "--server", "ssh://b", "--paths", "macvlan"];
    let said = refused(&led, 4, "use ssh://a: run macvlan here: ");
    assert!(
        said.contains("hint: `hostgap paths` lists what each data path needs and, on the machine"),
        "{said}"
    );
    let no_ssh = machines.hostgap(&["race", "--ssh", "/no/ssh", "--server", "ssh://b"]).output().unwrap();
    check(&no_ssh, 4, "use ssh://b: start /no/ssh: No such file");
    refused(
        &["--server", "ssh://b", "--nic", "eth7"],
        2,
        "none of its addresses (10.9.0.2) is reached by eth7",
    );
    refused(&["--nic", "eth0"], 2, "names none");
    refused(&["--server", "ssh://b", "--kernel", "debian:6.12"], 2, "each machine has its own");
    refused(&["--server", "ssh://b", "--exact"], 2, "each machine has its own");
    refused(
        &["--server", "ssh://b", "--nginx", "/bin/true"],
        2,
        "--nginx does not apply to a race between machines",
    );
    refused(
        &["--server", "ssh://b", "--duration", "1m"],
        2,
        "--duration does not apply to a race between machines",
    );
    refused(&["--client", "ssh://a"], 2, "names no machine");
    let two = ["--client", "here", "--client", "ssh://c", "--server", "ssh://b"];
    let of_two = |args: &[&str], says: &str| refused(&[&two[..], args].concat(), 2, says);
    of_two(&["--client", "ssh://c"], "ssh://c is named twice");
    of_two(
        &["--by-cpu"],
        "the time of each CPU of 2 clients: CPUs of different machines have the same numbers",
    );
    of_two(&["--connections", "1"], "1 connection of 2 clients: each has at least one of its own");
    of_two(&["--connections", "40002"], "20001 connections of one client: it calls one port of the server");
    refused(&["--server", "ssh://-b"], 2, "is no host");
    refused(&["--server", "ssh://b", "--server-cpus", "4000"], 2, "CPU 4000 does not exist there");
    let shown = ["--client", "ssh://a", "--server", "ssh://b", "--show-commands"];
    refused(&shown, 2, "--show-commands with --client: the plan is made on the client's machine; leave out");
    let led = ["--client", "ssh://a", "--server", "ssh://b", "--cpus", "4000"];
    refused(&led, 2, "use ssh://a: race as asked: the client's CPUs 4000: CPU 4000 does not exist there");
    let led = ["--client", "ssh://a", "--server", "ssh://b", "--nic", "eth7"];
    refused(&led, 2, "use ssh://b: none of its addresses (10.9.0.2) is reached by eth7");
    let no_key = format!(
        "ssh -F {} -i /dev/null -oIdentityFile=/dev/null",
        machines.sandbox.out().join("none").display()
    );
    std::fs::write(machines.sandbox.out().join("none"), "").unwrap();
    let ssh = ["race", "--ssh", &no_key, "--server", "ssh://root@10.9.0.2"];
    let output = machines.hostgap(&ssh).stdin(Stdio::null()).output().unwrap();
    check(&output, 1, "use ssh://root@10.9.0.2: ");
    assert_nothing_left(machines, client);
}
