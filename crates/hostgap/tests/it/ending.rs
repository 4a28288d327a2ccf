//! However a race ends, nothing of it is left, and finished rounds are kept.

use std::os::unix::process::CommandExt;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::turn::{HOSTGAP, Turn, check, check_race, kill, stderr, stdout, text, turn, until};

const LONG: &[&str] = &["--paths", "docker,bridge+vxlan", "--rounds", "1000", "--rate", "1k"];

fn started() -> (Turn, Child) {
    let turn = turn();
    let race = turn.start_race(LONG);
    turn.until_a_round_is_done();
    (turn, race)
}

#[test]
fn after_a_signal_finished_rounds_are_kept() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (turn, race) = started();
        kill(race.id(), signal);
        let output = race.wait_with_output().unwrap();
        check(&output, 130, "kept");
        assert!(stdout(&output).contains("bridge+vxlan"), "the table is shown: {}", stdout(&output));
        check(&turn.hostgap(&["report", turn.record().to_str().unwrap()]), 0, "");
        turn.assert_nothing_left();
    }
}

#[test]
fn a_ctrl_c_reaches_the_group_and_is_still_an_interrupt() {
    let turn = turn();
    let mut command = turn.command(HOSTGAP);
    command.arg("race").args(LONG).arg("--out").arg(turn.out()).process_group(0);
    let race = command.spawn().unwrap();
    turn.until_a_round_is_done();
    kill_process_group(Pid::from_child(&race), Signal::INT).unwrap();
    check(&race.wait_with_output().unwrap(), 130, "interrupted: the");
    turn.assert_nothing_left();
}

#[test]
fn an_interrupt_before_the_first_round_ends_it_soon() {
    let turn = turn();
    for servers in [1, 2, 3] {
        let race = turn.start_race(LONG);
        until("servers run", || turn.servers().len() >= servers);
        kill(race.id(), Signal::INT);
        let since = Instant::now();
        let output = race.wait_with_output().unwrap();
        check(&output, 130, "interrupted: no round was finished");
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
        turn.assert_nothing_left();
    }
}

#[test]
fn after_sigkill_clean_removes_everything() {
    let turn = turn();
    // Spread over building, capacity search and rounds.
    for after_ms in [5, 40, 90, 150, 250, 400, 700, 1200] {
        killed(&turn, Duration::from_millis(after_ms));
    }
    assert_eq!(stdout(&turn.hostgap(&["clean"])), "nothing to clean\n");
}

/// Kills a race after a while, cleans, and checks that nothing is left.
#[track_caller]
pub(crate) fn killed(turn: &Turn, after: Duration) {
    let mut race = turn.start_race(LONG);
    std::thread::sleep(after);
    race.kill().unwrap();
    race.wait().unwrap();
    let output = turn.hostgap(&["clean"]);
    assert!(output.status.success(), "after {after:?}: {}", stderr(&output));
    turn.assert_nothing_left();
}

/// After its only round it watches for the causes of late answers, for at least 16 s.
const WATCHED: &[&str] = &["--paths", "docker", "--rounds", "1", "--rate", "1k", "--why-late"];

#[test]
fn late_answers_can_be_given_up() {
    let turn = turn();
    let race = turn.start_race(WATCHED);
    turn.until_a_round_is_done();
    kill(race.id(), Signal::INT);
    check(&race.wait_with_output().unwrap(), 130, "the one finished round is kept");
    turn.assert_nothing_left();
}

#[test]
fn after_sigkill_among_late_answers_clean_removes_everything() {
    // A visit is 0.4 s with programs in the kernel and 0.4 s without them.
    for after_ms in [0, 200, 600, 1000] {
        let turn = turn();
        let mut race = turn.start_race(WATCHED);
        turn.until_a_round_is_done();
        std::thread::sleep(Duration::from_millis(after_ms));
        race.kill().unwrap();
        race.wait().unwrap();
        let output = turn.hostgap(&["clean"]);
        assert!(output.status.success(), "after {after_ms} ms: {}", stderr(&output));
        let record = std::fs::read_to_string(turn.record()).unwrap();
        assert!(!record.contains("{\"late\":{"), "killed before they were written down: {record}");
        check(&turn.hostgap(&["report", turn.record().to_str().unwrap()]), 0, "");
        turn.assert_nothing_left();
    }
}

