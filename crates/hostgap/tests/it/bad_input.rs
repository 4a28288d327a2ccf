//! Bad input gets one clear message and the documented exit code, and touches nothing.

use crate::sandbox::{HOSTGAP, check, check_race, sandbox};

#[test]
fn the_command_line() {
    let sandbox = sandbox();
    let bad: [(&[&str], i32, &str); 25] = [
        (&["--paths", "brigde+vxlan"], 2, "did you mean \"bridge+vxlan\"?"),
        (&["--rate", "0"], 2, "`0` is not a rate: 1 to 10 million"),
        (&["--rate=-5"], 2, "`-5` is not a rate"),
        (&["--rate", "900M"], 2, "`900M` is not a rate: 1 to 10 million"),
        (&["--rate", "150%"], 2, "above 0% and at most 100%"),
        (&["--rounds", "0"], 2, "1.."),
        (&["--duration", "0s"], 2, "--duration"),
        (&["--duration", "soon"], 2, "`soon` is not a time"),
        (&["--body", "0x"], 2, "`0x` is not a size"),
        (&["--body", "100M"], 2, "`workload.body_bytes` is 104857600"),
        (&["--server", "hostgap", "--body", "4M"], 2, "our own responder answers with at most 1048576 bytes"),
        (
            &["--connections", "60000"],
            2,
            "60000 connections of one client: it calls one port of the server, which takes",
        ),
        (&["--cpus", "900"], 2, "CPU 900 does not exist"),
        (&["--nginx", "/nonexistent/nginx"], 4, "/nonexistent/nginx: No such file"),
        (&["--server", "apache"], 2, "auto, nginx, hostgap or ssh://"),
        (&["--sudo"], 2, "--sudo does not apply to a race on one machine: it is about another machine"),
        (&["--ssh", "ssh -v"], 2, "--ssh does not apply to a race on one machine"),
        (&["--modules", "/"], 2, "--modules does not apply to a race on one machine"),
        (&["--image", "x"], 2, "--kube"),
        (&["--kubectl", "x"], 2, "--kube"),
        (&["--pod-cpus", "2"], 2, "--kube"),
        (&["--kube", "--kubectl", "/none", "--nic", "eth0"], 2, "--nic does not apply to a cluster"),
        (&["--kube", "--kubectl", "/none", "--nginx", "/x"], 2, "--nginx does not apply to a cluster"),
        (&["--kube", "--kubectl", "/none", "--duration", "1m"], 2, "--duration does not apply to a cluster"),
        (&["/nonexistent.toml"], 2, "could not read experiment /nonexistent.toml: No such file"),
    ];
    for (args, code, says) in bad {
        check(&sandbox.run_race(args), code, says);
        sandbox.assert_nothing_left();
        assert_eq!(std::fs::read_dir(sandbox.out()).unwrap().count(), 0, "{args:?} left a directory");
    }
    check(&sandbox.hostgap(&["race", "--out", "/proc/nowhere"]), 1, "could not create /proc/nowhere");
}

#[test]
fn a_rate_that_even_the_host_cannot_answer() {
    let sandbox = sandbox();
    let output = sandbox.run_race(&["--paths", "macvlan", "--rate", "9M"]);
    check(&output, 2, "a rate of 9000000 requests/s: host itself answers at most");
    sandbox.assert_nothing_left();
}

#[test]
fn the_experiment_file() {
    let sandbox = sandbox();
    let bad: [(&str, &[&str]); 6] = [
        ("schema = 1\nname = \"x\"\nrates = [\n", &["experiment.toml", "line 3, column"]),
        (
            "schema = 1\nname = \"x\"\nruonds = 3\n",
            &["line 3, column 1", "`ruonds`", "did you mean `rounds`?"],
        ),
        ("schema = 1\nname = \"x\"\nrounds = \"3\"\n", &["line 3, column 10"]),
        ("schema = 9\nname = \"x\"\n", &["schema 9", "knows schema 1"]),
        ("schema = 1\nname = \"x\"\nrounds = 0\n", &["`rounds` is 0"]),
        ("schema = 1\nname = \"x\"\n[[candidates]]\npath = \"dokcer\"\n", &["did you mean \"docker\"?"]),
    ];
    for (text, says) in bad {
        let file = sandbox.out().join("experiment.toml");
        std::fs::write(&file, text).unwrap();
        let output = sandbox.run_race(&[file.to_str().unwrap()]);
        for part in says {
            check(&output, 2, part);
        }
        sandbox.assert_nothing_left();
    }
}

#[test]
fn a_named_path_that_cannot_run_is_an_error() {
    let sandbox = sandbox();
    if linux::features::probe().unwrap().missing.contains_key(&linux::features::Feature::Ipvlan) {
        check(&sandbox.run_race(&["--paths", "ipvlan-l2"]), 4, "could not run ipvlan-l2 here: ");
    } else {
        check_race(&sandbox.run_race(&["--paths", "ipvlan-l2", "--rounds", "1", "--rate", "1k"]), "");
    }
    sandbox.assert_nothing_left();
}

#[test]
fn without_nginx_our_own_responder_serves_and_says_so_unless_nginx_was_asked_for() {
    let sandbox = sandbox();
    let race = |server: &str| {
        // Hides nginx for this race, in PATH and where it is installed.
        let hide = "mount -t tmpfs none /usr/sbin && exec \"$@\"";
        let mut command = sandbox.command("unshare");
        command.args(["--mount", "/bin/sh", "-c", &format!("PATH=$PATH:/sbin; {}", hide), "sh"]);
        command.args([
            HOSTGAP, "race", "--paths", "macvlan", "--rounds", "1", "--rate", "1k", "--server", server,
        ]);
        command
            .arg("--out")
            .arg(sandbox.out())
            .env("PATH", "/usr/bin:/bin")
            .env_remove("HOSTGAP_NGINX")
            .output()
            .unwrap()
    };
    check(&race("nginx"), 4, "nginx was requested but is not installed");
    sandbox.assert_nothing_left();
    let output = race("auto");
    check_race(&output, "");
    assert!(crate::sandbox::stdout(&output).contains("hostgap serve"), "{}", crate::sandbox::stdout(&output));
    sandbox.assert_nothing_left();
}

