//! Bad input, and files that are broken.

use std::process::{Command, Stdio};

use super::Ground;
use crate::turn::{HOSTGAP, check, stderr, stdout, until};

#[test]
fn what_cannot_be_asked_for_says_why() {
    let Some(ground) = Ground::new() else { return };
    for (arguments, says) in [
        (&["--set", "somaxcon=1"][..], "did you mean \"somaxconn\"?"),
        (&["--set", "somaxconn=99999999999"], "somaxconn cannot be \"99999999999\": a number from"),
        (&["--set", "somaxconn"], "KNOB=VALUE is expected"),
        (&["--set", "kernel.core_pattern=|/bin/sh"], "it decides which code runs"),
        (&["--set", "tcp_tw_recycle=1"], "it was removed in Linux 4.12"),
        (&["--set", "rmem_max=1000000"], "the whole machine shares it: it is set without --netns"),
        (&["--set", "ring_rx=512"], "wire0 does not have the receive ring"),
        (&["--set", "channels=3"], "the number of queues of wire0 can be 2 at most"),
        (&["--set", "irq_affinity=0"], "wire0 has no interrupts of its own"),
        (
            &["--set", "tcp_congestion_control=nonesuch"],
            "this kernel has no nonesuch, and no module tcp_nonesuch",
        ),
        (&["--set", "congctl=nonesuch"], "this kernel has no nonesuch, and no module tcp_nonesuch"),
        (&["--set", "hystart_detect=2"], "the whole machine shares it: it is set without --netns"),
        (&["--set", "tcp_cubic.hystart_detect=4"], "hystart_detect cannot be \"4\": a number from 1 to 3"),
        (&["latncy"], "did you mean \"latency\"?"),
        (&["--set", "mtu=1400", "--dev", "wire7"], "there is no link wire7"),
        (&["nonesuch"], "there is no profile and no file \"nonesuch\""),
        (&[], "nothing is asked for"),
    ] {
        check(&ground.look("plan", arguments), 2, says);
        check(&ground.apply(arguments), 2, says);
    }
    check(&ground.apply(&["--set", "somaxconn=1", "--confirm-within", "0s"]), 2, "at once");
    assert!(!ground.state().join("journal").exists());
}

/// Rules that ask for connections would meet none.
#[test]
fn what_rules_stand_on_is_not_taken_from_them() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    check(&ground.apply(&["--set", "notrack=8080"]), 0, "none → table ip hostgap-notrack-8080\n");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
    let home = ground.world.name("home");
    let inside = |command: &str| drop(testkit::shell(&format!("ip netns exec {home} {command}")));
    for (rule, removal, says) in [
        (
            "nft 'add table ip own; add chain ip own post { type nat hook postrouting priority 100; }'",
            "nft delete table ip own",
            "by address translation or state",
        ),
        (
            "iptables-nft -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
            "nft delete table ip filter",
            "ask for connections by conntrack",
        ),
        (
            "iptables-legacy -t nat -A POSTROUTING -p tcp -m comment --comment x -j MASQUERADE",
            "iptables-legacy -t nat -F",
            "by MASQUERADE in table nat of iptables-legacy",
        ),
        (
            "ip6tables-legacy -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
            "ip6tables-legacy -F",
            "by conntrack in table filter of ip6tables-legacy",
        ),
    ] {
        inside(rule);
        check(&ground.apply(&["--set", "notrack=8080"]), 2, says);
        inside(removal);
    }
    // Rules that ask for none are in nobody's way, and neither is a table without rules.
    inside("iptables-legacy -A INPUT -p tcp -m comment --comment x --dport 80 -j ACCEPT");
    check(&ground.look("plan", &["--set", "notrack=8080"]), 0, "");
}

