//! However a race ends, nothing of it is left, and finished rounds are kept.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::sandbox::{HOSTGAP, Sandbox, check, check_race, kill, sandbox, stderr, stdout, text, until};

const LONG: &[&str] = &["--paths", "docker,bridge+vxlan", "--rounds", "1000", "--rate", "1k"];

fn started() -> (Sandbox, Child) {
    let sandbox = sandbox();
    let race = sandbox.start_race(LONG);
    sandbox.until_a_round_is_done();
    (sandbox, race)
}

#[test]
fn after_a_signal_finished_rounds_are_kept() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (sandbox, race) = started();
        kill(race.id(), signal);
        let output = race.wait_with_output().unwrap();
        check(&output, 130, "kept");
        assert!(stdout(&output).contains("bridge+vxlan"), "the table is shown: {}", stdout(&output));
        check(&sandbox.hostgap(&["report", sandbox.record().to_str().unwrap()]), 0, "");
        sandbox.assert_nothing_left();
    }
}

#[test]
fn what_was_ignored_at_the_start_does_not_end_a_race() {
    let sandbox = sandbox();
    // As nohup does, and a shell without job control with what it starts in the background.
    let script = format!("trap '' HUP INT; exec {HOSTGAP} race --out \"$0\" \"$@\"");
    let mut command = sandbox.command("sh");
    command.arg("-c").arg(script).arg(sandbox.out()).args(LONG);
    let race = command.spawn().unwrap();
    sandbox.until_a_round_is_done();
    for signal in [Signal::HUP, Signal::INT] {
        kill(race.id(), signal);
    }
    let rounds = || std::fs::read_to_string(sandbox.record()).unwrap().matches("{\"round\":{").count();
    let before = rounds();
    // One that heeds them ends after the running trial.
    until("it races on", || rounds() > before + 1);
    kill(race.id(), Signal::TERM);
    check(&race.wait_with_output().unwrap(), 130, "kept");
    sandbox.assert_nothing_left();
}

#[test]
fn a_ctrl_c_reaches_the_group_and_is_still_an_interrupt() {
    let sandbox = sandbox();
    let mut command = sandbox.command(HOSTGAP);
    command.arg("race").args(LONG).arg("--out").arg(sandbox.out()).process_group(0);
    let race = command.spawn().unwrap();
    sandbox.until_a_round_is_done();
    kill_process_group(Pid::from_child(&race), Signal::INT).unwrap();
    check(&race.wait_with_output().unwrap(), 130, "interrupted: the");
    sandbox.assert_nothing_left();
}

/// Its group has ssh in it, which copies the program.
#[test]
fn a_ctrl_c_while_a_machine_is_reached_is_an_interrupt() {
    let sandbox = sandbox();
    let ssh = sandbox.out().join("ssh");
    std::fs::write(&ssh, "#!/bin/sh\nexec sleep 86397\n").unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    for client in [&[][..], &["--client", "ssh://a"]] {
        let mut command = sandbox.command(HOSTGAP);
        command.args(["race", "--server", "ssh://b", "--ssh"]).arg(&ssh).args(client);
        let race = command.arg("--out").arg(sandbox.out()).process_group(0).spawn().unwrap();
        until("ssh runs", || sandbox.processes().iter().any(|line| line.starts_with("sleep 86397")));
        kill_process_group(Pid::from_child(&race), Signal::INT).unwrap();
        check(&race.wait_with_output().unwrap(), 130, "interrupted: no round was finished");
        sandbox.assert_nothing_left();
    }
}

#[test]
fn an_interrupt_before_the_first_round_ends_it_soon() {
    let sandbox = sandbox();
    for servers in [1, 2, 3] {
        let race = sandbox.start_race(LONG);
        until("servers run", || sandbox.servers().len() >= servers);
        kill(race.id(), Signal::INT);
        let since = Instant::now();
        let output = race.wait_with_output().unwrap();
        check(&output, 130, "interrupted: no round was finished");
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
        sandbox.assert_nothing_left();
    }
}

#[test]
fn after_sigkill_clean_removes_everything() {
    let sandbox = sandbox();
    // Spread over building, capacity search and rounds.
    for after_ms in [5, 40, 90, 150, 250, 400, 700, 1200] {
        killed(&sandbox, Duration::from_millis(after_ms));
    }
    assert_eq!(stdout(&sandbox.hostgap(&["clean"])), "nothing to clean\n");
}

/// Kills a race after a while, cleans, and checks that nothing is left.
#[track_caller]
pub(crate) fn killed(sandbox: &Sandbox, after: Duration) {
    let mut race = sandbox.start_race(LONG);
    std::thread::sleep(after);
    race.kill().unwrap();
    race.wait().unwrap();
    let output = sandbox.hostgap(&["clean"]);
    assert!(output.status.success(), "after {after:?}: {}", stderr(&output));
    sandbox.assert_nothing_left();
}

