//! CNI plugins as data paths: as a topology, in a race, when they fail, and when they are killed.

mod failures;
mod ground;
mod reboot;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sandbox::{HOSTGAP, PLUGIN, Sandbox, check, check_race, json, sandbox, stdout, text, until};

/// The scenarios' configurations whose links every kernel has that runs this whole suite. The configuration
/// with ipvlan is tested in `lab`, whose tests also run on a kernel with ipvlan.
fn scenarios() -> [(&'static str, PathBuf); 3] {
    ["ptp", "bridge", "macvlan"].map(|name| (name, scenario(name)))
}

pub(crate) fn scenario(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("scenarios/cni").join(name).with_extension("conflist")
}

/// The contents of a directory of the machine, or `None` if it does not exist.
fn listed(dir: &str) -> Option<Vec<PathBuf>> {
    Some(std::fs::read_dir(dir).ok()?.map(|entry| entry.unwrap().path()).collect())
}

/// A configuration with a single plugin, a script in the test's directory.
fn scripted(sandbox: &Sandbox, script: &str) -> [String; 4] {
    let (plugin, file) = (sandbox.out().join("scripted"), sandbox.out().join("scripted.conf"));
    std::fs::write(&plugin, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(&file, r#"{"cniVersion":"1.0.0","name":"scripted","type":"scripted"}"#).unwrap();
    let [file, dirs] = [file, sandbox.out().to_owned()].map(|path| path.display().to_string());
    ["--cni".to_owned(), file, "--cni-bin".to_owned(), dirs]
}

fn up(sandbox: &Sandbox, options: &[String]) -> std::process::Output {
    sandbox.command(HOSTGAP).args(["lab", "up", "--steering", "sender"]).args(options).output().unwrap()
}

#[test]
fn plugins_stand_answer_and_go() {
    let sandbox = sandbox();
    let before = (listed("/var/lib/cni"), listed("/var/log/cni"));
    for (name, file) in scenarios() {
        let up = up(&sandbox, &["--json".to_owned(), "--cni".to_owned(), file.display().to_string()]);
        check(&up, 0, "");
        let up = json(&up);
        assert_eq!(
            (&up["path"], &up["urls"][0]),
            (&format!("cni:{name}").into(), &"http://10.244.2.2:80/100".into())
        );
        assert_eq!(stdout(&sandbox.hostgap(&["clean"])), "nothing to clean\n");
        let client = up["client_netns"].as_str().unwrap();
        let url = up["urls"][0].as_str().unwrap();
        let body =
            sandbox.command("ip").args(["netns", "exec", client, "curl", "-sf", url]).output().unwrap();
        assert_eq!(body.stdout.len(), 100, "{name}");
        assert!(stdout(&sandbox.hostgap(&["lab", "list"])).contains(&format!("cni:{name} is up")));
        check(&sandbox.hostgap(&["lab", "down", &format!("cni:{name}")]), 0, "");
        sandbox.assert_nothing_left();
        assert_eq!((listed("/var/lib/cni"), listed("/var/log/cni")), before);
    }
}

#[test]
fn plugins_race_and_are_reported() {
    let sandbox = sandbox();
    let scenarios = scenarios();
    let (_, file) = &scenarios[0];
    // Paths in an experiment are relative to its file.
    std::fs::copy(file, sandbox.out().join("a.conflist")).unwrap();
    let experiment = sandbox.out().join("experiment.toml");
    let text = "schema = 1\nname = \"cni\"\nrounds = 2\nbuilds = 1\nrates = [1000]\n\
                candidates = [{ cni = \"a.conflist\", required = true }, { cni = \"a.conflist\" }]\n";
    std::fs::write(&experiment, text).unwrap();
    let output = sandbox.run_race(&[experiment.to_str().unwrap(), "--json"]);
    check_race(&output, "");
    let result = json(&output);
    assert_eq!(crate::race::against_the_schema(&result), Vec::<String>::new());
    let candidates = result["candidates"].as_array().unwrap();
    let names: Vec<&str> = candidates.iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["host", "host again", "cni:ptp", "cni:ptp-2"]);
    assert_eq!(candidates[2]["stands_for"], "CNI ptp + host-local");
    assert_eq!(
        (&candidates[3]["path"], &candidates[3]["mtu"]),
        (&"cni:ptp-2".into(), &serde_json::Value::Null)
    );
    let commands = candidates[2]["commands"].as_array().unwrap();
    assert!(
        commands.last().unwrap().as_str().unwrap().contains("\"subnet\":\"10.244.2.0/24\""),
        "{commands:?}"
    );
    for candidate in candidates {
        let rate = candidate["rates"].as_array().unwrap().iter().find(|rate| rate["requested_rps"] == 1000.0);
        let rate = rate.unwrap();
        // Requests that were due near a stall of the machine count only here.
        let all =
            if rate["stalls"].is_null() { &rate["response_ns"] } else { &rate["stalls"]["response_ns"] };
        assert_eq!(all["count"], 100 * rate["trials"].as_u64().unwrap(), "{rate}");
    }
    let page = std::fs::read_to_string(sandbox.record().with_file_name("report.html")).unwrap();
    assert!(page.contains("CNI ptp + host-local") && page.contains("cni = "));
    sandbox.assert_nothing_left();
}

#[test]
fn a_configuration_on_the_command_line_races_beside_paths() {
    let sandbox = sandbox();
    let [(_, file), ..] = scenarios();
    let file = file.display().to_string();
    let output = sandbox.run_race(&[
        "--cni",
        &file,
        "--paths",
        "ptp+direct",
        "--rounds",
        "1",
        "--rate",
        "1k",
        "--ipv6",
        "--json",
    ]);
    check_race(&output, "");
    let names = json(&output)["candidates"].as_array().unwrap().clone();
    let names: Vec<&str> = names.iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["host", "host again", "ptp+direct", "cni:ptp"]);
    sandbox.assert_nothing_left();
}

#[test]
fn what_cannot_run_says_why_and_touches_nothing() {
    let sandbox = sandbox();
    let object =
        r#"{"cniVersion":"1.0.0","code":11,"msg":"out of addresses","details":"10.0.0.0/30 is full"}"#;
    let script = scripted(&sandbox, &format!("echo '{object}'; exit 1"));
    let says = "could not do ADD of scripted for the client's pod in cni:scripted: out of addresses: 10.0.0.0/30 is full \
                (code 11)";
    check(&up(&sandbox, &script), 1, says);
    sandbox.assert_nothing_left();
    let missing = [&script[..3], &["/nonexistent:/usr/share".to_owned()]].concat();
    let text = check(
        &up(&sandbox, &missing),
        4,
        "\"scripted\" is in none of the directories /nonexistent:/usr/share",
    );
    assert!(text.contains("hint: install it (Debian's package containernetworking-plugins"), "{text}");
    std::fs::write(sandbox.out().join("scripted.conf"), "{").unwrap();
    check(&up(&sandbox, &script), 2, "scripted.conf: it is not JSON: EOF");
    let both = [&script[..], &["docker".to_owned()]].concat();
    check(&up(&sandbox, &both), 2, "cannot be used with");
    check(&up(&sandbox, &[]), 2, "<PATH>");
    sandbox.assert_nothing_left();
}

/// A configuration of our own plugin with more keys behind it. The tests run it from where cargo built it.
pub(crate) fn own(sandbox: &Sandbox, attach: &str, more: &str) -> [String; 4] {
    // On one wire, pods of both nodes are neighbours in one subnet.
    let ranges = match attach {
        "macvlan" => {
            r#"[[{"subnet":"10.244.0.0/16","rangeStart":"10.244.${NODE}.2","rangeEnd":"10.244.${NODE}.9"}]]"#
        }
        _ => r#"[[{"subnet":"${POD_CIDR}"}],[{"subnet":"${POD_CIDR6}"}]]"#,
    };
    let conf = format!(
        r#"{{"cniVersion":"1.1.0","name":"own","type":"hostgap","attach":"{attach}","wire":"${{WIRE}}",
            "prefixes":["10.244.0.0/16","fd00:244::/48"],"ipam":{{"type":"hostgap","ranges":{ranges}}}{more}}}"#
    );
    let file = sandbox.out().join(format!("{attach}.conf"));
    std::fs::write(&file, conf).unwrap();
    let bin = sandbox.out().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let _ = std::os::unix::fs::symlink(PLUGIN, bin.join("hostgap"));
    ["--cni".to_owned(), file.display().to_string(), "--cni-bin".to_owned(), bin.display().to_string()]
}