#[test]
fn a_profile_s_fault_is_told_with_its_place() {
    let Some(ground) = Ground::new() else { return };
    let text = "schema = 1\nabout = \"mine\"\n\n[[set]]\nknob = \"somaxcon\"\nvalue = 1\n";
    let file = ground.write("mine.toml", text);
    let says = "line 5, column 8: there is no knob \"somaxcon\", did you mean \"somaxconn\"?";
    check(&ground.look("plan", &[&file]), 2, says);
    // What is of no use here is left out with its reason; what is, is there.
    let text = text.replace("somaxcon\"", "somaxconn\"") + "[[set]]\nknob = \"ring_rx\"\nvalue = 1\n";
    let file = ground.write("mine.toml", &text);
    let told = stdout(&ground.look("plan", &[&file]));
    assert!(
        told.contains("somaxconn  4096 → 1") && told.contains("Left out: ring_rx = 1: wire0 does not"),
        "{told}"
    );
    let all = stdout(&Command::new(HOSTGAP).args(["tune", "profiles"]).output().unwrap());
    for (name, _) in tune::PROFILES {
        assert!(all.contains(name), "{all}");
    }
}

/// As in a container: the link can be set, and the kernel's parameters cannot.
#[test]
fn what_is_read_only_takes_back_what_was_set_before_it() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    let script = "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh", HOSTGAP, "tune", "apply", "--state"])
        .arg(ground.state());
    command.args([
        "--netns",
        ground.world.name("home").as_str(),
        "--set",
        "txqueuelen=77",
        "--set",
        "somaxconn=8192",
    ]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    check(&output, 1, "read-only file system");
    before.assert_same(&ground.dump(), "after a parameter that is read-only");
    assert_eq!(ground.status()["last"]["steps"], 2);
}