/// After its only round it watches for the causes of late answers, for at least 16 s.
const WATCHED: &[&str] = &["--paths", "docker", "--rounds", "1", "--rate", "1k", "--why-late"];

#[test]
fn late_answers_can_be_given_up() {
    let sandbox = sandbox();
    let race = sandbox.start_race(WATCHED);
    sandbox.until_a_round_is_done();
    kill(race.id(), Signal::INT);
    check(&race.wait_with_output().unwrap(), 130, "the one finished round is kept");
    sandbox.assert_nothing_left();
}

#[test]
fn after_sigkill_among_late_answers_clean_removes_everything() {
    // A visit is 0.4 s with programs in the kernel and 0.4 s without them.
    for after_ms in [0, 200, 600, 1000] {
        let sandbox = sandbox();
        let mut race = sandbox.start_race(WATCHED);
        sandbox.until_a_round_is_done();
        std::thread::sleep(Duration::from_millis(after_ms));
        race.kill().unwrap();
        race.wait().unwrap();
        let output = sandbox.hostgap(&["clean"]);
        assert!(output.status.success(), "after {after_ms} ms: {}", stderr(&output));
        let record = std::fs::read_to_string(sandbox.record()).unwrap();
        assert!(!record.contains("{\"late\":{"), "killed before they were written down: {record}");
        check(&sandbox.hostgap(&["report", sandbox.record().to_str().unwrap()]), 0, "");
        sandbox.assert_nothing_left();
    }
}

#[test]
fn after_sigkill_no_server_lives_on_and_the_next_start_cleans() {
    let sandbox = sandbox();
    let mut race = sandbox.start_race(LONG);
    until("servers run", || sandbox.servers().len() >= 3);
    race.kill().unwrap();
    race.wait().unwrap();
    until("the kernel has ended the servers", || sandbox.servers().is_empty());
    assert!(!sandbox.namespaces().is_empty());
    let output = sandbox.run_race(&["--paths", "macvlan", "--rounds", "1", "--rate", "1k"]);
    check_race(&output, "removed what the dead race");
    sandbox.assert_nothing_left();
}

#[test]
fn what_a_dead_race_left_and_cannot_be_undone_is_named() {
    let sandbox = sandbox();
    let mut race = sandbox.start_race(LONG);
    until("servers run", || sandbox.servers().len() >= 3);
    race.kill().unwrap();
    race.wait().unwrap();
    let dir = sandbox.in_run("hostgap/lab").join(&sandbox.owners()[0]);
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut journals = files.filter(|path| path.extension().is_some_and(|end| end == "journal"));
    std::fs::write(journals.next().unwrap(), "not a journal\nat all\n").unwrap();
    let output = sandbox.run_race(&["--paths", "macvlan", "--rounds", "1", "--rate", "1k"]);
    check_race(&output, "could not remove all that the dead race");
    assert!(!stderr(&output).contains("removed what the dead race"), "{}", stderr(&output));
    sandbox.assert_nothing_left();
}

#[test]
fn cleaning_touches_neither_the_living_nor_others() {
    let (sandbox, race) = started();
    text(sandbox.command("ip").args(["netns", "add", "hg-beef-not-ours"]));
    let before = sandbox.namespaces();
    assert_eq!(stdout(&sandbox.hostgap(&["clean"])), "nothing to clean\n");
    let after = sandbox.namespaces();
    // A race's namespaces come and go between builds, but always all of them at once.
    assert!(after.len() == before.len() || after.len() == 1, "{before:?} {after:?}");
    kill(race.id(), Signal::INT);
    check(&race.wait_with_output().unwrap(), 130, "kept");
    assert_eq!(sandbox.namespaces(), ["hg-beef-not-ours"]);
    text(sandbox.command("ip").args(["netns", "del", "hg-beef-not-ours"]));
    sandbox.assert_nothing_left();
}

