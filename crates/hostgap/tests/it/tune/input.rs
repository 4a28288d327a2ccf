//! Bad input, and machines that refuse a setting.

use std::process::{Command, Stdio};

use super::Ground;
use crate::sandbox::{HOSTGAP, check, json, stderr, stdout};

#[test]
fn what_cannot_be_asked_for_says_why() {
    let Some(ground) = Ground::new() else { return };
    for (arguments, says) in [
        (&["--set", "somaxcon=1"][..], "did you mean \"somaxconn\"?"),
        (&["--set", "somaxconn=99999999999"], "somaxconn cannot be \"99999999999\": a number from"),
        (&["--set", "somaxconn"], "KNOB=VALUE is expected"),
        (&["--set", "kernel.core_pattern=|/bin/sh"], "this parameter decides which code runs"),
        (&["--set", "tcp_tw_recycle=1"], "it was removed in Linux 4.12"),
        (&["--set", "rmem_max=1000000"], "the whole machine shares it: set it without --netns"),
        (&["--set", "ring_rx=512"], "wire0 does not have the receive ring"),
        (&["--set", "channels=3"], "the number of queues of wire0 can be 2 at most"),
        (&["--set", "irq_affinity=0"], "wire0 has no interrupts of its own"),
        (
            &["--set", "tcp_congestion_control=nonesuch"],
            "this kernel has no nonesuch, and no module tcp_nonesuch",
        ),
        (&["--set", "congctl=nonesuch"], "this kernel has no nonesuch, and no module tcp_nonesuch"),
        (&["--set", "hystart_detect=2"], "the whole machine shares it: set it without --netns"),
        (&["--set", "tcp_cubic.hystart_detect=4"], "hystart_detect cannot be \"4\": a number from 1 to 3"),
        (&["latncy"], "did you mean \"latency\"?"),
        (&["--set", "mtu=1400", "--dev", "wire7"], "there is no link wire7"),
        (&["nonesuch"], "there is no profile and no file \"nonesuch\""),
        (&[], "nothing to do: name a profile"),
    ] {
        check(&ground.look("plan", arguments), 2, says);
        check(&ground.apply(arguments), 2, says);
    }
    check(&ground.apply(&["--set", "somaxconn=1", "--confirm-within", "0s"]), 2, "at once");
    assert!(!ground.state().join("journal").exists());
}

/// Without tracking, rules that match on connections would no longer match.
#[test]
fn what_rules_stand_on_is_not_taken_from_them() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    check(&ground.apply(&["--set", "notrack=8080"]), 0, "none → nftables table ip hostgap-notrack-8080\n");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
    let home = ground.world.name("home");
    let inside = |command: &str| drop(testkit::shell(&format!("ip netns exec {home} {command}")));
    for (rule, removal, says) in [
        (
            "nft 'add table ip own; add chain ip own post { type nat hook postrouting priority 100; }'",
            "nft delete table ip own",
            "for address translation or state",
        ),
        (
            "iptables-nft -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
            "nft delete table ip filter",
            "need connection tracking for conntrack",
        ),
        (
            "iptables-legacy -t nat -A POSTROUTING -p tcp -m comment --comment x -j MASQUERADE",
            "iptables-legacy -t nat -F",
            "for MASQUERADE in table nat of iptables-legacy",
        ),
        (
            "ip6tables-legacy -A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
            "ip6tables-legacy -F",
            "for conntrack in table filter of ip6tables-legacy",
        ),
    ] {
        inside(rule);
        check(&ground.apply(&["--set", "notrack=8080"]), 2, says);
        inside(removal);
    }
    // Rules that do not match on connections are no obstacle, and neither is a table without rules.
    inside("iptables-legacy -A INPUT -p tcp -m comment --comment x --dport 80 -j ACCEPT");
    check(&ground.look("plan", &["--set", "notrack=8080"]), 0, "");
}