/// How many IPv4 packets the client's node has routed by itself.
fn routed(sandbox: &Sandbox, client: &str) -> u64 {
    let node = client.replace("-client", "-n1");
    let snmp = text(sandbox.command("ip").args(["netns", "exec", &node, "cat", "/proc/net/snmp"]));
    let [names, values] = snmp.lines().collect::<Vec<_>>()[..2] else { panic!("{snmp}") };
    let at = names.split(' ').position(|name| name == "ForwDatagrams").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

#[test]
fn our_own_plugin_stands_answers_races_and_goes() {
    let sandbox = sandbox();
    let before = (listed("/var/lib/cni"), listed("/var/log/cni"));
    for attach in ["bridge", "ptp", "ebpf", "macvlan"] {
        let options = own(&sandbox, attach, "");
        let up = up(&sandbox, &[vec!["--json".to_owned()], options.to_vec()].concat());
        check(&up, 0, "");
        let up = json(&up);
        let (client, url) = (up["client_netns"].as_str().unwrap(), up["urls"][0].as_str().unwrap());
        let body =
            sandbox.command("ip").args(["netns", "exec", client, "curl", "-sf", url]).output().unwrap();
        assert_eq!(body.stdout.len(), 100, "{attach}");
        // Pinned programs forward after the call that attached them; the kernel routes a packet whose next hop they
        // do not know yet.
        match attach {
            "ptp" | "bridge" => assert!(routed(&sandbox, client) >= 5, "{attach}"),
            _ => assert!(routed(&sandbox, client) <= 2, "{attach}: {}", routed(&sandbox, client)),
        }
        check(&sandbox.hostgap(&["lab", "down", "cni:own"]), 0, "");
        sandbox.assert_nothing_left();
    }
    let options = own(&sandbox, "ptp", "");
    let race: Vec<&str> =
        options.iter().map(String::as_str).chain(["--rounds", "1", "--rate", "1k"]).collect();
    let output = sandbox.run_race(&race);
    check_race(&output, "round 1/1 done");
    assert!(stdout(&output).contains("cni:own "), "{}", stdout(&output));
    sandbox.assert_nothing_left();
    assert_eq!((listed("/var/lib/cni"), listed("/var/log/cni")), before);
}

/// The namespaces of a node and its container.
const NODE: &str = "hg-node";
const POD: &str = "hg-pod";

/// A configuration for [`call`], with more keys behind it.
fn plugin_conf(attach: &str, more: &str) -> String {
    format!(
        r#"{{"cniVersion":"1.1.0","name":"own","type":"hostgap","attach":"{attach}","wire":"wire0",
        "ipam":{{"type":"hostgap","ranges":[[{{"subnet":"10.9.0.0/28"}}]]}},"prevResult":{{}}{more}}}"#
    )
}

