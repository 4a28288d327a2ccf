//! Workloads, compared with other programs that do the same: wrk, ab, iperf3, sockperf, openssl.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::sandbox::{Sandbox, check, check_race, json, sandbox, stderr, stdout};

/// A topology that stands for an outside program to judge.
struct Up<'a> {
    sandbox: &'a Sandbox,
    described: Value,
}

impl<'a> Up<'a> {
    fn of(sandbox: &'a Sandbox, args: &[&str]) -> Up<'a> {
        let output = sandbox.hostgap(&[&["lab", "up", "bridge+direct", "--json"], args].concat());
        check(&output, 0, "");
        Up { sandbox, described: json(&output) }
    }

    fn address(&self) -> String {
        self.described["address"].as_str().unwrap().to_owned()
    }

    fn host(&self) -> String {
        self.address().rsplit_once(':').unwrap().0.to_owned()
    }

    /// A program in the client's pod (`client_netns`) or the server's (`server_netns`), on that node's CPUs.
    /// It has the same scheduling class as ours, so that a busy machine does not slow down only one of them.
    fn inside(&self, pod: &str, program: &[&str]) -> Command {
        self.inside_as(pod, program, linux::cpu::can_realtime())
    }

    /// The same for programs that never wait: threads of streams have no real-time priority, since the
    /// kernel would stop them.
    fn inside_without_priority(&self, pod: &str, program: &[&str]) -> Command {
        self.inside_as(pod, program, false)
    }

    fn inside_as(&self, pod: &str, program: &[&str], realtime: bool) -> Command {
        let mut command = self.sandbox.command("ip");
        let cpus = self.described[pod.replace("netns", "cpus").as_str()].as_str().unwrap();
        command.args(["netns", "exec", self.described[pod].as_str().unwrap(), "taskset", "-c", cpus]);
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
        self.sandbox.hostgap(&["lab", "down"]);
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
fn ours(sandbox: &Sandbox, args: &[&str], figure: impl Fn(&Value) -> Option<f64>) -> f64 {
    let args = [&["--paths", "bridge+direct", "--rounds", "3", "--json"], args].concat();
    let output = sandbox.run_race(&args);
    check_race(&output, "");
    figure(&json(&output)["candidates"][2]["rates"][0]).unwrap_or(0.0)
}

#[test]
fn wrk_judges_requests_on_connections_that_stay() {
    let sandbox = sandbox();
    agree("requests", || {
        let up = Up::of(&sandbox, &[]);
        let text = up.client(&["wrk", "-t1", "-c8", "-d1s", &format!("http://{}/100", up.address())]);
        assert!(!text.contains("Non-2xx") && !text.contains("Socket errors"), "{text}");
        drop(up);
        let race = ["--connections", "8", "--rate", "500"];
        (ours(&sandbox, &race, |rate| rate["achieved_rps"].as_f64()), figure(&text, "Requests/sec"))
    });
    sandbox.assert_nothing_left();
}

#[test]
fn ab_judges_connections_and_downloads() {
    let sandbox = sandbox();
    agree("connections", || {
        let up = Up::of(&sandbox, &["--workload", "connect"]);
        let text = up.client(&["ab", "-q", "-n", "2000", "-c", "8", &format!("http://{}/100", up.address())]);
        assert_eq!((figure(&text, "Complete requests"), figure(&text, "Failed requests")), (2000.0, 0.0));
        assert_eq!(figure(&text, "HTML transferred"), 200_000.0);
        drop(up);
        let race = ["--workload", "connect", "--http", "1.0", "--connections", "8", "--rate", "500"];
        (ours(&sandbox, &race, |rate| rate["achieved_rps"].as_f64()), figure(&text, "Requests per second"))
    });
    agree("downloads", || {
        let up = Up::of(&sandbox, &["--workload", "download", "--body", "4M"]);
        let url = format!("http://{}/4194304", up.address());
        let text = up.client(&["ab", "-q", "-n", "200", "-c", "4", &url]);
        assert_eq!((figure(&text, "Complete requests"), figure(&text, "Failed requests")), (200.0, 0.0));
        assert_eq!(figure(&text, "HTML transferred"), 200.0 * 4_194_304.0);
        drop(up);
        let race = ["--workload", "download", "--http", "1.0", "--body", "4M", "--connections", "4"];
        let race = [&race[..], &["--objects", "5"]].concat();
        let mbit = ours(&sandbox, &race, |rate| rate["carried"]["mbit_per_s"].as_f64());
        // ab's kilobytes have 1024 bytes.
        (mbit, figure(&text, "Transfer rate") * 1024.0 * 8.0 / 1e6)
    });
    sandbox.assert_nothing_left();
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
        let printed = stdout(&output);
        if output.status.success() && !ALONE.iter().any(|alone| printed.contains(alone)) {
            return printed;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let output = client.output().unwrap();
    assert!(output.status.success(), "{client:?}: {}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

#[test]
fn iperf3_judges_streams() {
    let sandbox = sandbox();
    // Ours are bound to CPUs. On a busy machine a judge that chooses its own gets several times as much of them.
    let nodes = lab::NodeCpus::split(&linux::cpu::allowed().unwrap());
    let [client_cpu, server_cpu] =
        [nodes.client, nodes.server].map(|cpus| cpus.iter().next().unwrap().to_string());
    let theirs = |args: &[&str], kind: &str| {
        let up = Up::of(&sandbox, &["--workload", "connect"]);
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
        let mbit =
            ours(&sandbox, &["--workload", "tcp-stream"], |rate| rate["carried"]["mbit_per_s"].as_f64());
        (mbit, sum["bits_per_second"].as_f64().unwrap() / 1e6)
    });
    agree("UDP", || {
        let sum = theirs(&["-u", "-b", "0", "-l", "1400"], "sum");
        let packets = sum["packets"].as_f64().unwrap() / sum["seconds"].as_f64().unwrap();
        let race = ["--workload", "udp-stream", "--body", "1400"];
        (ours(&sandbox, &race, |rate| rate["carried"]["sent_packets_per_s"].as_f64()), packets)
    });
    sandbox.assert_nothing_left();
}

#[test]
fn sockperf_judges_round_trips() {
    let sandbox = sandbox();
    for (kind, protocol) in [("tcp-rr", &["--tcp"][..]), ("udp-rr", &[])] {
        agree(kind, || {
            let up = Up::of(&sandbox, &["--workload", "connect"]);
            let (host, port) = (up.host(), port());
            let serve = [&["sockperf", "server", "-i", &host, "-p", &port], protocol].concat();
            let _server = Judge(up.inside("server_netns", &serve).spawn().unwrap());
            let ask = ["sockperf", "ping-pong", "-i", &host, "-p", &port, "-m", "100", "-t", "1"];
            let text = once_ready(up.inside("client_netns", &[&ask[..], protocol].concat()));
            drop(up);
            let race = ["--workload", kind, "--connections", "1", "--rate", "500"];
            // With one request at a time, the rate is the inverse of the round trip. sockperf reports half a
            // round trip.
            let rps = ours(&sandbox, &race, |rate| rate["achieved_rps"].as_f64());
            (if rps > 0.0 { 1e6 / rps } else { 0.0 }, 2.0 * figure(&text, "avg-latency"))
        });
    }
    sandbox.assert_nothing_left();
}

#[test]
fn openssl_judges_whether_sessions_are_resumed() {
    let sandbox = sandbox();
    let up = Up::of(&sandbox, &["--workload", "connect", "--tls"]);
    let (address, file) = (up.address(), sandbox.out().join("session"));
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
    sandbox.assert_nothing_left();
}
