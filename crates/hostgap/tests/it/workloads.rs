//! Races of every kind of workload, compared with other programs that do the same.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::race::against_the_schema;
use crate::turn::{Turn, check, check_race, json, stderr, stdout, turn};

/// A short race of one workload on a few paths, as JSON that matches its schema.
fn raced(turn: &Turn, args: &[&str]) -> Value {
    let output = turn.run_race(&[&["--rounds", "2", "--seed", "7", "--json"], args].concat());
    check_race(&output, "");
    let result = json(&output);
    assert_eq!(against_the_schema(&result), Vec::<String>::new());
    result
}

/// The candidates' entries at a load, without those that have no valid trial.
fn rates(result: &Value, load: usize) -> Vec<&Value> {
    let candidates = result["candidates"].as_array().unwrap();
    let rates = candidates.iter().map(|candidate| &candidate["rates"][load]);
    rates.filter(|rate| rate["trials"].as_u64().unwrap() > 0).collect()
}

/// Whether anything was answered. On a busy machine all of it may come when the time of the measurement is over.
fn has_answers(rate: &Value) -> bool {
    rate["service_ns"]["count"].as_u64().unwrap() > 0
}

#[test]
fn requests_and_answers_of_bytes_cross_every_kind_of_path() {
    let turn = turn();
    for kind in ["tcp-rr", "udp-rr"] {
        let paths = ["--paths", "docker,bridge+vxlan,macvlan", "--workload", kind];
        let args = [&paths[..], &["--body", "64,1400", "--rate", "1k", "--connections", "4"]].concat();
        let result = raced(&turn, &args);
        assert_eq!(result["experiment"]["workload"]["kind"], kind);
        assert!(result["server"].as_str().unwrap().starts_with("hostgap serve"));
        for load in 0..4 {
            for rate in rates(&result, load) {
                assert_eq!(
                    (&rate["connection_errors"], &rate["unexpected"]),
                    (&0.into(), &0.into()),
                    "{rate}"
                );
                assert!(has_answers(rate), "{rate}");
                assert!(rate.get("carried").is_none());
            }
        }
        turn.assert_nothing_left();
    }
}

#[test]
fn calls_cross_every_kind_of_path() {
    let turn = turn();
    let args = ["--paths", "docker,bridge+vxlan,macvlan", "--workload", "grpc", "--connections", "4"];
    let result = raced(&turn, &[&args[..], &["--body", "64,20k", "--rate", "500"]].concat());
    assert_eq!(result["experiment"]["workload"]["kind"], "grpc");
    assert!(result["server"].as_str().unwrap().starts_with("hostgap serve"));
    // For each size: its capacity, the closed loop, and the rate.
    assert_eq!(result["capacities"].as_array().unwrap().len(), 2);
    for load in 0..4 {
        for rate in rates(&result, load) {
            assert_eq!((&rate["connection_errors"], &rate["unexpected"]), (&0.into(), &0.into()), "{rate}");
            assert!(has_answers(rate), "{rate}");
        }
    }
    check(&turn.run_race(&["--workload", "grpc", "--tls"]), 2, "only HTTP (http, connect, download) has it");
    check(&turn.run_race(&["--workload", "grpc", "--server", "nginx"]), 2, "and answers none");
    turn.assert_nothing_left();
}

#[test]
fn streams_are_read_by_what_arrives() {
    let turn = turn();
    let paths = ["--paths", "docker,bridge+vxlan,macvlan", "--ipv6"];
    let result = raced(&turn, &[&paths[..], &["--workload", "tcp-stream", "--connections", "2"]].concat());
    assert!(result["capacities"].as_array().unwrap().is_empty());
    for rate in rates(&result, 0) {
        assert!(rate["carried"]["mbit_per_s"].as_f64().unwrap() > 1.0, "{rate}");
        assert!(rate["cpu_us_per_request"].is_number());
    }
    let udp = ["--workload", "udp-stream", "--body", "64,1400", "--rate", "2k"];
    let result = raced(&turn, &[&paths[..], &udp].concat());
    assert_eq!(result["loads"].as_array().unwrap().len(), 4);
    for rate in rates(&result, 1) {
        let carried = &rate["carried"];
        let [sent, received] =
            ["sent_packets_per_s", "received_packets_per_s"].map(|of| carried[of].as_f64().unwrap());
        assert!(sent > 0.0 && received > 0.0 && sent <= 2000.0, "{carried}");
        let loss = carried["loss"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&loss), "{carried}");
    }
    turn.assert_nothing_left();
}

