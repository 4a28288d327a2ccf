//! Damaged files: hostgap claims nothing that it cannot prove, and undoes nothing on incomplete evidence.

use std::process::Output;

use super::Ground;
use crate::sandbox::{check, stderr, stdout, until};

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
    assert!(said.contains("hint: ") && said.contains("cannot be read: its checksum is"), "{said}");
    // The intact lines are shown to the user: the other parameter and its old value.
    assert!(said.contains("tcp_mtu_probing=1") && said.contains("\"value\":\"0\""), "{said}");
    assert_eq!(ground.sysctl("net/ipv4/tcp_mtu_probing"), "1", "nothing was undone on incomplete evidence");
    let printed = stdout(&ground.tune("status", &[]));
    assert!(printed.contains("line is damaged") || printed.contains("is damaged:"), "{printed}");
    // The restored journal works again, and so does giving up.
    std::fs::write(&path, text).unwrap();
    check(&ground.tune("rollback", &[]), 0, "");
    assert_eq!(ground.sysctl("net/ipv4/tcp_mtu_probing"), "0");
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("rollback", &["--discard"]), 0, "");
    assert_eq!((ground.sysctl("net/core/somaxconn"), ground.phase()), ("8192".to_owned(), None));
}

/// The store's record of the tuning is unreadable. The journal alone is enough for the rollback.
#[test]
fn a_damaged_store_is_named_and_the_journal_is_enough() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    // A watcher would treat an unreadable record as an unconfirmed tuning.
    until("the watcher has ended", || ground.is_unwatched());
    std::fs::write(ground.state().join("standing.json"), "{\"schema\":1,").unwrap();
    check(&ground.tune("status", &[]), 1, "standing.json is damaged");
    check(&ground.apply(&["--set", "somaxconn=1"]), 1, "standing.json is damaged");
    let back = ground.tune("rollback", &[]);
    assert_doubtful(&back, "1 step", "EOF while parsing a value at line 1 column 12");
    before.assert_same(&ground.dump(), "after rollback by the journal alone");
    let printed = stdout(&ground.tune("status", &[]));
    assert!(printed.contains("It is not certain that this was all: "), "{printed}");
}

/// Fails unless this many steps were undone by the journal alone, with the reason why there may have been
/// more.
#[track_caller]
fn assert_doubtful(back: &Output, steps: &str, why: &str) {
    let (said, warned) = (stdout(back), stderr(back));
    assert_eq!(back.status.code(), Some(3), "{said}{warned}");
    assert!(said.contains(&format!("{steps} undone")), "{said}");
    let doubt = warned.lines().find(|line| line.starts_with("It is not certain that this was all: "));
    let says = format!("{why}, and a journal does not show by itself that its last steps are lost.");
    assert!(doubt.is_some_and(|doubt| doubt.ends_with(&says)), "{warned}");
}

const EARLIER: &str = "11111111-2222-3333-4444-555555555555";

/// Imitates a restart: the store is of another boot, and the kernel's values are the defaults.
fn restart(ground: &Ground) {
    ground.write_standing(|standing| {
        standing.insert("boot_id".to_owned(), EARLIER.into()).unwrap();
    });
    ground.set_sysctl("net/core/somaxconn", "4096");
}

#[test]
fn the_last_run_of_the_machine_left_nothing() {
    let Some(ground) = Ground::new() else { return };
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    until("the watcher has ended", || ground.is_unwatched());
    restart(&ground);
    let boot_id = ground.write("boot_id", &format!("{EARLIER}\n"));
    let journal = ground.state().join("journal");
    std::fs::remove_file(&journal).unwrap();
    drop(plan::Journal::create_with_boot_id(&journal, boot_id.as_ref()).unwrap());
    let printed = stdout(&ground.tune("status", &[]));
    assert!(printed.contains("before the machine was restarted, which has reset all of it"), "{printed}");
    check(&ground.tune("keep", &[]), 2, "is not confirmed");
    let applied = ground.apply(&["--set", "somaxconn=8192"]);
    check(&applied, 0, "the machine was restarted since");
    check(&ground.tune("rollback", &[]), 0, "");
    assert_eq!(ground.sysctl("net/core/somaxconn"), "4096");
}

