//! `hostgap serve` and `hostgap load`, alone, over loopback.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Output};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use rustix::process::Signal;
use serde_json::Value;

use crate::sandbox::{HOSTGAP, Sandbox, check, json, kill, sandbox, stderr, stdout, text, until};

/// A responder on a port of the kernel's choice, and its URL.
pub(crate) fn serve(sandbox: &Sandbox, args: &[&str]) -> (Child, String) {
    let mut child =
        sandbox.command(HOSTGAP).args(["serve", "--listen", "127.0.0.1:0"]).args(args).spawn().unwrap();
    // A buffer of one byte leaves the rest of the output to [`end`].
    let mut line = String::new();
    let mut stderr = BufReader::with_capacity(1, child.stderr.as_mut().unwrap());
    stderr.read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
    (child, url)
}

pub(crate) fn end(mut server: Child, signal: Signal) -> String {
    kill(server.id(), signal);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    server.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
    rest
}

#[test]
fn a_table_and_json_of_a_valid_run() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &["--body", "4k"]);
    let table = stdout(&valid(&sandbox, &url, &[]));
    assert!(table.contains("p50") && table.contains("p99") && table.contains("\nchecks "), "{table}");
    let value = json(&valid(&sandbox, &url, &["--json"]));
    assert_eq!(
        (&value["schema"], &value["intended"], &value["answered"]),
        (&2.into(), &500.into(), &500.into())
    );
    check_fields(&value);
    assert_eq!(text(sandbox.command("curl").args(["-sf", &format!("{url}123")])).len(), 123);
    let account = end(server, Signal::TERM);
    let answered: u64 = account.split_whitespace().nth(2).unwrap().parse().unwrap();
    // Every run sent 500 requests, and curl one.
    assert_eq!(answered % 500, 1, "{account}");
}

/// Checks what docs/json.md promises for a valid run of 500 requests.
#[track_caller]
fn check_fields(value: &Value) {
    assert_eq!((&value["valid"], &value["missed"], &value["dropped"]), (&true.into(), &0.into(), &0.into()));
    assert_eq!((&value["protocol"], &value["silent"]), (&"http".into(), &0.into()));
    assert!(value["first_error"].is_null(), "{value}");
    for by in ["unanswered", "expired", "lost", "unsent"] {
        assert_eq!(value["missed_by"][by], 0, "{by}");
    }
    for by in ["answers", "connections", "late"] {
        assert_eq!(value["dropped_by"][by], 0, "{by}");
    }
    for part in ["total", "answers", "connections"] {
        // All requests were sent in time, so no backlog remained at the end.
        assert_eq!(value["backlog_ns"][part], 0, "{part}");
        assert!(value["overdue_ns"][part].is_u64(), "{part}");
    }
    assert_eq!(value["requested_rps"], 500.0);
    assert_eq!(value["achieved_rps"], 500.0);
    for kind in ["refused", "reset", "closed", "malformed", "unasked", "timeout", "tls", "other"] {
        assert_eq!(value["errors"][kind], 0, "{kind}");
    }
    for times in ["response_ns", "service_ns", "lag_ns", "late_ns"] {
        let times = &value[times];
        assert_eq!(times["count"], 500);
        assert!(
            times["p50"].as_u64() <= times["p90"].as_u64() && times["p90"].as_u64() <= times["max"].as_u64()
        );
        for percentile in ["p50", "p90", "p99", "p99_9", "p99_99", "p99_999"] {
            assert!(times.as_object().unwrap().contains_key(percentile), "{percentile}");
            assert!(times["interval"].as_object().unwrap().contains_key(percentile), "{percentile}");
        }
        // Of 500 samples only five lie beyond it.
        assert!(times["p99"].is_null() && times["interval"]["p99"].is_null());
    }
    let checks = value["checks"].as_array().unwrap();
    let ids = checks.iter().map(|check| check["id"].as_str().unwrap()).collect::<Vec<_>>();
    let expected = [
        "rate",
        "answered",
        "errors",
        "late",
        "gaps",
        "stationarity",
        "independence",
        "run_queue",
        "switches",
        "headroom",
        "steal",
    ];
    assert_eq!(ids, expected);
    assert!(checks[..3].iter().all(|check| check["kind"] == "truth" && check["passed"] == true));
    assert!(checks[3..].iter().all(|check| check["kind"] == "doubt"));
    let failed = checks.iter().filter(|check| check["passed"] == false).map(|check| check["id"].clone());
    assert_eq!(value["failed_checks"], failed.collect::<Value>());
}

