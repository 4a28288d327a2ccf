//! `hostgap serve`, with curl as the client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Child;

use rustix::process::Signal;

use crate::load::end;
use crate::sandbox::{HOSTGAP, Sandbox, check, json, sandbox, text};

/// A responder and the addresses that it says it listens on.
fn serve(sandbox: &Sandbox, args: &[&str], places: usize) -> (Child, Vec<String>) {
    let mut child = sandbox.command(HOSTGAP).arg("serve").args(args).spawn().unwrap();
    // A buffer of one byte leaves the rest of the output to the end of the test.
    let stderr = BufReader::with_capacity(1, child.stderr.as_mut().unwrap());
    let lines: Vec<String> = stderr.lines().take(places).map(Result::unwrap).collect();
    let place =
        |line: &String| line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{lines:?}")).to_owned();
    (child, lines.iter().map(place).collect())
}

#[test]
fn everything_that_it_listens_on() {
    let sandbox = sandbox();
    let socket = sandbox.out().join("socket");
    let unix = format!("unix:{}", socket.display());
    let trusted = sandbox.out().join("ca.pem").display().to_string();
    let listen = ["127.0.0.1:0", "http:127.0.0.1:0", &unix, "tcp:127.0.0.1:0", "udp:127.0.0.1:0"];
    let mut args: Vec<&str> = listen.iter().flat_map(|place| ["--listen", place]).collect();
    args.extend([
        "--tls-self-signed",
        "--tls-cert-out",
        &trusted,
        "--request-bytes",
        "2",
        "--response-bytes",
        "3",
    ]);
    let (server, places) = serve(&sandbox, &args, listen.len());
    let [https, http, on_unix, tcp, udp] = places.as_slice() else { panic!("{places:?}") };
    assert!(https.starts_with("https://127.0.0.1:") && http.starts_with("http://127.0.0.1:"), "{places:?}");
    let curl = |args: &[&str]| text(sandbox.command("curl").arg("-sf").args(args)).len();
    assert_eq!(curl(&["--cacert", &trusted, &format!("{https}11")]), 11);
    assert_eq!(curl(&["--data", "body", &format!("{http}12")]), 12);
    assert_eq!(*on_unix, unix);
    assert_eq!(curl(&["--unix-socket", &socket.display().to_string(), "http://localhost/13"]), 13);
    let mut stream = TcpStream::connect(tcp.strip_prefix("tcp:").unwrap()).unwrap();
    stream.write_all(b"abcd").unwrap();
    stream.read_exact(&mut [0; 6]).unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.send_to(b"ab", udp.strip_prefix("udp:").unwrap()).unwrap();
    let mut answer = [0; 9];
    assert_eq!((datagrams.recv(&mut answer).unwrap(), &answer[..2]), (3, b"ab".as_slice()));
    let account = end(server, Signal::TERM);
    assert_eq!(account.trim(), "4 connections, 6 requests answered, 0 refused");
    assert!(!socket.exists());
}

#[test]
fn faults_are_injected_and_counted() {
    let sandbox = sandbox();
    let (server, places) =
        serve(&sandbox, &["--listen", "127.0.0.1:0", "--errors", "100%", "--delay", "5ms"], 1);
    let status = ["-s", "-o", "/dev/null", "-w", "%{http_code} %{time_total}", &places[0]];
    let answered = text(sandbox.command("curl").args(status));
    let (status, seconds) = answered.split_once(' ').unwrap();
    assert!(status == "503" && seconds.parse::<f64>().unwrap() >= 0.005, "{answered}");
    let account = end(server, Signal::INT);
    let expected = "1 connections, 0 requests answered, 1 refused, 1 answers delayed, 1 errors injected";
    assert_eq!(account.trim(), expected);
}

/// The CPU time of a process, in nanoseconds.
fn cpu_ns(pid: u32) -> u64 {
    let of_task = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap();
        text.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.map(|task| of_task(task.unwrap())).sum()
}

