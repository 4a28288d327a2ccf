//! Started programs: where they run, and that none is left behind.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::slice;
use std::time::Duration;

use linux::cpu::{self, Scheduling};
use linux::process::{Spawn, kill_in};
use linux::{CpuSet, Netns};

use crate::world::{TestNetns, children_of, eventually, is_alive};

fn shell(script: &str) -> Spawn {
    let mut spawn = Spawn::new("sh");
    spawn.args = vec!["-c".to_owned(), script.to_owned()];
    spawn
}

#[test]
fn a_program_is_where_it_was_put() {
    let place = TestNetns::new("spawn");
    let home = Netns::current().unwrap().inode().unwrap();
    let last = cpu::allowed().unwrap().iter().last().unwrap();
    let mut spawn = shell("exec sleep 300");
    spawn.netns = Some(place.netns.try_clone().unwrap());
    spawn.cpus = Some([last].into_iter().collect());
    spawn.new_pid_namespace = true;
    let realtime = cpu::can_realtime();
    spawn.scheduling = if realtime { Scheduling::Fifo(3) } else { Scheduling::Normal };
    let mut child = spawn.start().unwrap();
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", child.pid())).unwrap();
    let link = std::fs::read_link(format!("/proc/{}/ns/net", child.pid())).unwrap();
    assert_eq!(link.to_str().unwrap(), format!("net:[{}]", place.netns.inode().unwrap()));
    let status = file("status");
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).unwrap();
    assert_eq!(allowed.parse::<CpuSet>().unwrap().to_string(), last.to_string());
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:\t")).unwrap();
    assert_eq!(numbers, format!("{}\t1", child.pid()));
    // The name ends with the last bracket, and field 3 follows it. Field 40 is the priority, field 41 the
    // policy.
    let stat = file("stat");
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    assert_eq!((fields[37], fields[38]), if realtime { ("3", "1") } else { ("0", "0") });
    assert_eq!(Netns::current().unwrap().inode().unwrap(), home);
    assert_eq!(child.kill().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn grace_is_given_and_ends() {
    let mut polite = shell("trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done");
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    polite.log = Some(log.clone());
    let mut polite = polite.start().unwrap();
    eventually("the trap is set", || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("ready")));
    assert_eq!(polite.terminate(Duration::from_secs(20)).unwrap().code(), Some(5));
    let mut stubborn = Spawn::new("sleep");
    stubborn.args = vec!["300".to_owned()];
    // Process 1 of a PID namespace ignores signals for which it has no handler.
    stubborn.new_pid_namespace = true;
    let mut stubborn = stubborn.start().unwrap();
    assert_eq!(stubborn.terminate(Duration::from_millis(50)).unwrap().signal(), Some(libc::SIGKILL));
}

/// Not a test, but the process that the next test starts and kills.
#[test]
#[ignore = "a role that another test starts"]
fn role_of_a_parent_that_is_killed() {
    if std::env::var_os("HGT_ROLE").is_none() {
        return;
    }
    let mut spawn = shell("sleep 300 & setsid sleep 300 & wait");
    spawn.new_pid_namespace = true;
    let mut child = spawn.start().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_parent_takes_the_whole_tree_with_it() {
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "process::role_of_a_parent_that_is_killed"])
        .env("HGT_ROLE", "parent")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut tree = BTreeSet::new();
    eventually("parent, shell and two that sleep", || {
        let children = children_of(parent.id());
        let grandchildren: BTreeSet<u32> = children.iter().flat_map(|child| children_of(*child)).collect();
        let whole = children.len() == 1 && grandchildren.len() == 2;
        tree = children.into_iter().chain(grandchildren).collect();
        whole
    });
    assert!(tree.iter().all(|pid| is_alive(*pid)));
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("all are gone", || !tree.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn a_child_outlives_the_thread_that_started_it() {
    let mut spawn = Spawn::new("sleep");
    spawn.args = vec!["300".to_owned()];
    let mut child = std::thread::spawn(move || spawn.start().unwrap()).join().unwrap();
    assert_eq!(child.wait_for(Duration::from_millis(100)).unwrap(), None);
    assert!(is_alive(child.pid()));
    let pid = child.pid();
    drop(child);
    assert!(!is_alive(pid));
}

#[test]
fn a_detached_child_goes_on() {
    let mut spawn = shell("exec sleep 300");
    spawn.die_with_parent = false;
    let child = spawn.start().unwrap();
    let pid = child.pid();
    child.detach();
    assert!(is_alive(pid));
    let kill = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(kill.success());
    eventually("it is gone, and waited for", || !is_alive(pid));
}

#[test]
fn whoever_lives_in_a_namespace_is_killed_and_counted_once() {
    let (place, other) = (TestNetns::new("kill"), TestNetns::new("spared"));
    let sleeper = |place: &TestNetns| {
        let mut spawn = shell("sleep 300 & exec sleep 300");
        spawn.netns = Some(place.netns.try_clone().unwrap());
        spawn.start().unwrap()
    };
    let (mut child, mut spared) = (sleeper(&place), sleeper(&other));
    eventually("both sleep", || children_of(child.pid()).len() == 1 && children_of(spared.pid()).len() == 1);
    assert_eq!(kill_in(slice::from_ref(&place.netns)).unwrap(), 2);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert_eq!(spared.try_wait().unwrap(), None);
    assert_eq!(kill_in(slice::from_ref(&place.netns)).unwrap(), 0);
    assert_eq!(kill_in(slice::from_ref(&other.netns)).unwrap(), 2);
}