#[test]
fn after_sigkill_no_server_lives_on_and_the_next_start_cleans() {
    let turn = turn();
    let mut race = turn.start_race(LONG);
    until("servers run", || turn.servers().len() >= 3);
    race.kill().unwrap();
    race.wait().unwrap();
    until("the kernel has ended the servers", || turn.servers().is_empty());
    assert!(!turn.namespaces().is_empty());
    let output = turn.run_race(&["--paths", "macvlan", "--rounds", "1", "--rate", "1k"]);
    check_race(&output, "removed what the dead race");
    turn.assert_nothing_left();
}

#[test]
fn cleaning_touches_neither_the_living_nor_others() {
    let (turn, race) = started();
    text(turn.command("ip").args(["netns", "add", "hg-beef-not-ours"]));
    let before = turn.namespaces();
    assert_eq!(stdout(&turn.hostgap(&["clean"])), "nothing to clean\n");
    let after = turn.namespaces();
    // A race's namespaces come and go between builds, but always all of them at once.
    assert!(after.len() == before.len() || after.len() == 1, "{before:?} {after:?}");
    kill(race.id(), Signal::INT);
    check(&race.wait_with_output().unwrap(), 130, "kept");
    assert_eq!(turn.namespaces(), ["hg-beef-not-ours"]);
    text(turn.command("ip").args(["netns", "del", "hg-beef-not-ours"]));
    turn.assert_nothing_left();
}

#[test]
fn notes_of_what_was_shared_go_when_namespace_and_journal_are_gone() {
    let turn = turn();
    let (world, root) = (testkit::World::new(), tempfile::tempdir().unwrap());
    world.add("home");
    let unit = plan::Book::at(root.path()).begin().unwrap();
    let key = linux::sysctl::Key::new("net/ipv4/ip_forward").unwrap();
    let forwards = plan::SetSysctl { key, value: "1".to_owned() };
    let mut shared = plan::Plan::new();
    let place = plan::Place::Netns(world.name("home"));
    shared.push(&place, plan::Step::Share(Box::new(forwards.into())));
    let mut kernel = plan::Kernel::new().unwrap().with_claims(turn.in_run("hostgap/claims"));
    plan::apply(&shared, &mut unit.journal("a").unwrap(), &mut kernel).unwrap();
    unit.discard().unwrap();
    let from_inside = world.open("home").run(|| turn.hostgap(&["clean"])).unwrap();
    assert_eq!(stdout(&from_inside), "nothing to clean\n", "a thread is in the namespace");
    drop((kernel, world));
    let cleaned = stdout(&turn.hostgap(&["clean"]));
    assert!(
        cleaned.starts_with("/run/hostgap/claims/") && cleaned.contains("its namespace is gone"),
        "{cleaned}"
    );
    let json: serde_json::Value = serde_json::from_str(&stdout(&turn.hostgap(&["clean", "--json"]))).unwrap();
    assert_eq!(json["stale_claims"], serde_json::json!([]));
    turn.assert_nothing_left();
}

#[test]
fn a_server_that_dies_ends_the_race_with_its_name() {
    let (turn, race) = started();
    let docker = turn.namespace("docker-server");
    let pids = text(turn.command("ip").args(["netns", "pids", &docker]));
    let pids = pids.split_whitespace().map(|pid| pid.parse().unwrap());
    // The race itself enters the namespace for moments, to look whether the path is as it was built.
    pids.filter(|pid| *pid != race.id()).for_each(|pid| kill(pid, Signal::KILL));
    ended(&turn, race, "the server of docker ended by itself (signal: 9 (SIGKILL))");
}