#[test]
fn packets_are_read_by_the_cpu_time_of_one() {
    let turn = turn();
    let args = ["--workload", "packets", "--paths", "xdp-drop,nft-input-ct", "--body", "64,1514"];
    let result = raced(&turn, &args);
    assert_eq!(result["loads"].as_array().unwrap().len(), 2);
    let names: Vec<&str> =
        result["candidates"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["host", "host again", "xdp-drop", "nft-input-ct"]);
    for rate in rates(&result, 0).into_iter().chain(rates(&result, 1)) {
        let frames = &rate["frames"];
        assert!(frames["generator_ns_per_packet"].as_f64().unwrap() > 0.0, "{rate}");
        assert!(frames["packets"].as_u64().unwrap() > 0 && rate["cpu_us_per_request"].is_null(), "{rate}");
    }
    let packets = |args: &[&str]| turn.run_race(&[&["--workload", "packets"], args].concat());
    check(&packets(&["--paths", "xdp-dorp"]), 2, "did you mean xdp-drop?");
    check(&packets(&["--paths", "docker"]), 2, "`docker` is no filter of packets");
    check(&packets(&["--body", "59"]), 2, "60 to 1514 is expected");
    check(&packets(&["--rate", "5k"]), 2, "frames are made as fast as they are judged");
    let shown = packets(&["--paths", "nft-ingress", "--show-commands"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success() && text.contains("hook ingress device \"eth0\""), "{text}");
    assert!(
        text.contains("# remove: ") && !text.contains("# serve: ") && !text.contains("rps_cpus"),
        "{text}"
    );
    turn.assert_nothing_left();
}

#[test]
fn downloads_run_to_their_end() {
    let turn = turn();
    let args = ["--paths", "docker,bridge+vxlan", "--workload", "download", "--body", "300k,3M"];
    let result = raced(&turn, &[&args[..], &["--connections", "3", "--objects", "2"]].concat());
    assert_eq!(result["loads"].as_array().unwrap().len(), 2);
    for load in 0..2 {
        for rate in rates(&result, load) {
            let trials = rate["trials"].as_u64().unwrap();
            assert_eq!(rate["response_ns"]["count"], 6 * trials, "{rate}");
            assert!(rate["carried"]["object_ms_mean"].as_f64().unwrap() > 0.0);
            assert!(rate["carried"]["mbit_per_s"].as_f64().unwrap() > 0.0);
        }
    }
    check(
        &turn.run_race(&["--workload", "download", "--duration", "10s"]),
        2,
        "--duration does not apply to downloads",
    );
    check(
        &turn.run_race(&["--workload", "tcp-stream", "--rate", "5k"]),
        2,
        "a stream of bytes goes as fast as it can",
    );
    turn.assert_nothing_left();
}

#[test]
fn connections_are_made_anew_and_sessions_resumed_or_not() {
    let turn = turn();
    let args =
        ["--paths", "docker,bridge+vxlan", "--workload", "connect", "--rate", "200", "--connections", "4"];
    let result = raced(&turn, &args);
    assert!(rates(&result, 1).iter().all(|rate| rate.get("handshakes").is_none()));
    for (more, reuses) in [(vec!["--tls"], true), (vec!["--tls", "--no-session-reuse"], false)] {
        let result = raced(&turn, &[&args[..], &more].concat());
        for rate in rates(&result, 0).into_iter().chain(rates(&result, 1)) {
            let [full, resumed] = ["full", "resumed"].map(|of| rate["handshakes"][of].as_u64().unwrap());
            assert!(if reuses { resumed > full } else { resumed == 0 && full > 0 }, "{rate}");
        }
    }
    // Over HTTP/1.0 our own responder closes without being asked.
    let old = ["--http", "1.0", "--server", "hostgap"];
    let result = raced(&turn, &[&args[..], &old].concat());
    assert_eq!(result["experiment"]["workload"]["http"], "1.0");
    for rate in rates(&result, 1) {
        assert_eq!((&rate["connection_errors"], &rate["unexpected"]), (&0.into(), &0.into()), "{rate}");
    }
    check(
        &turn.run_race(&["--http", "1.0"]),
        2,
        "`workload.http` is 1.0: only a connection for each request",
    );
    check(&turn.run_race(&["--workload", "connect", "--http", "3"]), 2, "`3` is no version of HTTP");
    // On connections that stay open, only the records mention TLS.
    let result = raced(&turn, &["--paths", "docker", "--tls", "--rate", "500", "--server", "hostgap"]);
    for rate in rates(&result, 1) {
        assert!(rate.get("handshakes").is_none() && has_answers(rate));
    }
    turn.assert_nothing_left();
}

/// Even on a machine with nginx, our own responder spends the CPU time.
#[test]
fn a_request_costs_the_server_what_the_workload_says() {
    let turn = turn();
    let costs = |cpu_us: u32| {
        let file = turn.out().join("costly.toml");
        let workload = format!("workload = {{ connections = 4, cpu_us = {cpu_us} }}");
        let text = format!("schema = 1\nname = \"costly\"\nrates = [\"10%\"]\nbuilds = 1\n{workload}\n");
        std::fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let result = raced(&turn, &[file, "--paths", "bridge+direct", "--no-realtime"]);
        assert!(result["server"].as_str().unwrap().starts_with("hostgap serve"), "{}", result["server"]);
        result
    };
    let most = |result: &Value| result["capacities"][0]["rate_per_s"].as_f64().unwrap();
    // The dear one takes longer than the slice from which the search for the capacity starts.
    let (cheap, dear) = (costs(1), costs(200_000));
    let cpus: linux::CpuSet = dear["machine"]["server_cpus"].as_str().unwrap().parse().unwrap();
    // A CPU can do 5 of them in a second, and a slice may end with answers to requests from before it began.
    assert!(most(&dear) <= 10.0 * cpus.len() as f64 && most(&cheap) > 20.0 * most(&dear), "{dear}");
    turn.assert_nothing_left();
}

/// The server of one candidate holds its answers back, and nobody else's does. Even on a machine with nginx, our own
/// responder answers all.
#[test]
fn a_planted_delay_is_in_its_candidate_alone() {
    let turn = turn();
    let file = turn.out().join("planted.toml");
    let planted = |name: &str, delay: &str| {
        format!(
            "[[candidates]]\npath = \"host\"\nname = \"{name}\"\nplant = {{ share = \"100%\", delay = \"{delay}\" }}\n"
        )
    };
    let text = ["schema = 1\nname = \"planted\"\nrates = [50]\nslice_ms = 1000\nbuilds = 1\n".to_owned()];
    let text = [&text[..], &[planted("control", "0us"), planted("late", "300ms")]].concat().concat();
    std::fs::write(&file, text).unwrap();
    let result = raced(&turn, &[file.to_str().unwrap()]);
    assert!(result["server"].as_str().unwrap().starts_with("hostgap serve"), "{}", result["server"]);
    let late = &result["candidates"][3];
    assert!(
        late["stands_for"].as_str().unwrap().ends_with("100% of its answers 300ms late, on purpose"),
        "{late}"
    );
    let median = |rate: &Value| rate["service_ns"]["p50"].as_f64().unwrap();
    // The closed loop is the first load. It has many answers, so no pause of the machine decides it.
    let medians: Vec<bool> = rates(&result, 0).into_iter().map(|rate| median(rate) >= 300e6).collect();
    assert_eq!(medians, [false, false, false, true], "{result}");
    let at_the_rate = &late["rates"][1];
    assert!(!has_answers(at_the_rate) || median(at_the_rate) >= 300e6, "{at_the_rate}");
    turn.assert_nothing_left();
}

/// A topology that stands for an outside program to judge.
struct Up<'a> {
    turn: &'a Turn,
    told: Value,
}

