//! Messages by RDMA verbs. A race of them makes devices in the machine's own namespace, so a virtual machine runs these
//! tests, and where there is none such a race says why it is not.

use std::path::Path;
use std::time::Duration;

use record::RaceRecord;
use testkit::{has_software_roce, shell};

use crate::sandbox::{HOSTGAP, Sandbox, check, sandbox, stderr, stdout};

/// TCP and verbs, sleeping and polling, on the host and in pods.
const EXPERIMENT: &str = "schema = 1
name = \"verbs\"
rounds = 1
builds = 1
slice_ms = 100
warmup_ms = 20
rates = [200]
[workload]
kind = \"verbs\"
body_bytes = [64, 65536]
connections = 2
";

/// Those that are raced in a guest race here, in the guest that the test is in.
fn in_guest(sandbox: &Sandbox, experiment: &str) -> std::process::Command {
    let file = sandbox.out().join("experiment.toml");
    std::fs::write(&file, experiment).unwrap();
    let mut command = sandbox.command(HOSTGAP);
    command.arg("race").arg(file).args(["--in-guest", "a test", "--no-realtime", "--out"]).arg(sandbox.out());
    command
}

/// Nothing of a race is left in the machine's own namespace either.
#[track_caller]
fn assert_nothing_left(sandbox: &Sandbox) {
    sandbox.assert_nothing_left();
    assert_eq!(shell("rdma link show"), "");
    let links = shell("ip -o link show");
    assert!(!links.contains("hgr"), "{links}");
}

#[test]
fn messages_and_tcp_race_and_nothing_is_left() {
    if !has_software_roce() {
        return;
    }
    let sandbox = sandbox();
    check(&in_guest(&sandbox, EXPERIMENT).output().unwrap(), 0, "");
    let race = RaceRecord::read(&sandbox.record()).unwrap();
    let names: Vec<&str> = race.header.entrants.iter().map(|entrant| entrant.name.as_str()).collect();
    let all =
        ["host", "host again", "host, verbs", "host, verbs, polling", "ptp+direct", "ptp+direct, verbs"];
    assert_eq!(names, all);
    assert!(race.rounds.iter().all(|round| round.broken.is_empty()), "{:?}", race.rounds);
    for (index, entrant) in race.header.entrants.iter().enumerate() {
        assert!(entrant.unmet.is_empty(), "{entrant:?}");
        let trials = race.rounds.iter().flat_map(|round| &round.trials);
        let answered: Vec<u64> =
            trials.filter(|trial| trial.entrant == index).map(|trial| trial.answered).collect();
        // Both sizes, and some.
        assert!(answered.len() >= 2 && answered.iter().all(|answered| *answered > 0), "{answered:?}");
        let has_devices = entrant.commands.join("\n").contains("type rxe netdev hgr");
        assert_eq!(has_devices, entrant.name.contains("verbs"), "{}", entrant.name);
    }
    assert_nothing_left(&sandbox);
}

#[test]
fn a_killed_race_is_taken_back_with_its_devices() {
    if !has_software_roce() {
        return;
    }
    let sandbox = sandbox();
    let long = EXPERIMENT.replace("rounds = 1", "rounds = 1000");
    // Spread over building and rounds; a step of the plan is cut off at each of its lines elsewhere.
    for after_ms in [300, 1_500, 5_000] {
        let mut race = in_guest(&sandbox, &long).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after_ms));
        race.kill().unwrap();
        race.wait().unwrap();
        let cleaned = sandbox.hostgap(&["clean"]);
        assert!(cleaned.status.success(), "after {after_ms} ms: {}", stderr(&cleaned));
        assert_nothing_left(&sandbox);
    }
}

#[test]
fn what_is_missing_is_said() {
    if !has_software_roce() {
        return;
    }
    let sandbox = sandbox();
    let found = |paths: &std::process::Output| {
        let text = stdout(paths);
        let at = text.find("  verbs  ").expect("the stack is listed");
        text[at..].lines().take(2).collect::<Vec<_>>().join("\n")
    };
    assert!(found(&sandbox.hostgap(&["paths"])).contains(" can run "));
    // Where the library is, something else is.
    let library = Path::new("/usr/lib/x86_64-linux-gnu/libibverbs.so.1").canonicalize().unwrap();
    let hidden = format!("mount --bind /dev/null {} && exec {HOSTGAP} paths", library.display());
    let without = sandbox.command("unshare").args(["--mount", "sh", "-c", &hidden]).output().unwrap();
    let found_without = found(&without);
    assert!(
        found_without.contains("cannot run") && found_without.contains("Debian has it in libibverbs1"),
        "{found_without}"
    );
}

#[test]
fn without_a_virtual_machine_verbs_are_left_out_with_the_reason() {
    if !testkit::require_root() {
        return;
    }
    let sandbox = sandbox();
    let tcp = sandbox.run_race(&["--workload", "verbs", "--rounds", "1", "--no-realtime"]);
    let printed = stderr(&tcp);
    let reason = "devices of software RoCE receive in a machine's own network namespace alone";
    assert!(printed.contains(&format!("host, verbs cannot run here: {reason}")), "{printed}");
    assert!(printed.contains("--kernel debian:6.12") && !printed.contains("ptp+direct cannot"), "{printed}");
    let file = sandbox.out().join("named.toml");
    let named =
        format!("{EXPERIMENT}[[candidates]]\npath = \"host\"\nstack.kind = \"verbs\"\nrequired = true\n");
    std::fs::write(&file, named).unwrap();
    let refused = sandbox.hostgap(&["race", file.to_str().unwrap()]);
    assert!(!refused.status.success());
    // Named, it is an error, for the first reason that is found: what the kernel lacks, else where the race would be.
    let printed = stderr(&refused);
    assert!(
        printed.contains("could not run host") && (printed.contains("RDMA") || printed.contains(reason)),
        "{printed}"
    );
    sandbox.assert_nothing_left();
}

#[test]
fn a_server_or_a_client_without_a_device_says_what_it_needs() {
    let sandbox = sandbox();
    let refused = |args: &[&str], code, why: &str| {
        let output = sandbox.hostgap(args);
        check(&output, code, why);
    };
    refused(&["serve", "--listen", "verbs:127.0.0.1:0"], 2, "needs the RDMA device by which messages come");
    refused(&["serve", "--listen", "127.0.0.1:0", "--rdma", "rxe0"], 2, "listen on verbs:ADDRESS:PORT");
    refused(&["load", "verbs://127.0.0.1:9", "--rate", "9"], 2, "verbs:// needs --rdma DEVICE");
    refused(&["load", "tcp://127.0.0.1:9", "--rate", "9", "--rdma", "rxe0"], 2, "--rdma is for verbs://");
    refused(&["serve", "--listen", "verbs:127.0.0.1:0", "--rdma", "a/b"], 2, "name of an RDMA device");
    let serve = ["serve", "--listen", "verbs:127.0.0.1:0", "--rdma", "hgnone"];
    refused(&serve, 1, "could not open RDMA device hgnone");
}