#[test]
fn a_race_goes_on_without_a_path_that_breaks() {
    let turn = turn();
    // One build: what another one breaks stays broken for the rest of the race.
    let experiment = turn.out().join("experiment.toml");
    let text_of_it = "schema = 1\nname = \"x\"\nrounds = 12\nbuilds = 1\nrates = [1000]\n\
        candidates = [{ path = \"docker\" }, { path = \"bridge+vxlan\" }]\n";
    std::fs::write(&experiment, text_of_it).unwrap();
    let race = turn.start_race(&[experiment.to_str().unwrap()]);
    turn.until_a_round_is_done();
    let node = turn.namespace("bridge-vxlan-n2");
    text(turn.command("ip").args(["-n", &node, "link", "del", "hgvx1"]));
    let output = race.wait_with_output().unwrap();
    let why = "the path changed: namespace hg-bridge-vxlan-n2: link hgvx1 is gone";
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("leaves the race: ") && said.contains(why), "{said}");
    assert!(said.contains("not valid: bridge+vxlan broke in round "), "{said}");
    let table = stdout(&output);
    assert!(table.contains("12 of 12 rounds") && table.contains(why), "{table}");
    check(&turn.hostgap(&["report", turn.record().to_str().unwrap()]), 0, "");
    turn.assert_nothing_left();
}

#[test]
fn the_last_path_that_breaks_ends_the_race_with_its_name() {
    let turn = turn();
    let race = turn.start_race(&["--paths", "docker", "--rounds", "1000", "--rate", "1k"]);
    turn.until_a_round_is_done();
    let node = turn.namespace("docker-n1");
    text(turn.command("ip").args(["-n", &node, "link", "set", "eth0", "down"]));
    ended(&turn, race, "data path docker broke: the path changed: namespace hg-docker-n1: link eth0 is down");
}

#[test]
fn a_reference_that_breaks_ends_the_race_with_its_name() {
    let (turn, race) = started();
    let node = turn.namespace("host-n2");
    text(turn.command("ip").args(["-n", &node, "address", "flush", "dev", "eth0"]));
    ended(
        &turn,
        race,
        "data path host broke: the path changed: namespace hg-host-n2: address 192.168.100.2/24",
    );
}

#[track_caller]
fn ended(turn: &Turn, race: Child, says: &str) -> Output {
    let output = race.wait_with_output().unwrap();
    let text = check(&output, 1, says);
    assert!(text.contains("finished round"), "{text}");
    check(&turn.hostgap(&["report", turn.record().to_str().unwrap()]), 0, "");
    turn.assert_nothing_left();
    output
}

#[test]
fn a_full_disk_is_reported_and_cleaned_up_after() {
    let turn = turn();
    // The disk has room for the head of a record, but not for many rounds.
    let script = format!(
        "mount -t tmpfs -o size=24k none {out} && exec {HOSTGAP} race --out {out} --paths macvlan --rounds 200 --rate 1k",
        out = turn.out().display(),
    );
    let output = turn.command("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    check(&output, 1, "append to record");
    assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
    turn.assert_nothing_left();
}

#[test]
fn a_reader_that_goes_away_leaves_nothing() {
    let turn = turn();
    // The pipe for the race's messages is closed from the first line on.
    let script =
        format!("{HOSTGAP} race --out \"$0\" --paths macvlan --rounds 3 --rate 1k 2>&1 | true; echo done");
    let output = turn.command("sh").arg("-c").arg(script).arg(turn.out()).output().unwrap();
    assert_eq!(stdout(&output), "done\n");
    until("the race has ended", || turn.processes().is_empty());
    assert!(turn.record().with_file_name("report.html").exists(), "it raced to the end");
    turn.assert_nothing_left();
}