impl<'a> Up<'a> {
    fn of(turn: &'a Turn, args: &[&str]) -> Up<'a> {
        let output = turn.hostgap(&[&["lab", "up", "bridge+direct", "--json"], args].concat());
        check(&output, 0, "");
        Up { turn, told: json(&output) }
    }

    fn address(&self) -> String {
        self.told["address"].as_str().unwrap().to_owned()
    }

    fn host(&self) -> String {
        self.address().rsplit_once(':').unwrap().0.to_owned()
    }

    /// A program in the client's pod (`client_netns`) or the server's (`server_netns`), on that node's CPUs.
    /// It has the same scheduling class as ours, so that a busy machine does not slow down only one of them.
    fn inside(&self, pod: &str, program: &[&str]) -> Command {
        self.inside_as(pod, program, linux::cpu::can_realtime())
    }

    /// The same for programs that never wait: threads of streams have no real-time priority, since the kernel would stop
    /// them.
    fn inside_without_priority(&self, pod: &str, program: &[&str]) -> Command {
        self.inside_as(pod, program, false)
    }

    fn inside_as(&self, pod: &str, program: &[&str], realtime: bool) -> Command {
        let mut command = self.turn.command("ip");
        let cpus = self.told[pod.replace("netns", "cpus").as_str()].as_str().unwrap();
        command.args(["netns", "exec", self.told[pod].as_str().unwrap(), "taskset", "-c", cpus]);
        if realtime {
            command.args(["chrt", "--fifo", "10"]);
        }
        command.args(program);
        command
    }

    fn client(&self, program: &[&str]) -> String {
        let output = self.inside("client_netns", program).output().unwrap();
        assert!(output.status.success(), "{program:?}: {}{}", stdout(&output), stderr(&output));
        stdout(&output)
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.turn.hostgap(&["lab", "down"]);
    }
}

/// The figure that follows a name.
#[track_caller]
fn figure(text: &str, name: &str) -> f64 {
    let rest = text.split(name).nth(1).unwrap_or_else(|| panic!("{name:?} is not in {text}"));
    let number = rest.trim_start_matches([' ', ':', '=', '\t']).split([' ', '\t', '\n']).next().unwrap();
    number.parse().unwrap_or_else(|error| panic!("{error} in {number:?}: {text}"))
}

/// Two measurements agree within a factor of three. A single pair may not on a machine that does other work,
/// so the best of several counts. All programs that this thread starts go before that work, because those that
/// wait often would lose more of a shared CPU than those that seldom wait.
#[track_caller]
fn agree(what: &str, mut both: impl FnMut() -> (f64, f64)) {
    rustix::process::setpriority_process(None, -20).unwrap();
    let mut seen = Vec::new();
    for _ in 0..8 {
        let (ours, theirs) = both();
        seen.push((ours, theirs));
        if ours > 0.0 && (1.0 / 3.0..=3.0).contains(&(ours / theirs)) {
            return;
        }
    }
    panic!("{what}: ours and theirs differ by more than a factor of three: {seen:?}");
}

/// Our figure of a path in a closed loop, or 0 if no trial is valid.
fn ours(turn: &Turn, args: &[&str], figure: impl Fn(&Value) -> Option<f64>) -> f64 {
    let args = [&["--paths", "bridge+direct", "--rounds", "3", "--json"], args].concat();
    let output = turn.run_race(&args);
    check_race(&output, "");
    figure(&json(&output)["candidates"][2]["rates"][0]).unwrap_or(0.0)
}

#[test]
fn wrk_judges_requests_on_connections_that_stay() {
    let turn = turn();
    agree("requests", || {
        let up = Up::of(&turn, &[]);
        let text = up.client(&["wrk", "-t1", "-c8", "-d1s", &format!("http://{}/100", up.address())]);
        assert!(!text.contains("Non-2xx") && !text.contains("Socket errors"), "{text}");
        drop(up);
        let race = ["--connections", "8", "--rate", "500"];
        (ours(&turn, &race, |rate| rate["achieved_rps"].as_f64()), figure(&text, "Requests/sec"))
    });
    turn.assert_nothing_left();
}

#[test]
fn ab_judges_connections_and_downloads() {
    let turn = turn();
    agree("connections", || {
        let up = Up::of(&turn, &["--workload", "connect"]);
        let text = up.client(&["ab", "-q", "-n", "2000", "-c", "8", &format!("http://{}/100", up.address())]);
        assert_eq!((figure(&text, "Complete requests"), figure(&text, "Failed requests")), (2000.0, 0.0));
        assert_eq!(figure(&text, "HTML transferred"), 200_000.0);
        drop(up);
        let race = ["--workload", "connect", "--http", "1.0", "--connections", "8", "--rate", "500"];
        (ours(&turn, &race, |rate| rate["achieved_rps"].as_f64()), figure(&text, "Requests per second"))
    });
    agree("downloads", || {
        let up = Up::of(&turn, &["--workload", "download", "--body", "4M"]);
        let url = format!("http://{}/4194304", up.address());
        let text = up.client(&["ab", "-q", "-n", "200", "-c", "4", &url]);
        assert_eq!((figure(&text, "Complete requests"), figure(&text, "Failed requests")), (200.0, 0.0));
        assert_eq!(figure(&text, "HTML transferred"), 200.0 * 4_194_304.0);
        drop(up);
        let race = ["--workload", "download", "--http", "1.0", "--body", "4M", "--connections", "4"];
        let race = [&race[..], &["--objects", "5"]].concat();
        let mbit = ours(&turn, &race, |rate| rate["carried"]["mbit_per_s"].as_f64());
        // ab's kilobytes have 1024 bytes.
        (mbit, figure(&text, "Transfer rate") * 1024.0 * 8.0 / 1e6)
    });
    turn.assert_nothing_left();
}

/// The server of an outside program. Dropping this ends it.
struct Judge(std::process::Child);

impl Drop for Judge {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that no other server of this process has used.
fn port() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(5201);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}

/// What iperf3 (in its JSON) and sockperf print if they do not find their server. They may still exit with
/// success.
const ALONE: [&str; 4] =
    ["\"error\":", "No messages were received", "No valid observations found", "Connection refused"];

/// Runs a client until its server is ready.
fn once_ready(mut client: Command) -> String {
    for _ in 0..50 {
        let output = client.output().unwrap();
        let told = stdout(&output);
        if output.status.success() && !ALONE.iter().any(|alone| told.contains(alone)) {
            return told;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let output = client.output().unwrap();
    assert!(output.status.success(), "{client:?}: {}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

#[test]
fn iperf3_judges_streams() {
    let turn = turn();
    // Ours are bound to CPUs. On a busy machine a judge that chooses its own gets several times as much of them.
    let nodes = lab::NodeCpus::split(&linux::cpu::allowed().unwrap());
    let [client_cpu, server_cpu] =
        [nodes.client, nodes.server].map(|cpus| cpus.iter().next().unwrap().to_string());
    let theirs = |args: &[&str], kind: &str| {
        let up = Up::of(&turn, &["--workload", "connect"]);
        let (host, port) = (up.host(), port());
        let serve = ["iperf3", "-s", "-p", &port, "-A", &server_cpu];
        let _server = Judge(up.inside_without_priority("server_netns", &serve).spawn().unwrap());
        let ask = [&["iperf3", "-c", &host, "-p", &port, "-t", "1", "-J", "-A", &client_cpu], args].concat();
        let result: Value =
            serde_json::from_str(&once_ready(up.inside_without_priority("client_netns", &ask))).unwrap();
        let sum = &result["end"][kind];
        assert!(sum["bytes"].as_f64().unwrap() > 0.0, "{result}");
        sum.clone()
    };
    agree("TCP", || {
        let sum = theirs(&[], "sum_received");
        let mbit = ours(&turn, &["--workload", "tcp-stream"], |rate| rate["carried"]["mbit_per_s"].as_f64());
        (mbit, sum["bits_per_second"].as_f64().unwrap() / 1e6)
    });
    agree("UDP", || {
        let sum = theirs(&["-u", "-b", "0", "-l", "1400"], "sum");
        let packets = sum["packets"].as_f64().unwrap() / sum["seconds"].as_f64().unwrap();
        let race = ["--workload", "udp-stream", "--body", "1400"];
        (ours(&turn, &race, |rate| rate["carried"]["sent_packets_per_s"].as_f64()), packets)
    });
    turn.assert_nothing_left();
}

#[test]
fn sockperf_judges_round_trips() {
    let turn = turn();
    for (kind, protocol) in [("tcp-rr", &["--tcp"][..]), ("udp-rr", &[])] {
        agree(kind, || {
            let up = Up::of(&turn, &["--workload", "connect"]);
            let (host, port) = (up.host(), port());
            let serve = [&["sockperf", "server", "-i", &host, "-p", &port], protocol].concat();
            let _server = Judge(up.inside("server_netns", &serve).spawn().unwrap());
            let ask = ["sockperf", "ping-pong", "-i", &host, "-p", &port, "-m", "100", "-t", "1"];
            let text = once_ready(up.inside("client_netns", &[&ask[..], protocol].concat()));
            drop(up);
            let race = ["--workload", kind, "--connections", "1", "--rate", "500"];
            // With one request at a time, the rate is the inverse of the round trip. sockperf reports half a
            // round trip.
            let rps = ours(&turn, &race, |rate| rate["achieved_rps"].as_f64());
            (if rps > 0.0 { 1e6 / rps } else { 0.0 }, 2.0 * figure(&text, "avg-latency"))
        });
    }
    turn.assert_nothing_left();
}

#[test]
fn openssl_judges_whether_sessions_are_resumed() {
    let turn = turn();
    let up = Up::of(&turn, &["--workload", "connect", "--tls"]);
    let (address, file) = (up.address(), turn.out().join("session"));
    let file = file.to_str().unwrap();
    // A request is sent so that openssl reads the tickets that follow the handshake before it ends.
    let ask = |session: &str, version: &str| {
        let script = format!(
            "printf 'GET /100 HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n' | \
             openssl s_client -connect {address} {version} {session} {file} -ign_eof"
        );
        up.client(&["sh", "-c", &script])
    };
    for version in ["-tls1_3", "-tls1_2"] {
        let first = ask("-sess_out", version);
        assert!(first.contains("New, TLS") && first.contains("200 OK"), "{first}");
        let again = ask("-sess_in", version);
        assert!(again.contains("Reused, TLS") && again.contains("200 OK"), "{again}");
    }
    drop(up);
    turn.assert_nothing_left();
}