#[test]
fn a_file_that_is_no_record() {
    let sandbox = sandbox();
    check(
        &sandbox.hostgap(&["report", "/etc/passwd"]),
        2,
        "could not read record /etc/passwd: line 1 is damaged",
    );
    let directory = sandbox.hostgap(&["report", "/etc"]);
    check(&directory, 2, "could not read record /etc: Is a directory");
    check(&directory, 2, "hint: name the file in it: race.jsonl");
    check(&sandbox.hostgap(&["report"]), 2, "FILE");
}

/// Neither a record nor the page of another one.
#[test]
fn a_page_replaces_nothing_but_the_page_of_its_record() {
    let sandbox = sandbox();
    let search = serde_json::json!({
        "schema": 1, "hostgap": "0", "started_unix_s": 1, "seed": 1, "budget_s": 1.0, "wall_s": 1.0,
        "experiment": record::Experiment::default(), "machine": record::Machine::default(),
        "incumbent": "docker", "objective": "throughput", "guards": [], "options": [], "blocks": [], "stages": [],
    })
    .to_string();
    let other = sandbox.out().join("other");
    std::fs::create_dir(&other).unwrap();
    let at = |name: &str| sandbox.out().join(name).to_str().unwrap().to_owned();
    for name in ["a.json", "b.json", "other/a.json"] {
        std::fs::write(at(name), &search).unwrap();
    }
    let page = at("report.html");
    check(
        &sandbox.hostgap(&["report", &at("a.json"), &at("b.json")]),
        2,
        "could not write several pages to ",
    );
    assert!(!std::fs::exists(&page).unwrap());
    let link = at("link.html");
    std::os::unix::fs::symlink(at("a.json"), &link).unwrap();
    for named in [at("a.json"), at("other/../a.json"), link] {
        let refused = sandbox.hostgap(&["report", &at("a.json"), "--html", &named]);
        check(&refused, 2, "that is the record");
    }
    assert_eq!(std::fs::read_to_string(at("a.json")).unwrap(), search);
    check(&sandbox.hostgap(&["report", &at("a.json"), &at("other/a.json")]), 0, "");
    assert!(std::fs::exists(&page).unwrap() && std::fs::exists(at("other/report.html")).unwrap());
}

/// Named input that is missing or of the wrong kind gives the same exit code with every command.
#[test]
fn what_is_named_and_is_not_there_or_something_else_is_bad_input() {
    let sandbox = sandbox();
    let at = |name: &str| sandbox.out().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("garbage"), "once\nupon a time\n").unwrap();
    std::fs::write(at("binary"), [0xff, 0, 0xfe]).unwrap();
    std::fs::write(at("empty"), "").unwrap();
    std::fs::create_dir(at("directory")).unwrap();
    let state = at("state");
    for name in ["missing", "garbage", "binary", "empty", "directory"] {
        let file = at(name);
        let takers: [&[&str]; 8] = [
            &["report", &file],
            &["race", &file],
            &["race", "--cni", &file],
            &["lab", "up", "--cni", &file],
            &["tune", "plan", &file],
            &["tune", "plan", "--from-findings", &file],
            &["tune", "apply", "--plan", &file, "--state", &state],
            &["doctor", "--from", &file],
        ];
        for args in takers {
            let output = sandbox.hostgap(args);
            let text = check(&output, 2, &file);
            assert!(text.starts_with("hostgap: "), "{args:?}: {text}");
            assert!(!sandbox.out().join("state").exists(), "{args:?} made a directory");
        }
    }
    let endless = sandbox.hostgap(&["tune", "plan", "/dev/zero"]);
    check(&endless, 2, "could not read profile /dev/zero: it has more than 16 MiB");
    let replace = "bpf replace hgt-absent --wire lo --mtu 1500 --pods 10.1.0.0/24 --cluster 10.1.0.0/16 \
                   --gateway 169.254.1.1 --gateway-mac 02:05:00:00:00:00";
    let replace: Vec<&str> = replace.split_whitespace().collect();
    let absent: [(&[&str], &str); 9] = [
        (&["bpf", "counters", "hgt-absent"], "\"hgt-absent\" has no hostgap programs"),
        (&["bpf", "unload", "hgt-absent"], "\"hgt-absent\" has no hostgap programs"),
        (&replace, "\"hgt-absent\" has no hostgap programs"),
        (&["bpf", "replace-guard", "hgt-absent"], "\"hgt-absent\" has no hostgap programs"),
        (&["bpf", "member", "hgt-absent", "10.0.0.1"], "\"hgt-absent\" has no hostgap programs"),
        (
            &["bpf", "splice", "hgt-absent", "--attach", "/sys/fs/cgroup"],
            "\"hgt-absent\" has no hostgap programs",
        ),
        (&["doctor", "--netns", "hgt-none"], "open namespace hgt-none"),
        (&["serve", "--listen", "127.0.0.1:0", "--cpus", "900"], "CPU 900 does not exist or is not allowed"),
        (&["lab", "down", "hgt-nothing"], "no topology \"hgt-nothing\" is up"),
    ];
    for (args, says) in absent {
        check(&sandbox.hostgap(args), 2, says);
    }
    sandbox.assert_nothing_left();
}