/// A runtime's call of the program as a plugin, in a node's namespace.
fn call(sandbox: &Sandbox, verb: &str, conf: &str) -> std::process::Child {
    call_for(sandbox, verb, "c1", conf)
}

/// The same for another container.
fn call_for(sandbox: &Sandbox, verb: &str, container: &str, conf: &str) -> std::process::Child {
    let netns = format!("CNI_NETNS=/run/netns/{POD}");
    let [verb, container] = [format!("CNI_COMMAND={verb}"), format!("CNI_CONTAINERID={container}")];
    let set = [&verb, &container, "CNI_IFNAME=eth0", &netns];
    let mut command = sandbox.command("ip");
    command.args(["netns", "exec", NODE, "env"]).args(set).arg(PLUGIN);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may have been killed already.
    let _ = child.stdin.take().unwrap().write_all(conf.as_bytes());
    child
}

/// Wherever an ADD dies, the next one works, and DEL leaves nothing. The sandbox has a `/var/lib` of its own for
/// leases, and a bpffs: one that is mounted under `ip netns exec` goes with the call.
#[track_caller]
fn check_killed(conf: &str) {
    let sandbox = sandbox();
    let made = format!(
        "ip netns add {NODE}; ip netns add {POD}; ip -n {NODE} link add wire0 type veth peer name wire1
         ip -n {NODE} addr add 192.0.2.1/24 dev wire0; ip -n {NODE} link set wire0 up
         mount -t tmpfs none /var/lib; mkdir /run/hostgap-bpf; mount -t bpf none /run/hostgap-bpf"
    );
    text(sandbox.command("sh").args(["-ec", &made]));
    let succeed = |verb: &str| {
        let output = call(&sandbox, verb, conf).wait_with_output().unwrap();
        assert!(output.status.success(), "{verb}: {}", stdout(&output));
    };
    // The network stands before and stays.
    succeed("ADD");
    succeed("DEL");
    let list = format!("for at in {NODE} {POD}; do ip -n $at -br link; tc -n $at qdisc; done");
    let links = || text(sandbox.command("sh").args(["-ec", &list])).replace(char::is_whitespace, "");
    let before = links();
    for after_us in (0..40).map(|step| step * 700) {
        let mut add = call(&sandbox, "ADD", conf);
        std::thread::sleep(Duration::from_micros(after_us));
        add.kill().unwrap();
        add.wait().unwrap();
        // It may have come to its end before.
        if after_us % 1400 == 0 {
            succeed("DEL");
        }
        let next = call(&sandbox, "ADD", conf).wait_with_output().unwrap();
        let printed = stdout(&next);
        assert!(
            next.status.success() || printed.contains("is attached to own already"),
            "{after_us}: {printed}"
        );
        succeed("CHECK");
        succeed("DEL");
        assert_eq!(links(), before, "killed after {after_us} µs");
    }
    let leases = text(sandbox.command("sh").args(["-c", "ls /var/lib/cni/networks/own"]));
    assert!(!leases.contains("10.9.0"), "{leases}");
    for name in [NODE, POD] {
        text(sandbox.command("ip").args(["netns", "del", name]));
    }
}

