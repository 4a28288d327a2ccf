//! Races in virtual machines: the same binary in the guest, its record here, and the messages for bad input.
//!
//! A boot takes a minute, so there is one test of each kind.

use rustix::process::Signal;

use crate::sandbox::{HOSTGAP, check, kill, sandbox};

/// Whether this is Debian. The emulator comes from Debian's archive, and without it nothing can run.
pub(crate) fn is_debian() -> bool {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    text.contains("VERSION_CODENAME=bookworm") || {
        testkit::skip("kernels and QEMU come from Debian 12's archive");
        false
    }
}

/// What is shipped is what was raced: the plugin's bridge takes the instructions of the race's.
#[test]
fn instructions_are_counted_and_a_data_path_costs_more() {
    if !is_debian() {
        return;
    }
    let sandbox = sandbox();
    let shipped = crate::cni::own(&sandbox, "bridge", r#","anti_spoofing":false,"masquerade":true"#);
    let shipped: Vec<&str> = shipped.iter().map(String::as_str).collect();
    let raced = ["--exact", "--paths", "bridge+direct", "--rounds", "2", "--json"];
    let output = sandbox.run_race(&[&raced[..], &shipped].concat());
    check(&output, 0, "booting Linux 6.12");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let counted = json["exact"][0]["candidates"].as_array().unwrap();
    let names: Vec<&str> = counted.iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["host", "host again", "bridge+direct", "cni:own"]);
    for of in counted {
        assert_eq!(of["repetitions"], 2);
        // The host's time influences a boot a little: one or two thousandths were observed.
        assert!(of["spread"].as_f64().unwrap() < 0.005, "{of}");
    }
    // A request crosses the wire and both stacks twice, which takes thousands of instructions, and a bridge
    // adds to that.
    assert!(counted[0]["per_request"].as_f64().unwrap() > 10_000.0, "{}", counted[0]);
    assert_eq!(counted[1]["verdict"], "indistinguishable", "{}", counted[1]);
    assert_eq!(counted[2]["verdict"], "worse", "{}", counted[2]);
    let [raced, shipped] = [2, 3].map(|at: usize| counted[at]["per_request"].as_f64().unwrap());
    assert!((shipped / raced - 1.0).abs() < 0.01, "{counted:?}");
    let facts = &json["machine"]["facts"];
    assert!(facts["virtual machine"].as_str().unwrap().contains("counts instructions"), "{facts}");
    sandbox.assert_nothing_left();
}

/// The later a packet is dropped on its way, the more of the kernel it has passed.
#[test]
fn instructions_of_a_packet_grow_along_its_way() {
    if !is_debian() {
        return;
    }
    const WAY: &str = "xdp-drop,tc-drop,nft-input-ct";
    let sandbox = sandbox();
    let packets = ["--exact", "--workload", "packets", "--paths", WAY, "--rounds", "1", "--json"];
    let output = sandbox.run_race(&packets);
    check(&output, 0, "booting Linux 6.12");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let counted = json["exact"][0]["candidates"].as_array().unwrap();
    let figures: Vec<(&str, f64)> = counted
        .iter()
        .map(|of| (of["name"].as_str().unwrap(), of["per_request"].as_f64().unwrap()))
        .collect();
    let (hosts, filters) = figures.split_at(2);
    let names: Vec<&str> = filters.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, WAY.split(',').collect::<Vec<_>>());
    let grows = |pair: &[(&str, f64)]| pair[0].1 < pair[1].1;
    assert!(filters[0].1 > 100.0 && filters.windows(2).all(grows), "{figures:?}");
    assert!((hosts[0].1 / hosts[1].1 - 1.0).abs() < 0.02, "{figures:?}");
    sandbox.assert_nothing_left();
}