/// Compares CPU time rather than elapsed time, so that the test holds on a busy machine too.
#[test]
fn a_request_costs_the_cpu_time_that_was_asked_for() {
    let sandbox = sandbox();
    let listen =
        ["--listen", "http:127.0.0.1:0", "--listen", "tcp:127.0.0.1:0", "--listen", "udp:127.0.0.1:0"];
    let (server, places) = serve(&sandbox, &[&listen[..], &["--cpu-us", "2000", "--cpus", "0"]].concat(), 3);
    let url = |place: &String| match place.starts_with("http") {
        true => place.clone(),
        false => place.replacen(':', "://", 1),
    };
    for url in places.iter().map(url) {
        let before_ns = cpu_ns(server.id());
        let load = ["load", &url, "--rate", "max", "-n", "300", "--connections", "2", "--json"];
        assert_eq!(json(&sandbox.hostgap(&load))["answered"], 300, "{url}");
        let each_us = (cpu_ns(server.id()) - before_ns) as f64 / 300.0 / 1e3;
        // Beyond 2000 µs, it spends time only on reading, answering and checking the clock.
        assert!((2000.0..2300.0).contains(&each_us), "{url}: {each_us} µs");
    }
    let account = end(server, Signal::TERM);
    assert!(account.contains("900 requests answered"), "{account}");
}

#[test]
fn bad_input() {
    let sandbox = sandbox();
    let bad: [(&[&str], &str); 21] = [
        (&["--listen", "grpc:127.0.0.1:0", "--delay", "1ms"], "and not for gRPC"),
        (&["--cpu-us", "0"], "0 is not in 1..=1000000"),
        (&["--cpu-us", "1000001"], "1000001 is not in 1..=1000000"),
        (
            &["--listen", "sctp:127.0.0.1:1"],
            "--listen: `sctp:127.0.0.1:1` is no place to listen: ADDRESS:PORT",
        ),
        (&["--listen", "unix:"], "`unix:` is no place to listen"),
        (&["--listen", "https:127.0.0.1:0"], "HTTPS needs a certificate"),
        (&["--listen", "udp:127.0.0.1:0", "--response-bytes", "64k"], "1 to 65507 bytes over UDP, not 65536"),
        (&["--request-bytes", "0"], "1 to 1048576 bytes, not 0"),
        (&["--tls-cert", "/nonexistent"], "--tls-key <FILE>"),
        (&["--tls-cert-out", "/nonexistent/x"], "--tls-self-signed"),
        (
            &["--tls-cert", "/nonexistent", "--tls-key", "/x"],
            "read a certificate from /nonexistent: No such file",
        ),
        (&["--delay", "98%:1ms"], "--delay 98%:1ms: the shares add up to 98 %, not to 100 %"),
        (&["--delay", "soon"], "--delay soon: `soon` is not a time"),
        (&["--delay", "2h"], "a delay of at most 3600 s is possible"),
        (&["--freeze", "2s/2s"], "a freeze must be shorter than the period"),
        (&["--freeze", "100ms"], "--freeze 100ms: 100ms/2s is expected"),
        (&["--errors", "1"], "`1` is not a share: 1% or 0.1% is expected"),
        (&["--errors", "60%", "--cut", "50%"], "0 to 100 %, and so is their sum"),
        (&["--errors", "1%", "--listen", "tcp:127.0.0.1:0"], "no address here speaks HTTP"),
        (&["--trickle", "0/1ms"], "a piece has at least one byte"),
        (&["--seed", "x"], "--seed"),
    ];
    for (args, says) in bad {
        check(&sandbox.hostgap(&[&["serve"], args].concat()), 2, says);
    }
    let nowhere =
        ["serve", "--tls-self-signed", "--listen", "127.0.0.1:0", "--tls-cert-out", "/nonexistent/x"];
    check(&sandbox.hostgap(&nowhere), 1, "could not write the certificate to /nonexistent/x: No such file");
}