/// Without room for the whole journal nothing is begun.
#[test]
fn a_full_disk_changes_nothing() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    let state = ground.state();
    std::fs::create_dir_all(&state).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=32k none {0} && \"$@\"; status=$?; ls {0}; exit $status",
        state.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", HOSTGAP, "tune", "apply", "--state"]).arg(&state);
    command.args(["--netns", ground.world.name("home").as_str(), "--set", "somaxconn=8192"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    check(&output, 1, "could not make room for the journal");
    assert!(stderr(&output).contains("nothing was changed"), "{}", stderr(&output));
    assert_eq!(stdout(&output), "lock\n", "what is left in the store");
    before.assert_same(&ground.dump(), "after a full disk");
}

#[test]
fn a_damaged_journal_is_not_guessed_at() {
    let Some(ground) = Ground::new() else { return };
    check(&ground.apply(&["--set", "somaxconn=8192", "--set", "tcp_mtu_probing=1"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    let path = ground.state().join("journal");
    let text = std::fs::read_to_string(&path).unwrap();
    let damaged = text.replacen("\"value\":\"4096\"", "\"value\":\"4095\"", 1);
    assert_ne!(text, damaged);
    std::fs::write(&path, damaged).unwrap();
    let back = ground.tune("rollback", &[]);
    let said = check(&back, 1, "is damaged");
    assert!(said.contains("hint: ") && said.contains("says nothing: its checksum is"), "{said}");
    // The sound lines, for people: the other parameter and its old value.
    assert!(said.contains("tcp_mtu_probing=1") && said.contains("\"value\":\"0\""), "{said}");
    assert_eq!(ground.sysctl("net/ipv4/tcp_mtu_probing"), "1", "nothing was undone by half the truth");
    let told = stdout(&ground.tune("status", &[]));
    assert!(told.contains("line is damaged") || told.contains("is damaged:"), "{told}");
    // The sound journal still works, and so does giving up.
    std::fs::write(&path, text).unwrap();
    check(&ground.tune("rollback", &[]), 0, "");
    assert_eq!(ground.sysctl("net/ipv4/tcp_mtu_probing"), "0");
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("rollback", &["--discard"]), 0, "");
    assert_eq!((ground.sysctl("net/core/somaxconn"), ground.phase()), ("8192".to_owned(), None));
}

/// What the store says of it cannot be read: the journal alone is enough for the way back.
#[test]
fn a_damaged_store_is_named_and_the_journal_is_enough() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    // It would take what it cannot read for what nobody has confirmed.
    until("the watcher has ended", || ground.watcher().is_none());
    std::fs::write(ground.state().join("standing.json"), "{\"schema\":1,").unwrap();
    check(&ground.tune("status", &[]), 1, "standing.json is damaged");
    check(&ground.apply(&["--set", "somaxconn=1"]), 1, "standing.json is damaged");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback by the journal alone");
}

const EARLIER: &str = "11111111-2222-3333-4444-555555555555";

/// As a restart would have it: the store is of another run of the machine, and the kernel's values are its own.
fn restart(ground: &Ground) {
    let path = ground.state().join("standing.json");
    let now = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(now.trim(), EARLIER)).unwrap();
    ground.set_sysctl("net/core/somaxconn", "4096");
}

#[test]
fn the_last_run_of_the_machine_left_nothing() {
    let Some(ground) = Ground::new() else { return };
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    until("the watcher has ended", || ground.watcher().is_none());
    restart(&ground);
    let boot_id = ground.write("boot_id", &format!("{EARLIER}\n"));
    let journal = ground.state().join("journal");
    std::fs::remove_file(&journal).unwrap();
    drop(plan::Journal::create_with_boot_id(&journal, boot_id.as_ref()).unwrap());
    let told = stdout(&ground.tune("status", &[]));
    assert!(told.contains("before the machine was started anew, which has reset all of it"), "{told}");
    check(&ground.tune("keep", &[]), 2, "is not confirmed");
    let applied = ground.apply(&["--set", "somaxconn=8192"]);
    check(&applied, 0, "the machine was started anew since");
    check(&ground.tune("rollback", &[]), 0, "");
    assert_eq!(ground.sysctl("net/core/somaxconn"), "4096");
}

/// The unit of the next start must not stumble over what nobody needs any more.
#[test]
fn after_a_restart_the_journal_is_not_needed() {
    let Some(ground) = Ground::new() else { return };
    let journal = ground.state().join("journal");
    let stand = || {
        check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
        check(&ground.tune("confirm", &[]), 0, "");
        until("the watcher has ended", || ground.watcher().is_none());
        restart(&ground);
    };
    stand();
    std::fs::write(&journal, "what a younger hostgap may have written\n").unwrap();
    check(&ground.apply(&["--confirmed", "--set", "somaxconn=8192"]), 0, "started anew since");
    check(&ground.tune("rollback", &[]), 0, "");
    stand();
    std::fs::remove_file(&journal).unwrap();
    let back = ground.tune("rollback", &[]);
    check(&back, 0, "");
    assert!(stdout(&back).contains("went with a restart of the machine"), "{}", stdout(&back));
    assert!(!ground.state().join("standing.json").exists());
}

/// Of the files the one that says that something stands goes first.
#[test]
fn a_death_while_it_is_forgotten_is_nobody_s_trouble() {
    let Some(ground) = Ground::new() else { return };
    std::fs::create_dir_all(ground.state()).unwrap();
    let journal = ground.state().join("journal");
    drop(plan::Journal::create(&journal).unwrap());
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("rollback", &[]), 0, "");
    assert!(!journal.exists());
}

/// A journal that is gone, or that was cut at the end of a line, has lost steps, which only the store knows.
#[test]
fn steps_that_a_journal_has_lost_are_missed() {
    let Some(ground) = Ground::new() else { return };
    let journal = ground.state().join("journal");
    check(&ground.apply(&["--set", "somaxconn=8192", "--set", "tcp_mtu_probing=1"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    let whole = std::fs::read_to_string(&journal).unwrap();
    let header: String = whole.lines().take(1).map(|line| format!("{line}\n")).collect();
    std::fs::write(&journal, header).unwrap();
    let told = stdout(&ground.tune("status", &[]));
    assert!(told.contains("it has 0 of the 2 steps that were done"), "{told}");
    check(&ground.tune("rollback", &[]), 1, "it has 0 of the 2 steps that were done");
    std::fs::remove_file(&journal).unwrap();
    check(&ground.tune("rollback", &[]), 1, "it is gone, and with it the way back");
    let told = stdout(&ground.tune("status", &[]));
    assert!(told.contains("it is gone"), "{told}");
    std::fs::write(&journal, whole).unwrap();
    let back = ground.tune("rollback", &[]);
    check(&back, 0, "");
    assert!(stdout(&back).contains("2 steps taken back"), "{}", stdout(&back));
}