#[test]
fn a_profile_s_fault_is_reported_with_its_place() {
    let Some(ground) = Ground::new() else { return };
    let text = "schema = 1\nabout = \"mine\"\n\n[[set]]\nknob = \"somaxcon\"\nvalue = 1\n";
    let file = ground.write("mine.toml", text);
    let says = "line 5, column 8: there is no knob \"somaxcon\", did you mean \"somaxconn\"?";
    check(&ground.look("plan", &[&file]), 2, says);
    // A setting that is of no use here is left out with its reason. The others are planned.
    let text = text.replace("somaxcon\"", "somaxconn\"") + "[[set]]\nknob = \"ring_rx\"\nvalue = 1\n";
    let file = ground.write("mine.toml", &text);
    let printed = stdout(&ground.look("plan", &[&file]));
    assert!(
        printed.contains("somaxconn  4096 → 1") && printed.contains("Left out: ring_rx = 1: wire0 does not"),
        "{printed}"
    );
    let all = stdout(&Command::new(HOSTGAP).args(["tune", "profiles"]).output().unwrap());
    for (name, _) in tune::PROFILES {
        assert!(all.contains(name), "{all}");
    }
}

#[test]
fn to_end_what_never_was_makes_no_directory() {
    let Some(ground) = Ground::new() else { return };
    for (command, what) in [("rollback", "rolled back"), ("confirm", "confirmed")] {
        check(&ground.tune(command, &[]), 1, &format!("there is no tuning that could be {what}"));
        assert!(!ground.state().exists(), "{command}");
    }
}

/// As in a container: the link can be set, but the kernel's parameters cannot.
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

/// Without room for the whole journal, nothing is begun.
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
fn what_the_machine_does_not_have_is_refused_by_the_plan() {
    let Some(ground) = Ground::new() else { return };
    let online = linux::cpu::online().unwrap();
    for cpus in ["4000", "0-4000"] {
        for knob in ["rps_cpus", "xps_cpus"] {
            let output = ground.look("plan", &["--set", &format!("{knob}={cpus}")]);
            let says = format!("{knob} cannot be set to {cpus} here: CPU");
            let text = check(&output, 2, &says);
            assert!(text.contains(&format!("not online; online are {online}")), "{text}");
        }
    }
    // These belong to the whole machine, and a plan changes nothing.
    for knob in ["irq_affinity", "flow_limit_cpu_bitmap"] {
        let mut command = Command::new(HOSTGAP);
        command.args(["tune", "plan", "--dev", "lo", "--set", &format!("{knob}=4000")]).stdin(Stdio::null());
        check(
            &command.output().unwrap(),
            2,
            &format!("{knob} cannot be set to 4000 here: CPU 4000 is not online"),
        );
    }
    // A profile leaves the setting out with the reason.
    let profile = "schema = 1\nabout = \"x\"\n[[set]]\nknob = \"rps_cpus\"\nvalue = \"4000\"\n\
                   [[set]]\nknob = \"somaxconn\"\nvalue = 12345\n";
    let plan = json(&ground.look("plan", &[&ground.write("cpus.toml", profile), "--json"]));
    assert_eq!(plan["changes"][0]["knob"], "somaxconn");
    assert!(plan["skipped"][0]["why"].as_str().unwrap().starts_with("CPU 4000 is not online"), "{plan}");

    let home = ground.world.name("home");
    testkit::shell(&format!("ip -n {home} tuntap add dev tap0 mode tap"));
    let tap = ground.netns().run(|| linux::Netlink::open()?.link(&linux::IfName::new("tap0").unwrap()));
    let most = tap.unwrap().unwrap().unwrap().mtu_max.unwrap();
    assert!((1280..65_535).contains(&most), "{most}");
    let plan = |mtu: u32| ground.look("plan", &["--dev", "tap0", "--set", &format!("mtu={mtu}")]);
    check(&plan(most), 0, "");
    check(&plan(most + 1), 2, &format!("the MTU of tap0 can be at most {most}"));
}
