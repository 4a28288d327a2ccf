//! The installed program under a runtime's calls: while it is replaced, when the installer is killed, after a race, and
//! when it is to go.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use record::{Line, RaceRecord, Writer};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::made::{Plan, Truth, eventful, flood};
use crate::sandbox::{HOSTGAP, PLUGIN, Sandbox, check, kill, sandbox, stderr, stdout, text, until};

/// A node in a namespace of the sandbox, with a wire, and the directories of a runtime.
struct Node {
    sandbox: Sandbox,
}

impl Node {
    fn new() -> Node {
        let sandbox = sandbox();
        // The plugin keeps addresses there, and the machine may have some of its own. A bpffs that is mounted under
        // `ip netns exec` would go with the call.
        let mounts =
            "mount -t tmpfs none /var/lib; mkdir -p /run/hostgap-bpf; mount -t bpf none /run/hostgap-bpf";
        text(sandbox.command("sh").args(["-ec", mounts]));
        let script = "ip netns add node && ip -n node link add wire0 type veth peer name wire1 &&
             ip -n node addr add 192.0.2.1/24 dev wire0 && ip -n node link set wire0 up &&
             ip -n node link set wire1 up && ip -n node route add default via 192.0.2.2";
        text(sandbox.command("sh").args(["-ec", script]));
        Node { sandbox }
    }

    fn bin(&self) -> PathBuf {
        self.sandbox.out().join("bin")
    }

    fn conf(&self) -> PathBuf {
        self.sandbox.out().join("net.d")
    }

    fn plugin(&self) -> PathBuf {
        self.bin().join("hostgap")
    }

    /// A program in the node's namespace.
    fn command(&self, program: &Path) -> Command {
        let mut command = self.sandbox.command("ip");
        command.args(["netns", "exec", "node"]).arg(program);
        command
    }

    /// A subcommand of `hostgap cni` of a program, with the test's directories.
    fn cni_of(&self, program: &Path, verb: &str, args: &[&str]) -> Command {
        let mut command = self.command(program);
        command.args(["cni", verb]).args(args);
        command.arg("--bin-dir").arg(self.bin()).arg("--conf-dir").arg(self.conf());
        command
    }

    fn install(&self, args: &[&str]) -> Output {
        self.cni_of(Path::new(HOSTGAP), "install", args).output().unwrap()
    }

    fn uninstall(&self) -> Output {
        self.cni_of(Path::new(HOSTGAP), "uninstall", &[]).output().unwrap()
    }

    /// What a runtime does with the first configuration of its directory.
    fn call(&self, verb: &str, container: &str) -> Output {
        let list = fs::read_to_string(self.conf().join("10-pods.conflist")).unwrap();
        let list: Value = serde_json::from_str(&list).unwrap();
        let mut conf = list["plugins"][0].clone();
        (conf["name"], conf["cniVersion"]) = (list["name"].clone(), json!("1.1.0"));
        self.call_with(verb, container, &conf)
    }

    fn call_with(&self, verb: &str, container: &str, conf: &Value) -> Output {
        let mut command = self.command(&self.plugin());
        command
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", container)
            .env("CNI_NETNS", format!("/run/netns/{container}"))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", self.bin());
        answer(command.stdin(std::process::Stdio::piped()).spawn().unwrap(), conf)
    }