/// A run to the end whose generator is stopped again and again.
fn disturbed(sandbox: &Sandbox, url: &str, args: &[&str]) -> Output {
    let brief = ["--rate", "500", "--duration", "2s", "--warmup", "0s", "--connections", "8", "--json"];
    let mut load =
        sandbox.command(HOSTGAP).args([&["load", url], &brief[..], args].concat()).spawn().unwrap();
    while load.try_wait().unwrap().is_none() {
        for signal in [Signal::STOP, Signal::CONT] {
            kill(load.id(), signal);
            std::thread::sleep(Duration::from_millis(60));
        }
    }
    load.wait_with_output().unwrap()
}

#[test]
fn a_disturbed_run_leaves_a_doubt_and_fails_under_strict() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &[]);
    let fails = |value: &Value, kind: &str| {
        let failed = |check: &&Value| check["passed"] == false && check["kind"] == kind;
        value["checks"].as_array().unwrap().iter().filter(failed).count()
    };
    let output = disturbed(&sandbox, &url, &[]);
    let value = json(&output);
    assert!(value["failed_checks"].as_array().unwrap().contains(&"late".into()), "{value}");
    // If the generator stood still at the schedule's end, the rate is missed. Otherwise there is only a
    // doubt, which is reported and nothing more.
    let failed = fails(&value, "truth");
    assert_eq!(value["valid"], failed == 0);
    assert_eq!(output.status.code(), Some(if failed == 0 { 0 } else { 3 }), "{}", stderr(&output));
    let output = disturbed(&sandbox, &url, &["--strict"]);
    let value = json(&output);
    assert_eq!(
        (output.status.code(), &value["valid"], &value["strict"]),
        (Some(3), &false.into(), &true.into())
    );
    assert!(stderr(&output).contains("not valid: the generator itself was late"), "{}", stderr(&output));
    let complaints = value["complaints"].as_array().unwrap().len();
    assert_eq!(complaints, fails(&value, "truth") + fails(&value, "doubt"));
    end(server, Signal::INT);
}

#[test]
fn a_log_that_other_tools_read_has_the_values_of_the_json() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &["--body", "4k"]);
    let path = sandbox.out().join("run.hlog");
    let value = json(&valid(&sandbox, &url, &["--json", "--hlog", path.to_str().unwrap()]));
    let log = std::fs::read(&path).unwrap();
    let mut deserializer = Deserializer::new();
    let mut tags = Vec::new();
    let (mut started, mut based) = (None, None);
    for entry in IntervalLogIterator::new(&log) {
        match entry.unwrap() {
            LogEntry::StartTime(time) => started = Some(time),
            LogEntry::BaseTime(time) => based = Some(time),
            LogEntry::Interval(interval) => {
                let tag = interval.tag().unwrap().as_str().to_owned();
                let bytes = BASE64_STANDARD.decode(interval.encoded_histogram()).unwrap();
                let times: Histogram<u64> = deserializer.deserialize(&mut bytes.as_slice()).unwrap();
                let times_of_json = &value[format!("{tag}_ns")];
                assert_eq!(times_of_json["count"], times.len(), "{tag}");
                assert_eq!(times_of_json["p50"], times.value_at_quantile(0.5), "{tag}");
                assert_eq!(times_of_json["max"], times.max(), "{tag}");
                assert_eq!(interval.duration().as_secs_f64(), value["duration_s"].as_f64().unwrap());
                tags.push(tag);
            }
        }
    }
    assert_eq!(tags, ["response", "service", "lag"]);
    assert!(started.is_some() && started == based);
    let nowhere = sandbox.hostgap(&["load", &url, "--hlog", "/nowhere/run.hlog"]);
    check(&nowhere, 1, "could not create /nowhere/run.hlog");
    end(server, Signal::INT);
}

