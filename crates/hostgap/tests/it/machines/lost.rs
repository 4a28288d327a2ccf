//! The other machine is lost in the middle of a race: for some seconds, for good, or until it has started anew.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use testkit::run;

use super::{Machines, ip, machines, plug, port, sshd_program, start_sshd, visits};
use crate::sandbox::{check, check_race, json, kill, own_run, stderr, until};

const ENDLESS: [&str; 6] = ["--server", "ssh://b", "--paths", "ptp+direct", "--rounds", "1000"];

/// While it is there, what belongs to ssh is dropped on the client's machine, without a word to either side.
struct Cut<'a>(&'a Machines);

impl Cut<'_> {
    fn begin(machines: &Machines) -> Cut<'_> {
        let cut = Cut(machines);
        for part in [
            "add table ip cut",
            "add counter ip cut lost",
            "add chain ip cut in { type filter hook input priority -200 ; }",
            "add chain ip cut out { type filter hook output priority -200 ; }",
            "add rule ip cut in tcp sport 22 counter name lost drop",
            "add rule ip cut out tcp dport 22 counter name lost drop",
        ] {
            cut.nft(part);
        }
        until("ssh says something that is lost", || {
            !cut.nft("list counter ip cut lost").contains("packets 0 ")
        });
        cut
    }

    fn nft(&self, words: &str) -> String {
        run(&self.0.world.open("a"), "nft", &words.split(' ').collect::<Vec<_>>())
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        let netns = self.0.world.name("a");
        let _ =
            Command::new("ip").args(["netns", "exec", netns.as_str(), "nft", "delete table ip cut"]).status();
    }
}

#[test]
fn a_cut_of_some_seconds_is_survived_and_one_for_good_is_no_race() {
    let Some(machines) = machines() else { return };
    let race = machines.race(&ENDLESS).spawn().unwrap();
    machines.until_rounds(1);
    let cut = Cut::begin(&machines);
    // As long as the manual promises that it is survived.
    std::thread::sleep(Duration::from_secs(6));
    drop(cut);
    let before = machines.rounds();
    machines.until_rounds(before + 2);
    // This time nothing comes through before both have given up, each by itself.
    let cut = Cut::begin(&machines);
    until("the other machine is as before", || {
        machines.worker().is_none()
            && machines.far.owners().is_empty()
            && machines.far.namespaces().is_empty()
    });
    let output = race.wait_with_output().unwrap();
    drop(cut);
    let said = check(&output, 1, "use ssh://b: ");
    assert!(said.contains("finished round"), "{said}");
    machines.assert_as_before();
}

impl Machines {
    /// As without power: nothing says a last word, and only the cache on the disk is there afterwards.
    fn reboot_far(&mut self) {
        ip(&["-n", self.world.name("switch").as_str(), "link", "del", &port("b")]);
        for (pid, _) in self.far.pids() {
            kill(pid, Signal::KILL);
        }
        self.sshd.wait().unwrap();
        self.far = own_run();
        ip(&["netns", "del", self.world.name("b").as_str()]);
        plug(&self.world, 2);
        let (netns, dir) = (self.world.name("b"), self.sandbox.out());
        self.sshd = start_sshd(&sshd_program().unwrap(), &self.far, netns.as_str(), dir);
    }
}

#[test]
fn a_machine_that_reboots_ends_the_race_and_can_race_again() {
    let Some(mut machines) = machines() else { return };
    let race = machines.race(&ENDLESS).spawn().unwrap();
    machines.until_rounds(1);
    machines.until_something_stands();
    machines.reboot_far();
    let output = race.wait_with_output().unwrap();
    let said = check(&output, 1, "use ssh://b: ");
    assert!(said.contains("finished round"), "{said}");
    machines.assert_as_before();
    let again = machines.output(&["--server", "ssh://b", "--paths", "ptp+direct", "--rounds", "1", "--json"]);
    check_race(&again, "connecting to ssh://b");
    assert!(visits(&json(&again)["candidates"][2]) > 0, "{}", stderr(&again));
    machines.assert_as_before();
}