    /// The files of a directory, without their paths.
    fn files(&self, directory: &Path) -> Vec<String> {
        let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn answer(mut child: Child, input: &Value) -> Output {
    use std::io::Write;
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

const PODS: [&str; 6] = ["--attach", "ptp", "--name", "pods", "--subnet", "10.244.1.0/24"];

/// Two builds of the program, small enough to be copied often. An executable may have anything at its end.
fn builds(node: &Node) -> [PathBuf; 2] {
    let [one, other] = ["one", "other"].map(|name| node.sandbox.out().join(name));
    text(Command::new("strip").arg("-o").arg(&one).arg(HOSTGAP));
    fs::write(&other, [fs::read(&one).unwrap(), b"another build".to_vec()].concat()).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    [one, other]
}

/// While the program is replaced again and again, every call of it succeeds: none finds half a file, and none finds one
/// that is open for writing (ETXTBSY).
#[test]
fn calls_go_on_while_the_program_is_replaced() {
    const CALLS: usize = 200;
    const ATTACHMENTS: usize = 10;
    const INSTALLS: usize = 5;
    let node = Node::new();
    let builds = builds(&node);
    check(&node.cni_of(&builds[0], "install", &PODS).output().unwrap(), 0, "");
    text(node.sandbox.command("ip").args(["netns", "add", "a"]));
    let (called, attached, installed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let counts = [(&called, CALLS), (&attached, ATTACHMENTS), (&installed, INSTALLS)];
    let are_enough = || counts.iter().all(|(count, enough)| count.load(Ordering::Relaxed) >= *enough);
    let mut replaced = Vec::new();
    thread::scope(|scope| {
        let calling = scope.spawn(|| {
            while !are_enough() {
                let output = node.call_with("VERSION", "x", &json!({ "cniVersion": "1.1.0" }));
                check(&output, 0, "");
                assert!(stdout(&output).contains("\"supportedVersions\":[\"0.3.0\""), "{}", stdout(&output));
                called.fetch_add(1, Ordering::Relaxed);
            }
        });
        let attaching = scope.spawn(|| {
            while !are_enough() {
                for verb in ["ADD", "DEL"] {
                    let output = node.call(verb, "a");
                    assert!(output.status.success(), "{verb}: {}", stdout(&output));
                }
                attached.fetch_add(1, Ordering::Relaxed);
            }
        });
        while !(calling.is_finished() || attaching.is_finished()) {
            let build = &builds[(replaced.len() + 1) % 2];
            replaced.push(node.cni_of(build, "install", &PODS).output().unwrap());
            installed.fetch_add(1, Ordering::Relaxed);
        }
        // Where one has failed, the other would wait for it.
        for (count, enough) in counts {
            count.fetch_add(enough, Ordering::Relaxed);
        }
    });
    for output in &replaced {
        check(output, 0, "");
        assert!(stdout(output).contains("bin/hostgap: replaced"), "{}", stdout(output));
    }
    assert_eq!(node.files(&node.bin()), ["hostgap"]);
    assert_eq!(node.files(&node.conf()), ["10-pods.conflist"]);
}

/// The installer looks at the configurations that are there before and after it writes the program. One of them is a
/// pipe, in which the test writes once, so that the program is there and the configuration is not.
#[test]
fn an_installer_that_is_killed_between_its_files_leaves_no_configuration() {
    let node = Node::new();
    fs::create_dir(node.conf()).unwrap();
    let pipe = node.conf().join("20-other.conflist");
    text(Command::new("mkfifo").arg(&pipe));
    let mut installer = node.cni_of(Path::new(HOSTGAP), "install", &PODS).spawn().unwrap();
    fs::write(&pipe, "{}").unwrap();
    until("the program is there", || node.plugin().exists());
    kill(installer.id(), Signal::KILL);
    installer.wait().unwrap();
    fs::remove_file(&pipe).unwrap();
    assert_eq!(
        (node.files(&node.bin()), node.files(&node.conf())),
        (vec!["hostgap".to_owned()], Vec::<String>::new())
    );
    check(&node.call_with("VERSION", "x", &json!({})), 0, "");
    // The next one goes on from there.
    let installed = node.install(&PODS);
    check(&installed, 0, "");
    assert!(stdout(&installed).contains("bin/hostgap: unchanged\n"), "{}", stdout(&installed));
    assert!(stdout(&installed).contains("10-pods.conflist: written\n"), "{}", stdout(&installed));
}

/// What runtimes start is the plugin's program, which has the commands of none but them.
#[test]
fn a_person_who_starts_the_plugin_gets_a_hint() {
    let node = Node::new();
    check(&node.install(&PODS), 0, "");
    assert!(fs::read(node.plugin()).unwrap() == fs::read(PLUGIN).unwrap());
    for args in [&[][..], &["--help"], &["agent", "status"]] {
        let output = node.command(&node.plugin()).args(args).output().unwrap();
        check(&output, 2, "hint: `hostgap cni install` puts it under a runtime");
    }
}

#[test]
fn the_program_goes_when_no_container_needs_it() {
    let node = Node::new();
    check(&node.install(&PODS), 0, "");
    text(node.sandbox.command("ip").args(["netns", "add", "a"]));
    let list: Value =
        serde_json::from_slice(&fs::read(node.conf().join("10-pods.conflist")).unwrap()).unwrap();
    let mut conf = list["plugins"][0].clone();
    (conf["name"], conf["cniVersion"]) = (list["name"].clone(), json!("1.1.0"));
    assert!(node.call_with("ADD", "a", &conf).status.success());
    let left = node.uninstall();
    check(&left, 0, "hint: when these containers are gone, run `hostgap cni uninstall` again");
    let says = stdout(&left);
    assert!(says.contains("10-pods.conflist: removed\n"), "{says}");
    assert!(says.contains("bin/hostgap: left, to take back containers that are attached\n"), "{says}");
    assert!(says.contains("attached: interface eth0 of container a in network pods\n"), "{says}");
    // Nothing listens on the port, and the node says so.
    let connect = "exec 3<>/dev/tcp/192.0.2.1/9";
    let refused =
        node.sandbox.command("ip").args(["netns", "exec", "a", "bash", "-c", connect]).output().unwrap();
    assert!(stderr(&refused).contains("Connection refused"), "{}", stderr(&refused));
    assert!(node.call_with("DEL", "a", &conf).status.success());
    let gone = stdout(&node.uninstall());
    assert!(gone.contains("bin/hostgap: removed\n"), "{gone}");
    assert!(gone.contains("network pods: removed, no container is attached to it\n"), "{gone}");
    assert_eq!(stdout(&node.uninstall()), "nothing to remove\n");
    assert_eq!(node.files(&node.bin()), Vec::<String>::new());
}

#[test]
fn the_check_of_senders_may_be_at_tcx() {
    let node = Node::new();
    let at_tcx = |more: &[&str]| node.install(&[&PODS, &["--anti-spoofing", "tcx"][..], more].concat());
    let installed = at_tcx(&[]);
    check(&installed, 0, "");
    let list = fs::read_to_string(node.conf().join("10-pods.conflist")).unwrap();
    assert!(list.contains("\"anti_spoofing\": \"tcx\""), "{list}");
    text(node.sandbox.command("ip").args(["netns", "add", "a"]));
    assert!(node.call("ADD", "a").status.success());
    // A filter has no link that is pinned.
    let pins = text(node.sandbox.command("sh").args(["-c", "ls /run/hostgap-bpf/*"]));
    assert!(pins.contains("link_hgp"), "{pins}");
    assert!(node.call("DEL", "a").status.success());
    check(&at_tcx(&["--no-anti-spoofing"]), 2, "cannot be used with");
}

#[test]
fn a_bridge_that_another_program_uses_is_left_and_named() {
    let node = Node::new();
    check(&node.install(&PODS), 0, "");
    text(node.sandbox.command("ip").args(["netns", "add", "a"]));
    let conf = json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "hostgap", "attach": "bridge", "bridge": "cni0",
        "anti_spoofing": false, "ipam": { "type": "hostgap", "ranges": [[{ "subnet": "10.244.1.0/24" }]] },
    });
    check(&node.call_with("ADD", "a", &conf), 0, "");
    let join = "-n node link add other0 master cni0 type veth peer name other1";
    text(node.sandbox.command("ip").args(join.split_whitespace()));
    check(&node.call_with("DEL", "a", &conf), 0, "");
    let why = "link cni0 has ports of another program: other0";
    let left = format!("network pods: left, {why}\n");
    let uninstalled = stdout(&node.uninstall());
    assert!(uninstalled.contains("bin/hostgap: removed\n") && uninstalled.ends_with(&left), "{uninstalled}");
    let clean = |args: &[&str]| node.command(Path::new(HOSTGAP)).arg("clean").args(args).output().unwrap();
    assert_eq!(stdout(&clean(&[])), left);
    let json = crate::sandbox::json(&clean(&["--json"]));
    assert_eq!(json["networks_left"], json!([{ "network": "pods", "why": why }]));
    text(node.sandbox.command("ip").args(["-n", "node", "link", "del", "other0"]));
    assert_eq!(stdout(&clean(&[])), "network pods: removed, no container is attached to it\n");
}

#[test]
fn what_is_in_the_way_is_named_with_what_to_do() {
    let node = Node::new();
    let with = |args: &[&str]| node.install(&[&PODS[..], args].concat());
    check(&node.install(&PODS[2..]), 2, "--attach");
    check(
        &node.install(&["--attach", "ptp", "--name", "pods", "--subnet", "10.244.1.0/33"]),
        2,
        "10.244.1.0/33",
    );
    check(
        &node.install(&["--attach", "ptp", "--name", "pods", "--subnet", "10.244.1.9/24"]),
        2,
        "the network is 10.244.1.0/24",
    );
    check(
        &node.install(&["--attach", "brigde", "--name", "pods", "--subnet", "10.244.1.0/24"]),
        2,
        "one of bridge, ptp",
    );
    check(&with(&["--wire", "eth9"]), 2, "there is no link eth9");
    check(&with(&["--file", "pods.json"]), 2, "hint: for example --file 10-pods.conflist");
    assert!(!node.bin().exists() && !node.conf().exists(), "nothing was written");
    let facts = linux::features::probe().unwrap();
    for path in datapath::ATTACHES.iter().filter(|path| !path.unmet(&facts).is_empty()) {
        let args = ["--attach", path.name, "--name", "pods", "--subnet", "192.0.2.0/24"];
        let error = check(&node.install(&args), 4, &format!("could not run attach {} here: ", path.name));
        assert!(error.contains("hint: `hostgap paths` lists"), "{error}");
    }
    fs::create_dir(node.conf()).unwrap();
    fs::write(node.conf().join("10-pods.conflist"), r#"{"name":"pods","type":"bridge"}"#).unwrap();
    check(&with(&[]), 2, "hint: choose another name with --file, or move that file away");
    let dry = with(&["--file", "20-pods.conflist", "--dry-run"]);
    check(&dry, 0, "10-pods.conflist comes before 20-pods.conflist by its name");
    assert!(stdout(&dry).contains("20-pods.conflist: would be written\n"), "{}", stdout(&dry));
    assert_eq!(node.files(&node.conf()), ["10-pods.conflist"]);
    assert!(stderr(&dry).contains("bin has no plugin loopback, which containerd calls"), "{}", stderr(&dry));
    fs::create_dir(node.bin()).unwrap();
    fs::write(node.bin().join("loopback"), "").unwrap();
    let dry = with(&["--file", "20-pods.conflist", "--dry-run"]);
    assert!(!stderr(&dry).contains("loopback"), "{}", stderr(&dry));
    let json = crate::sandbox::json(&with(&["--file", "20-pods.conflist", "--json"]));
    assert_eq!(
        (&json["schema"], &json["is_first"], &json["attach"]),
        (&json!(1), &json!(false), &json!("ptp"))
    );
    assert_eq!((&json["program"]["change"], &json["conf"]["name"]), (&json!("written"), &json!("pods")));
    let first = stdout(&node.install(&[
        "--attach",
        "bridge",
        "--name",
        "web",
        "--subnet",
        "10.9.0.0/24",
        "--file",
        "00-web.conflist",
    ]));
    assert!(
        first.contains("00-web.conflist is the first file of its directory: runtimes use network web"),
        "{first}"
    );
}

/// Writes a race's record as a race does.
fn write(race: &RaceRecord, path: &Path) {
    let mut writer = Writer::create(path).unwrap();
    let mut lines = vec![Line::Header(Box::new(race.header.clone()))];
    lines.extend(race.capacities.iter().cloned().map(Line::Capacity));
    lines.push(Line::Loads(race.loads.clone()));
    lines.extend(race.rounds.iter().cloned().map(Line::Round));
    lines.extend(race.end.iter().map(|end| Line::End { wall_s: end.wall_s, stopped: end.stopped.clone() }));
    lines.iter().for_each(|line| writer.append(line).unwrap());
}

#[test]
fn what_won_a_race_is_installed_with_the_reason() {
    let node = Node::new();
    let dir = node.sandbox.out().to_owned();
    let from = |race: &RaceRecord, name: &str| {
        // In memory, since each line of a record is waited for until it is on the disk.
        write(race, &node.sandbox.in_run(name));
        node.install(&["--from", &format!("/run/{name}"), "--name", "pods", "--subnet", "10.244.1.0/24"])
    };
    let unmet = Truth {
        unmet: Some("netkit links not available: unknown device type"),
        ..Truth::of("netkit+direct", 1.0)
    };
    let [ptp, bridge] = [Truth::of("ptp+direct", 1.1), Truth::of("bridge+direct", 1.1)];
    let others = [Truth::of("ebpf+direct", 1.6), Truth::of("bridge+vxlan", 1.5), unmet];
    let mut race = Plan::of(5, [ptp, bridge].into_iter().chain(others).collect()).race();
    race.header.experiment.published.clear();
    let installed = from(&race, "whole.jsonl");
    check(&installed, 0, "note: in the race the nodes had routes to each other's pods");
    let says = stdout(&installed).replace(dir.to_str().unwrap(), "DIR");
    assert_eq!(says, include_str!("install/chosen.txt"));
    assert_eq!(node.files(&node.conf()), ["10-pods.conflist"]);

    let mut near = race.clone();
    near.header.experiment.placement = record::Placement::SameNode;
    let installed = from(&near, "near.jsonl");
    check(&installed, 0, "note: the race was between pods of one node");
    assert!(!stderr(&installed).contains("routes to each other's pods"), "{}", stderr(&installed));

    let mut cut = eventful();
    cut.end = None;
    check(
        &from(&cut, "cut.jsonl"),
        2,
        "could not choose by a race that was cut off: its record has no end\nhint: race again",
    );
    let mut broken = race.clone();
    broken.rounds[2].broken = vec![record::Broken { entrant: 5, why: "no packet took it".to_owned() }];
    check(
        &from(&broken, "broken.jsonl"),
        2,
        "is no race to choose by: bridge+vxlan broke in round 3: no packet took it",
    );
    let docker = Plan::of(9, vec![Truth::of("docker", 1.2)]).race();
    check(
        &from(&docker, "docker.jsonl"),
        2,
        "could not ship any candidate of this race: docker: the plugin has no attach docker",
    );
    let loads = vec![Some(20_000.0), Some(40_000.0)];
    let mut past = Plan { loads, samples: 1_000, ..Plan::of(11, vec![Truth::of("ptp+direct", 1.1)]) }.race();
    let trials = past.rounds.iter_mut().flat_map(|round| &mut round.trials);
    trials.filter(|trial| (trial.entrant, trial.load) == (2, 1)).for_each(flood);
    let chosen = from(&past, "past.jsonl");
    check(
        &chosen,
        0,
        "(40.0k/s) is past the capacity of ptp+direct: the choice is by 100 B at 30 % (20.0k/s)",
    );
    assert!(
        stdout(&chosen).contains("At 100 B at 30 % (20.0k/s), each against host:"),
        "{}",
        stdout(&chosen)
    );

    let conflist = node.conf().join("10-pods.conflist");
    let no_race = ["--from", conflist.to_str().unwrap(), "--name", "pods", "--subnet", "10.244.1.0/24"];
    check(&node.install(&no_race), 2, "10-pods.conflist: ");
}