/// A run during which the machine was not too busy. If another program takes a few milliseconds, the run is
/// rightly not valid, and is repeated.
fn valid(sandbox: &Sandbox, url: &str, args: &[&str]) -> Output {
    let brief =
        ["--rate", "500", "--duration", "1s", "--warmup", "0s", "--connections", "8", "--expect-body", "4k"];
    let mut said = Vec::new();
    for _ in 0..10 {
        let output = sandbox.hostgap(&[&["load", url, "--fifo", "20"], &brief[..], args].concat());
        if output.status.success() {
            return output;
        }
        check(&output, 3, "were sent in time");
        said.push(stderr(&output));
    }
    panic!("ten times: {said:?}");
}

#[test]
fn a_run_that_is_not_valid_is_code_3() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &[]);
    let wrong = sandbox.hostgap(&[
        "load",
        &url,
        "--rate",
        "200",
        "--duration",
        "500ms",
        "--expect-body",
        "7",
        "--warmup",
        "0s",
    ]);
    assert_eq!(wrong.status.code(), Some(3));
    assert!(stderr(&wrong).contains("the run is not valid: "), "{}", stderr(&wrong));
    assert!(stderr(&wrong).contains("status 200 and 100 bytes"), "{}", stderr(&wrong));
    // More than any generator can do.
    let beyond = sandbox.hostgap(&["load", &url, "--rate", "50M", "--duration", "500ms", "--warmup", "0s"]);
    assert_eq!(beyond.status.code(), Some(3), "{}", stderr(&beyond));
    assert!(stderr(&beyond).contains("% off of the 50000000/s asked"), "{}", stderr(&beyond));
    end(server, Signal::INT);
}

#[test]
fn a_port_in_use_and_one_without_a_listener_are_reported() {
    let sandbox = sandbox();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = sandbox.hostgap(&["serve", "--listen", &address]);
    check(&output, 1, &format!("could not listen on {address}: Address already in use"));
    drop(taken);
    // A child that another test forked meanwhile holds the listener until it executes its program.
    until("nothing listens", || TcpStream::connect(&address).is_err());
    let output = sandbox.hostgap(&["load", &format!("http://{address}/"), "--duration", "1s"]);
    check(&output, 1, &format!("could not connect to {address}: Connection refused"));
}