#[test]
fn notes_of_what_was_shared_go_when_namespace_and_journal_are_gone() {
    let sandbox = sandbox();
    let (world, root) = (testkit::World::new(), tempfile::tempdir().unwrap());
    world.add("home");
    let unit = plan::Book::at(root.path()).begin().unwrap();
    let key = linux::sysctl::Key::new("net/ipv4/ip_forward").unwrap();
    let forwards = plan::SetSysctl { key, value: "1".to_owned() };
    let mut shared = plan::Plan::new();
    let place = plan::Place::Netns(world.name("home"));
    shared.push(&place, plan::Step::Share(Box::new(forwards.into())));
    let mut kernel = plan::Kernel::new().unwrap().with_claims(sandbox.in_run("hostgap/claims"));
    plan::apply(&shared, &mut unit.journal("a").unwrap(), &mut kernel).unwrap();
    unit.discard().unwrap();
    let from_inside = world.open("home").run(|| sandbox.hostgap(&["clean"])).unwrap();
    assert_eq!(stdout(&from_inside), "nothing to clean\n", "a thread is in the namespace");
    drop((kernel, world));
    let cleaned = stdout(&sandbox.hostgap(&["clean"]));
    assert!(
        cleaned.starts_with("/run/hostgap/claims/") && cleaned.contains("its namespace is gone"),
        "{cleaned}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&sandbox.hostgap(&["clean", "--json"]))).unwrap();
    assert_eq!(json["stale_claims"], serde_json::json!([]));
    sandbox.assert_nothing_left();
}

#[test]
fn a_server_that_dies_ends_the_race_with_its_name() {
    let (sandbox, race) = started();
    let docker = sandbox.namespace("docker-server");
    let pids = text(sandbox.command("ip").args(["netns", "pids", &docker]));
    let pids = pids.split_whitespace().map(|pid| pid.parse().unwrap());
    // The race itself enters the namespace for moments, to look whether the path is as it was built.
    pids.filter(|pid| *pid != race.id()).for_each(|pid| kill(pid, Signal::KILL));
    ended(&sandbox, race, "the server of docker ended by itself (signal: 9 (SIGKILL))");
}

#[test]
fn a_race_goes_on_without_a_path_that_breaks() {
    let sandbox = sandbox();
    // One build: what another one breaks stays broken for the rest of the race.
    let experiment = sandbox.out().join("experiment.toml");
    let text_of_it = "schema = 1\nname = \"x\"\nrounds = 12\nbuilds = 1\nrates = [1000]\n\
        candidates = [{ path = \"docker\" }, { path = \"bridge+vxlan\" }]\n";
    std::fs::write(&experiment, text_of_it).unwrap();
    let race = sandbox.start_race(&[experiment.to_str().unwrap()]);
    sandbox.until_a_round_is_done();
    let node = sandbox.namespace("bridge-vxlan-n2");
    text(sandbox.command("ip").args(["-n", &node, "link", "del", "hgvx1"]));
    let output = race.wait_with_output().unwrap();
    let why = "the path changed: namespace hg-bridge-vxlan-n2: link hgvx1 is gone";
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("leaves the race: ") && said.contains(why), "{said}");
    assert!(said.contains("not valid: bridge+vxlan broke in round "), "{said}");
    let table = stdout(&output);
    assert!(table.contains("12 of 12 rounds") && table.contains(why), "{table}");
    check(&sandbox.hostgap(&["report", sandbox.record().to_str().unwrap()]), 0, "");
    sandbox.assert_nothing_left();
}

#[test]
fn the_last_path_that_breaks_ends_the_race_with_its_name() {
    let sandbox = sandbox();
    let race = sandbox.start_race(&["--paths", "docker", "--rounds", "1000", "--rate", "1k"]);
    sandbox.until_a_round_is_done();
    let node = sandbox.namespace("docker-n1");
    text(sandbox.command("ip").args(["-n", &node, "link", "set", "eth0", "down"]));
    ended(
        &sandbox,
        race,
        "data path docker broke: the path changed: namespace hg-docker-n1: link eth0 is down",
    );
}

#[test]
fn a_reference_that_breaks_ends_the_race_with_its_name() {
    let (sandbox, race) = started();
    let node = sandbox.namespace("host-n2");
    text(sandbox.command("ip").args(["-n", &node, "address", "flush", "dev", "eth0"]));
    ended(
        &sandbox,
        race,
        "data path host broke: the path changed: namespace hg-host-n2: address 192.168.100.2/24",
    );
}

/// A race ends with this message, and what it had is kept.
#[track_caller]
pub(crate) fn ended(sandbox: &Sandbox, race: Child, says: &str) -> Output {
    let output = race.wait_with_output().unwrap();
    let text = check(&output, 1, says);
    assert!(text.contains("finished round"), "{text}");
    check(&sandbox.hostgap(&["report", sandbox.record().to_str().unwrap()]), 0, "");
    sandbox.assert_nothing_left();
    output
}

#[test]
fn a_full_disk_is_reported_and_cleaned_up_after() {
    let sandbox = sandbox();
    // The disk has room for the head of a record, but not for many rounds.
    let script = format!(
        "mount -t tmpfs -o size=24k none {out} && exec {HOSTGAP} race --out {out} --paths macvlan --rounds 200 --rate 1k",
        out = sandbox.out().display(),
    );
    let output = sandbox.command("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    check(&output, 1, "append to record");
    assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
    sandbox.assert_nothing_left();
}

#[test]
fn a_reader_that_goes_away_leaves_nothing() {
    let sandbox = sandbox();
    // The pipe for the race's messages is closed from the first line on.
    let script =
        format!("{HOSTGAP} race --out \"$0\" --paths macvlan --rounds 3 --rate 1k 2>&1 | true; echo done");
    let output = sandbox.command("sh").arg("-c").arg(script).arg(sandbox.out()).output().unwrap();
    assert_eq!(stdout(&output), "done\n");
    until("the race has ended", || sandbox.processes().is_empty());
    assert!(sandbox.record().with_file_name("report.html").exists(), "it raced to the end");
    sandbox.assert_nothing_left();
}