/// The unit must not fail at the next boot because of a file that is no longer needed.
#[test]
fn after_a_restart_the_journal_is_not_needed() {
    let Some(ground) = Ground::new() else { return };
    let journal = ground.state().join("journal");
    let stand = || {
        check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
        check(&ground.tune("confirm", &[]), 0, "");
        until("the watcher has ended", || ground.is_unwatched());
        restart(&ground);
    };
    stand();
    std::fs::write(&journal, "what a younger hostgap may have written\n").unwrap();
    check(&ground.apply(&["--confirmed", "--set", "somaxconn=8192"]), 0, "restarted since");
    check(&ground.tune("rollback", &[]), 0, "");
    stand();
    std::fs::remove_file(&journal).unwrap();
    let back = ground.tune("rollback", &[]);
    check(&back, 0, "");
    assert!(stdout(&back).contains("ended with a restart of the machine"), "{}", stdout(&back));
    assert!(!ground.state().join("standing.json").exists());
}

/// Of the store's files, the record that something is active is removed first.
#[test]
fn a_death_while_it_is_forgotten_harms_nothing() {
    let Some(ground) = Ground::new() else { return };
    std::fs::create_dir_all(ground.state()).unwrap();
    let journal = ground.state().join("journal");
    drop(plan::Journal::create(&journal).unwrap());
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("rollback", &[]), 0, "");
    assert!(!journal.exists());
}