#[test]
fn bad_input() {
    let sandbox = sandbox();
    let fresh = ["load", "http://127.0.0.1:1/", "--no-keepalive"];
    let fresh = |more: &[&'static str]| [&fresh[..], more].concat();
    for (more, says) in [
        (
            &["--when-busy", "grow"][..],
            "--no-keepalive cannot be used with --when-busy grow: its connections",
        ),
        (&["--when-busy", "pipeline"], "--no-keepalive cannot be used with --when-busy pipeline"),
        (&["--pipeline", "2"], "--no-keepalive cannot be used with --pipeline: a connection has one request"),
        (&["--connections-max", "100"], "--no-keepalive cannot be used with --connections-max"),
        (&["--timestamps"], "--no-keepalive cannot be used with --timestamps"),
        (&["--header", "connection: keep-alive"], "leave out --header Connection"),
        (&["--no-session-reuse"], "--no-session-reuse are for https://"),
    ] {
        check(&sandbox.hostgap(&fresh(more)), 2, says);
    }
    let bad: [(&[&str], &str); 27] = [
        (&["load", "http://127.0.0.1:1/", "--http", "1.0"], "so it needs --no-keepalive"),
        (&["load", "http://127.0.0.1:1/", "--http", "2"], "[possible values: 1.1, 1.0]"),
        (&["load", "tcp://127.0.0.1:1", "--no-keepalive"], "--no-keepalive is only for http:// and https://"),
        (&["load", "udp://127.0.0.1:1", "--http", "1.1"], "--http is only for http:// and https://"),
        (&["load", "http://127.0.0.1:1/", "-n", "5", "--duration", "1s"], "cannot be used with"),
        (&["load", "http://127.0.0.1:1/", "-n", "5", "--find-max", "--slo", "p50<1s"], "cannot be used with"),
        (
            &["load", "http://127.0.0.1:1/", "-n", "5", "--arrivals", "poisson"],
            "-n: with --arrivals poisson the instant",
        ),
        (&["load", "http://127.0.0.1:1/", "-n", "0"], "0 is not in 1.."),
        (&["load", "ftp://x"], "http://HOST"),
        (&["load", "http://127.0.0.1/", "--rate", "0"], "0"),
        (&["load", "http://127.0.0.1/", "--rate", "9999M"], "a rate of 9999M is not possible"),
        (&["load", "http://127.0.0.1/", "--rate", "fast"], "`fast` is not a rate"),
        (&["load", "http://127.0.0.1/", "--duration", "0s"], "--duration must be more than zero"),
        (&["load", "http://127.0.0.1/", "--connections", "1", "--threads", "2"], "too few"),
        (&["load", "http://127.0.0.1/", "--expect-body", "1x"], "`1x` is not a size"),
        (&["load"], "<URL>"),
        (&["load", "http://a:1/", "http://b:1/"], "all URLs of a run must be of one server"),
        (&["load", "tcp://127.0.0.1"], "a port is missing"),
        (&["load", "tcp://127.0.0.1:1/x"], "without a path"),
        (&["load", "udp://127.0.0.1:1", "--request-bytes", "4"], "datagrams of 8 to 65507 bytes"),
        (&["load", "http://127.0.0.1:1/", "--header", "x"], "`x` is not a field"),
        (&["load", "http://127.0.0.1:1/", "--weights", "1,2"], "2 numbers for 1 URLs"),
        (&["load", "http://127.0.0.1:1/", "--insecure"], "for https://"),
        (&["load", "http://127.0.0.1:1/", "--find-max", "--slo", "99<1ms"], "is not a limit"),
        (&["load", "https://127.0.0.1:1/", "--tls-ca", "/nowhere"], "/nowhere cannot be read"),
        (&["serve", "--listen", "nowhere"], "nowhere"),
        (&["serve", "--body", "2M"], "at most 1M"),
    ];
    for (args, says) in bad {
        check(&sandbox.hostgap(args), 2, says);
    }
}

#[test]
fn several_rates_and_random_arrivals() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &[]);
    let args =
        ["--rate", "200,400", "--arrivals", "poisson", "--duration", "500ms", "--warmup", "0s", "--json"];
    let output = sandbox.hostgap(&[&["load", &url, "--fifo", "20"], &args[..]].concat());
    let value = json(&output);
    let runs = value["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for (run, rate) in runs.iter().zip([200.0, 400.0]) {
        assert_eq!((&run["requested_rps"], &run["arrivals"]), (&rate.into(), &"poisson".into()));
        let intended = run["intended"].as_f64().unwrap();
        assert!((intended - rate / 2.0).abs() < 6.0 * (rate / 2.0).sqrt(), "{intended}");
    }
    end(server, Signal::TERM);
}