#[test]
fn a_race_in_emulation_says_so_and_can_be_interrupted() {
    if !is_debian() {
        return;
    }
    let sandbox = sandbox();
    // With cards, so that both ends of such a wire are found, taken and given back where no clock is counted.
    let args = ["--wire", "igb", "--paths", "ipvlan-l2", "--rounds", "500", "--rate", "200"];
    let race = sandbox.start_race(&args);
    sandbox.until_a_round_is_done();
    kill(race.id(), Signal::INT);
    let output = race.wait_with_output().unwrap();
    check(&output, 130, "interrupted");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.contains("ipvlan-l2") && stdout.contains("this race ran in a virtual machine"),
        "{stdout}"
    );
    assert!(stdout.contains("not watched for stalls (none: QEMU emulates"), "{stdout}");
    // Of both ends, whose interrupts have the same names in all nodes.
    let race = record::RaceRecord::read(&sandbox.record()).unwrap();
    for trial in race.rounds.iter().flat_map(|round| &round.trials) {
        let counts = trial.cards.as_ref().expect("the wire has cards");
        let all = |of: &std::collections::BTreeMap<u16, u64>| of.values().sum::<u64>();
        let interrupts = [all(&counts.client_interrupts), all(&counts.server_interrupts)];
        assert!(trial.answered == 0 || interrupts.iter().all(|count| *count > 0), "{counts:?}");
        assert!(all(&counts.packets) >= 2 * trial.answered && all(&counts.net_rx) > 0, "{trial:?}");
    }
    assert!(
        stdout.contains("packets a NET_RX") && stdout.contains("times over emulated igb cards"),
        "{stdout}"
    );
    let page = std::fs::read_to_string(sandbox.record().with_file_name("report.html")).unwrap();
    assert!(page.contains("wire (igb)") && page.contains("two of model igb for each candidate"), "{page}");
    sandbox.assert_nothing_left();
}

#[test]
fn bad_input_is_refused_before_anything_boots() {
    let sandbox = sandbox();
    let bad: [(&[&str], i32, &str); 10] = [
        (
            &["--kernel", "debian:6.12", "--duration", "10m"],
            2,
            "--duration does not apply to a race in a virtual machine: how long a trial takes",
        ),
        (&["--exact", "--cpus", "0"], 2, "--cpus does not apply to a race in a virtual machine"),
        (
            &["--wire", "igb", "--delay", "1ms"],
            2,
            "`underlay.wire` is igb: delay, loss and rate need a bridge",
        ),
        (&["--wire", "e1000"], 2, "`e1000` is not a card: virtio, igb or vmxnet3 is expected"),
        (
            &["--kernel", "debian:5.10"],
            2,
            "could not find kernel \"debian:5.10\": there are debian:6.1, debian:6.12",
        ),
        (&["--kernel", "6.12"], 2, "could not find kernel"),
        (&["--kernel", "/boot/vmlinuz"], 2, "needs the folder of its modules"),
        (
            &["--kernel", "/etc/passwd", "--modules", "/etc"],
            2,
            "unpack kernel /etc/passwd: it has no boot header",
        ),
        (&["--kernel", "/nowhere/bzImage", "--modules", "/etc"], 1, "read /nowhere/bzImage"),
        (&["--kernel", "a,a"], 2, "`vm.kernels` is a: it is listed twice"),
    ];
    for (args, code, says) in bad {
        check(&sandbox.run_race(args), code, says);
        sandbox.assert_nothing_left();
        assert_eq!(std::fs::read_dir(sandbox.out()).unwrap().count(), 0, "{args:?} left a directory");
    }
}

/// One cache is on a file system of two mebibytes. Another cannot be filled because apt is missing.
#[test]
fn no_space_and_no_packages_are_reported_with_a_way_out() {
    if !is_debian() {
        return;
    }
    let sandbox = sandbox();
    let small = "mkdir /run/small && mount -t tmpfs -o size=2m none /run/small";
    assert!(sandbox.command("sh").args(["-c", small]).status().unwrap().success());
    let race = |settings: &[&str]| {
        let mut command = sandbox.command("/usr/bin/env");
        command.args(settings).args([HOSTGAP, "race", "--kernel", "debian:6.12", "--out"]).arg(sandbox.out());
        command.output().unwrap()
    };
    let text = check(&race(&["HOSTGAP_CACHE=/run/small"]), 1, "HOSTGAP_CACHE=DIR");
    assert!(text.contains("/run/small"), "{text}");
    check(&race(&["HOSTGAP_CACHE=/run/empty", "PATH=/nowhere"]), 4, "start apt-get: ");
    sandbox.assert_nothing_left();
}