/// A journal that is missing, or was cut at the end of a line, has lost steps. Only the store shows that.
#[test]
fn steps_that_a_journal_has_lost_are_missed() {
    let Some(ground) = Ground::new() else { return };
    let journal = ground.state().join("journal");
    check(&ground.apply(&["--set", "somaxconn=8192", "--set", "tcp_mtu_probing=1"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    let whole = std::fs::read_to_string(&journal).unwrap();
    let header: String = whole.lines().take(1).map(|line| format!("{line}\n")).collect();
    std::fs::write(&journal, header).unwrap();
    let printed = stdout(&ground.tune("status", &[]));
    assert!(printed.contains("it has 0 of the 2 steps that were done"), "{printed}");
    check(&ground.tune("rollback", &[]), 1, "it has 0 of the 2 steps that were done");
    std::fs::remove_file(&journal).unwrap();
    check(&ground.tune("rollback", &[]), 1, "it is gone, and with it the way back");
    let printed = stdout(&ground.tune("status", &[]));
    assert!(printed.contains("it is gone"), "{printed}");
    std::fs::write(&journal, whole).unwrap();
    let back = ground.tune("rollback", &[]);
    check(&back, 0, "");
    assert!(stdout(&back).contains("2 steps undone"), "{}", stdout(&back));
}

/// One digit of the boot id is changed. If hostgap believed it, it would forget everything and undo nothing.
#[test]
fn a_changed_digit_is_no_restart() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    let path = ground.state().join("standing.json");
    let stand = || {
        check(&ground.apply(&["--set", "somaxconn=8192", "--set", "tcp_mtu_probing=1"]), 0, "");
        check(&ground.tune("confirm", &[]), 0, "");
        until("the watcher has ended", || ground.is_unwatched());
        std::fs::read_to_string(&path).unwrap()
    };
    let text = stand();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let digit = if boot_id.starts_with('0') { "1" } else { "0" };
    let other = format!("{digit}{}", &boot_id.trim()[1..]);
    std::fs::write(&path, text.replace(boot_id.trim(), &other)).unwrap();
    check(&ground.tune("status", &[]), 1, "its checksum is not that of its content");
    assert_doubtful(&ground.tune("rollback", &[]), "2 steps", "its checksum is not that of its content");
    before.assert_same(&ground.dump(), "after rollback by the journal alone");

    // The record is valid by itself, but the journal contradicts it.
    stand();
    ground.write_standing(|standing| {
        standing.insert("boot_id".to_owned(), other.into()).unwrap();
    });
    let says = "its steps are newer than the last restart, and standing.json is older";
    let printed = stdout(&ground.tune("status", &[]));
    assert!(printed.contains(says) && printed.contains("tcp_mtu_probing=1"), "{printed}");
    for refused in [
        ground.tune("rollback", &[]),
        ground.tune("keep", &[]),
        ground.apply(&["--set", "somaxconn=1"]),
        ground.apply(&["--confirmed", "--set", "somaxconn=1"]),
    ] {
        check(&refused, 1, says);
    }
    assert_eq!(ground.sysctl("net/core/somaxconn"), "8192");
    // Without the record that contradicts it, the journal is believed, as far as it goes.
    std::fs::remove_file(&path).unwrap();
    assert_doubtful(&ground.tune("rollback", &[]), "2 steps", "standing.json is not there");
    before.assert_same(&ground.dump(), "after rollback by the journal alone");
}

/// Each line in turn is removed. The lines that remain valid do not show that one is missing.
#[test]
fn a_line_that_a_journal_has_lost_is_missed() {
    let Some(ground) = Ground::new() else { return };
    let journal = ground.state().join("journal");
    let before = ground.dump();
    check(&ground.apply(&["--set", "somaxconn=8192", "--set", "tcp_mtu_probing=1"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    let whole = std::fs::read_to_string(&journal).unwrap();
    let standing = ground.dump();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    for lost in 0..lines.len() {
        let without: String =
            lines.iter().enumerate().filter(|(at, _)| *at != lost).map(|(_, line)| *line).collect();
        std::fs::write(&journal, without).unwrap();
        let back = ground.tune("rollback", &[]);
        assert_eq!(back.status.code(), Some(1), "without line {lost}: {}{}", stdout(&back), stderr(&back));
        standing.assert_same(&ground.dump(), &format!("after a rollback without line {lost}"));
        assert!(journal.exists());
    }
    std::fs::write(&journal, whole).unwrap();
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
}

/// An intact journal of another tuning, or of an earlier boot.
#[test]
fn another_s_journal_is_not_taken_for_its_own() {
    let Some(ground) = Ground::new() else { return };
    let journal = ground.state().join("journal");
    check(&ground.apply(&["--set", "tcp_mtu_probing=1"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    let other = std::fs::read(&journal).unwrap();
    check(&ground.tune("rollback", &[]), 0, "");
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    let own = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, other).unwrap();
    check(&ground.tune("rollback", &[]), 1, "it is not as it was when its steps were done");
    let boot_id = ground.write("boot_id", &format!("{EARLIER}\n"));
    std::fs::remove_file(&journal).unwrap();
    drop(plan::Journal::create_with_boot_id(&journal, boot_id.as_ref()).unwrap());
    check(&ground.tune("rollback", &[]), 1, "it is older than the last restart");
    assert_eq!(ground.sysctl("net/core/somaxconn"), "8192");
    std::fs::write(&journal, own).unwrap();
    check(&ground.tune("rollback", &[]), 0, "");
    assert_eq!(ground.sysctl("net/core/somaxconn"), "4096");
}

/// A value that holds only until a deadline must not be reported as "nothing to change".
#[test]
fn the_same_beside_one_that_is_unconfirmed_is_refused() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    check(&ground.apply(&["--confirm-within", "600s", "--set", "somaxconn=8192"]), 0, "");
    for more in [&["--set", "somaxconn=8192"][..], &["--confirmed", "--set", "somaxconn=8192"]] {
        let refused = ground.apply(more);
        let text = check(&refused, 1, "is active already, unconfirmed");
        assert!(text.contains("hint: "), "{text}");
        assert!(!format!("{text}{}", stdout(&refused)).contains("Nothing to change"), "{text}");
    }
    check(&ground.tune("confirm", &[]), 0, "");
    check(&ground.apply(&["--confirmed", "--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
}