#[test]
fn the_highest_rate_within_limits_is_found() {
    let sandbox = sandbox();
    // A server that takes 10 ms can answer at most 400 requests a second over 4 connections.
    let (server, url) = serve(&sandbox, &["--delay", "10ms"]);
    let args =
        ["--find-max", "--slo", "p90<100ms", "--connections", "4", "--duration", "2s", "--warmup", "0s"];
    let output = sandbox.hostgap(&[&["load", &url, "--json", "--fifo", "20"], &args[..]].concat());
    let value = json(&output);
    let max = value["max_rps"].as_f64().unwrap_or_else(|| panic!("{} {}", stdout(&output), stderr(&output)));
    assert!((40.0..=410.0).contains(&max), "{max}");
    assert!(value["tried"].as_array().unwrap().len() >= 5);
    assert!(value["run"]["response_ns"]["p90"].as_u64().unwrap() < 100_000_000);
    // The delay alone breaks these limits.
    let args =
        ["--find-max", "--slo", "p50<5ms", "--connections", "4", "--duration", "500ms", "--warmup", "0s"];
    let output = sandbox.hostgap(&[&["load", &url], &args[..]].concat());
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("/s: no, p50 was 1"), "{}", stderr(&output));
    assert!(stdout(&output).contains("no rate was found"), "{}", stdout(&output));
    end(server, Signal::TERM);
}

#[test]
fn a_search_warms_up_whatever_happens_when_connections_are_busy() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &[]);
    for when_busy in ["wait", "pipeline", "grow", "drop"] {
        let args = ["--find-max", "--slo", "p50<5s", "--duration", "500ms", "--warmup", "100ms", "--json"];
        let output = sandbox.hostgap(&[&["load", &url, "--when-busy", when_busy], &args[..]].concat());
        let value = json(&output);
        assert!(value["tried"].as_array().is_some_and(|tried| !tried.is_empty()), "{}", stderr(&output));
    }
    end(server, Signal::TERM);
}