#[test]
fn an_add_that_is_killed_is_taken_back_by_the_next() {
    check_killed(&plugin_conf("bridge", ""));
}

/// What a container of such a network receives waits at a link of its own.
#[test]
fn a_limited_add_that_is_killed_is_taken_back_by_the_next() {
    if testkit::has_redirects() {
        let limit = r#""bandwidth":{"ingressRate":40000000,"ingressBurst":160000}"#;
        check_killed(&plugin_conf("macvlan", &format!(r#","runtimeConfig":{{{limit}}}"#)));
    }
}

#[test]
fn after_sigkill_in_the_middle_of_a_plugin_nothing_is_left() {
    let sandbox = sandbox();
    let before = listed("/var/lib/cni");
    // The plugin has written state, changed the node, and started a process that does not end.
    let sleep = format!("sleep {}", 100_000 + std::process::id());
    let script = format!(
        "mkdir -p /var/lib/cni && echo x >/var/lib/cni/lease && touch /run/xtables.lock\n\
         ip link add hgt0 type veth peer name hgt1\nsetsid {sleep} & {sleep}"
    );
    let options = scripted(&sandbox, &script);
    let mut hostgap =
        sandbox.command(HOSTGAP).args(["lab", "up", "--steering", "sender"]).args(options).spawn().unwrap();
    let plugin = || running(&sleep);
    until("the plugin is at work", || plugin() == 2);
    assert_eq!(sandbox.namespaces().len(), 4);
    hostgap.kill().unwrap();
    hostgap.wait().unwrap();
    until("the kernel has ended the plugin and what it started", || plugin() == 0);
    check(&sandbox.hostgap(&["clean"]), 0, "");
    sandbox.assert_nothing_left();
    assert_eq!(listed("/var/lib/cni"), before);
}

/// How many processes have this command line. Plugins see their own files, so they are not among the sandbox's
/// processes.
fn running(line: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|found| found.trim_end_matches('\0').replace('\0', " ") == line).count()
}

#[test]
fn killed_races_of_plugins_are_cleaned() {
    let sandbox = sandbox();
    let [(_, file), ..] = scenarios();
    for after_ms in [300, 700, 1500] {
        let mut race =
            sandbox.start_race(&["--cni", file.to_str().unwrap(), "--rounds", "1000", "--rate", "1k"]);
        std::thread::sleep(Duration::from_millis(after_ms));
        race.kill().unwrap();
        race.wait().unwrap();
        check(&sandbox.hostgap(&["clean"]), 0, "");
        sandbox.assert_nothing_left();
    }
}

#[test]
fn what_need_not_race_is_shown_with_the_reason() {
    let sandbox = sandbox();
    let [_, file, option, dirs] = scripted(&sandbox, "exit 1");
    let experiment = sandbox.out().join("experiment.toml");
    let text = format!(
        "schema = 1\nname = \"x\"\nrounds = 1\nbuilds = 1\nrates = [1000]\ncandidates = [{{ cni = {file:?} }}]\n"
    );
    std::fs::write(&experiment, text).unwrap();
    let experiment = experiment.to_str().unwrap();
    let shown = sandbox.hostgap(&["race", "--show-commands", experiment, &option, &dirs]);
    check(&shown, 0, "");
    assert!(
        stdout(&shown).contains("ip netns exec hg-cni-scripted-n1 env CNI_COMMAND=ADD"),
        "{}",
        stdout(&shown)
    );
    let reason = "\"scripted\" is in none of the directories /nonexistent";
    let shown = sandbox.hostgap(&["race", "--show-commands", experiment, &option, "/nonexistent"]);
    check(&shown, 0, "");
    assert!(
        stdout(&shown)
            .contains(&format!("# cni:scripted: cannot be shown: could not find a CNI plugin: {reason}"))
    );
    let output = sandbox.run_race(&[experiment, &option, "/nonexistent", "--json"]);
    check_race(&output, reason);
    let absent = json(&output)["candidates"][2].clone();
    assert_eq!(
        (&absent["runnable"], &absent["commands"]),
        (&false.into(), &serde_json::json!([])),
        "{absent}"
    );
    sandbox.assert_nothing_left();
}