#[test]
fn datagrams_bytes_and_sockets_in_the_file_system() {
    let sandbox = sandbox();
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let unix = format!("unix:{}", socket.display());
    let listen = ["serve", "--listen", "tcp:127.0.0.1:0", "--listen", "udp:127.0.0.1:0", "--listen", &unix];
    let mut server = sandbox.command(HOSTGAP).args(listen).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut place = |scheme: &str| {
        let line = lines.next().unwrap();
        let at = line.find(scheme).unwrap_or_else(|| panic!("{line}"));
        line[at..].split_whitespace().next().unwrap().to_owned()
    };
    let address = |text: String| text.split_once(':').unwrap().1.trim_start_matches('/').to_owned();
    let (tcp, udp) = (address(place("tcp:")), address(place("udp:")));
    for url in [format!("tcp://{tcp}"), format!("udp://{udp}")] {
        let args = ["--rate", "200", "--duration", "300ms", "--warmup", "0s", "--json", "--fifo", "20"];
        let value = json(&sandbox.hostgap(&[&["load", &url], &args[..]].concat()));
        assert_eq!((&value["answered"], &value["connection_errors"]), (&60.into(), &0.into()), "{url}");
    }
    let path = socket.display().to_string();
    let args = ["--unix-socket", &path, "--rate", "200", "--duration", "300ms", "--warmup", "0s", "--json"];
    let value =
        json(&sandbox.hostgap(&[&["load", "http://localhost/7", "--expect-body", "7"], &args[..]].concat()));
    assert_eq!(value["answered"], 60);
    kill(server.id(), Signal::TERM);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn calls_of_grpc() {
    let sandbox = sandbox();
    let mut server =
        sandbox.command(HOSTGAP).args(["serve", "--listen", "grpc:127.0.0.1:0"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, server.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.trim().strip_prefix("listening on grpc:").unwrap_or_else(|| panic!("{line}")).to_owned();
    let url = format!("grpc://{address}");
    for rate in ["max", "1k"] {
        let args = ["load", &url, "-n", "300", "--rate", rate, "--connections", "4", "--request-bytes", "1k"];
        let value = json(&sandbox.hostgap(&[&args[..], &["--json"]].concat()));
        assert_eq!((&value["protocol"], &value["answered"]), (&"grpc".into(), &300.into()), "{value}");
        assert_eq!((&value["connection_errors"], &value["reconnects"]), (&0.into(), &0.into()));
        assert_eq!(value["unexpected"]["grpc"], serde_json::json!({}));
    }
    for (args, says) in [
        (&["--no-keepalive"][..], "--no-keepalive is only for http:// and https://"),
        (&["--response-bytes", "5"], "the answer to a gRPC call has the size of its request"),
        (&["--request-bytes", "2M"], "a body of at most 1048576 bytes"),
        (&["--pipeline", "2", "--rate", "max"], "is the only one on a connection that stays"),
        (&["--timestamps"], "and is not stamped"),
    ] {
        check(&sandbox.hostgap(&[&["load", &url], args].concat()), 2, says);
    }
    // The server uses another protocol.
    let (http, other) = serve(&sandbox, &[]);
    let other = other.replace("http:", "grpc:");
    let wrong = ["load", other.trim_end_matches('/'), "-n", "10"];
    let output = sandbox.hostgap(&[&wrong[..], &["--rate", "max", "--timeout", "1s"]].concat());
    assert!(matches!(output.status.code(), Some(1 | 3)), "{}", stderr(&output));
    // The server rejects the bytes and closes, and the client may see either first.
    let said = stderr(&output);
    assert!(said.contains("HTTP/2") || said.contains("closed the connection"), "{said}");
    end(http, Signal::TERM);
    assert!(end(server, Signal::TERM).contains("600 requests answered, 0 refused"));
}

#[test]
fn https_with_a_certificate_that_is_trusted_and_with_one_that_is_not() {
    let sandbox = sandbox();
    let dir = tempfile::tempdir().unwrap();
    let certificate = dir.path().join("certificate.pem").display().to_string();
    let (server, url) = serve(&sandbox, &["--tls-self-signed", "--tls-cert-out", &certificate]);
    assert!(url.starts_with("https://"), "{url}");
    let args = ["--rate", "200", "--duration", "500ms", "--warmup", "0s", "--connections", "4", "--json"];
    for trust in [&["--tls-ca", &certificate][..], &["--insecure"]] {
        let value = json(&sandbox.hostgap(&[&["load", &url, "--fifo", "20"], trust, &args].concat()));
        assert_eq!((&value["answered"], &value["connection_errors"]), (&100.into(), &0.into()), "{trust:?}");
    }
    // This machine's store does not have the server's certificate.
    let output = sandbox.hostgap(&[&["load", &url], &args[..]].concat());
    check(&output, 1, "TLS: invalid peer certificate");
    // And a server without TLS.
    let (plain, url) = serve(&sandbox, &[]);
    let output =
        sandbox.hostgap(&[&["load", &url.replace("http:", "https:"), "--insecure"], &args[..]].concat());
    check(&output, 1, "TLS: received corrupt message");
    end(plain, Signal::TERM);
    end(server, Signal::TERM);
}

#[test]
fn a_head_a_method_and_a_body_of_ones_own() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &[]);
    let args = ["--rate", "200", "--duration", "300ms", "--warmup", "0s", "--json", "--header", "X-A: b"];
    for (kind, body) in
        [(&["--method", "HEAD"][..], 0), (&["--body", "hello"], 100), (&["--pipeline", "4"], 100)]
    {
        let body = body.to_string();
        let output =
            sandbox.hostgap(&[&["load", &url, "--expect-body", &body, "--fifo", "20"], kind, &args].concat());
        assert_eq!(json(&output)["answered"], 60, "{kind:?} {}", stderr(&output));
    }
    end(server, Signal::TERM);
}

#[test]
fn more_connections_than_open_files() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &[]);
    let args = ["--connections", "1000000", "--duration", "1s"];
    let limited =
        sandbox.command("prlimit").args(["--nofile=200:200", HOSTGAP, "load", &url]).args(args).output();
    check(&limited.unwrap(), 1, "this process may have 200 files open");
    end(server, Signal::TERM);
}
