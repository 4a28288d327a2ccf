//! What `hostgap load` says about servers that fail: the cause, in words and in figures.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::process::Output;
use std::thread;

use rustix::process::Signal;
use serde_json::Value;

use crate::load::{end, serve};
use crate::sandbox::{HOSTGAP, Sandbox, check, json, kill, sandbox, stderr, stdout, until};

/// A run of one second over four connections, with a short timeout.
pub(crate) fn brief(sandbox: &Sandbox, url: &str, args: &[&str]) -> Output {
    let usual = ["--duration", "1s", "--warmup", "0s", "--timeout", "500ms", "--connections", "4"];
    sandbox.hostgap(&[&["load", url], &usual[..], args].concat())
}

/// The same with `--json`. The run must not be valid.
#[track_caller]
fn failed(sandbox: &Sandbox, url: &str, args: &[&str]) -> Value {
    let output = brief(sandbox, url, &[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let value = json(&output);
    accounted(&value);
    value
}

/// Checks what holds for every account of requests.
#[track_caller]
fn accounted(value: &Value) {
    let count =
        |path: &str| value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {value}"));
    let unexpected = count("/unexpected/status") + count("/unexpected/length");
    let by = ["unanswered", "expired", "lost", "unsent"].map(|by| count(&format!("/missed_by/{by}")));
    assert_eq!(count("/missed"), by.iter().sum::<u64>(), "{value}");
    assert_eq!(
        count("/intended"),
        count("/answered") + unexpected + count("/missed") + count("/dropped"),
        "{value}"
    );
    assert_eq!(count("/sent"), count("/answered") + unexpected + by[0] + by[1] + by[2], "{value}");
    assert!(count("/backlog_max") < count("/intended"), "{value}");
    let text = value["checks"].to_string();
    assert!(!text.contains("NaN") && !text.contains("inf ") && !text.contains("0 of 0"), "{text}");
}

/// The text of a check that failed.
#[track_caller]
fn text(value: &Value, id: &str) -> String {
    let checks = value["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["id"] == id).unwrap();
    assert_eq!(check["passed"], false, "{check}");
    check["text"].as_str().unwrap().to_owned()
}

#[track_caller]
pub(crate) fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert!(!text.contains("generator") && !text.contains("CPU"), "the generator is blamed: {text}");
}

/// The share of overdue time in which no connection was free for this reason.
fn share(value: &Value, reason: &str) -> f64 {
    let ns = |name: &str| value["overdue_ns"][name].as_f64().unwrap();
    ns(reason) / ns("total").max(1.0)
}

/// A server that handles every connection with `converse`.
fn server(converse: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || converse(stream));
        }
    });
    format!("http://{address}/")
}

/// Reads a request. Returns false if none comes.
fn asked(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0)
}

/// A server that accepts every connection and never answers.
pub(crate) fn mute() -> String {
    server(|mut stream| while asked(&mut stream) {})
}

#[test]
fn a_server_that_never_answers() {
    let sandbox = sandbox();
    let url = mute();
    for when_busy in ["wait", "drop", "pipeline", "grow"] {
        let value = failed(&sandbox, &url, &["--rate", "500", "--when-busy", when_busy]);
        says(&text(&value, "rate"), &["no connection was free, all ", "answered none of the "]);
        says(&text(&value, "answered"), &["had no answer when waiting ended", "the server does not answer"]);
        assert_eq!((&value["answered"], &value["connection_errors"]), (&0.into(), &0.into()));
        let dropped = when_busy == "drop";
        assert_eq!(value["dropped"].as_u64() > Some(0), dropped, "{value}");
        assert!(dropped || share(&value, "answers") > 0.5, "{value}");
    }
    let table = stdout(&brief(&sandbox, &url, &["--rate", "500"]));
    says(table.lines().find(|line| line.contains("failed  rate")).unwrap(), &["all 4 waited for answers"]);
    assert!(table.contains("500 missed (4 unanswered, 496 never sent, given up when"), "{table}");
    // Without an answer, no check judges answers.
    let judged = ["late: ", "stationarity: ", "independence: "];
    assert!(judged.iter().all(|id| !table.contains(id)), "{table}");
}

#[test]
fn a_server_that_freezes_and_one_that_is_slow() {
    let sandbox = sandbox();
    let (frozen, url) = serve(&sandbox, &["--freeze", "900ms/1s"]);
    let args =
        ["--rate", "500", "--duration", "2s", "--warmup", "0s", "--timeout", "5s", "--connections", "4"];
    let value = json(&sandbox.hostgap(&[&["load", &url, "--json"], &args[..]].concat()));
    accounted(&value);
    // Requests waited for the server. Whether it is frozen when the run ends is chance, and so is whether the
    // last requests waited for the server or for a CPU.
    assert!(share(&value, "answers") > 0.5, "{value}");
    let rate = value["checks"].as_array().unwrap().iter().find(|check| check["id"] == "rate").unwrap();
    if rate["passed"] == false && rate["figures"]["answers_share"].as_f64() > Some(0.5) {
        says(&text(&value, "rate"), &["all 4 waited for answers"]);
    }
    end(frozen, Signal::TERM);

    // It answers at most forty requests a second.
    let (slow, url) = serve(&sandbox, &["--delay", "100ms"]);
    let value = failed(&sandbox, &url, &["--rate", "500"]);
    says(
        &text(&value, "rate"),
        &["all 4 waited for answers", "takes too long for this rate", "--connections"],
    );
    assert!(share(&value, "answers") > 0.5, "{value}");
    end(slow, Signal::TERM);
}

#[test]
fn a_server_that_cuts_resets_and_refuses() {
    let sandbox = sandbox();
    for (fault, kind, why) in
        [("--cut", "closed", "the response is cut off"), ("--reset", "reset", "Connection reset by peer")]
    {
        let (server, url) = serve(&sandbox, &[fault, "100%"]);
        let value = failed(&sandbox, &url, &["--rate", "50"]);
        assert_eq!(value["missed_by"]["lost"], value["sent"], "{value}");
        assert_eq!(value["errors"][kind], value["connection_errors"], "{value}");
        let first = &value["first_error"];
        assert!(first["text"].as_str().unwrap().contains(why), "{first}");
        assert!((0.0..2.0).contains(&first["after_s"].as_f64().unwrap()), "{first}");
        let errors = text(&value, "errors");
        says(
            &errors,
            &["connections failed ", kind, "after the start: ", why, "the server ended connections"],
        );
        says(
            &text(&value, "answered"),
            &["were lost with their connections", "the server ended connections"],
        );
        end(server, Signal::TERM);
    }
    let (server, url) = serve(&sandbox, &["--errors", "100%"]);
    let value = failed(&sandbox, &url, &["--rate", "200"]);
    says(
        &text(&value, "answered"),
        &["200 were answered otherwise, the first with status 503", "--expect-status"],
    );
    assert_eq!(value["connection_errors"], 0);
    end(server, Signal::TERM);
}

/// Reads one line, and not a byte beyond it.
pub(crate) fn line(from: &mut impl Read) -> String {
    let mut line = String::new();
    while !line.ends_with('\n') {
        let mut byte = [0];
        from.read_exact(&mut byte).unwrap();
        line.push(byte[0].into());
    }
    line
}

/// How often the threads of a process have woken up.
fn wakeups(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let switches = tasks.map(|task| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    });
    switches.sum()
}

#[test]
fn a_server_that_dies_in_the_middle() {
    let sandbox = sandbox();
    let (mut server, url) = serve(&sandbox, &[]);
    let before = wakeups(server.id());
    let args =
        ["--rate", "200", "--duration", "6s", "--warmup", "0s", "--timeout", "500ms", "--connections", "4"];
    let load = sandbox.command(HOSTGAP).args(["load", &url, "--json"]).args(args).spawn().unwrap();
    // The server wakes once for each request, and a few times for connections.
    let pid = server.id();
    until("the run is under way", || wakeups(pid) > before + 40);
    kill(pid, Signal::KILL);
    server.wait().unwrap();
    let output = load.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let value = json(&output);
    accounted(&value);
    assert!(share(&value, "connections") > 0.5, "{value}");
    says(
        &text(&value, "rate"),
        &["no connection was free, all 4 had broken or could not be made", "the server was gone"],
    );
    says(&text(&value, "errors"), &[" refused", "after the start: ", "nothing listened there any more"]);
    says(&text(&value, "answered"), &["were never sent", "nothing listened there any more"]);
    assert!(value["errors"]["refused"].as_u64() > Some(0), "{value}");
}

#[test]
fn datagrams_are_not_judged_in_words_of_http() {
    let sandbox = sandbox();
    let not_udp = |text: &str| {
        for word in ["status", "connection", "Connection", "2xx", "body"] {
            // The option has this name for every protocol.
            let text = text.replace("--connections", "");
            assert!(!text.contains(word), "{word}: {text}");
        }
    };
    let all = |value: &Value| {
        let texts = value["checks"].as_array().unwrap().iter().map(|check| check["text"].as_str().unwrap());
        let texts = texts.collect::<Vec<_>>().join("\n");
        not_udp(&texts);
        texts
    };
    let udp = |args: &[&str]| {
        let mut server = sandbox
            .command(HOSTGAP)
            .args(["serve", "--listen", "udp:127.0.0.1:0"])
            .args(args)
            .spawn()
            .unwrap();
        let line = line(server.stderr.as_mut().unwrap());
        let address = line.trim().strip_prefix("listening on udp:").unwrap().to_owned();
        (server, format!("udp://{address}"))
    };
    let rate = ["--rate", "200"];
    // A tenth of the answers is lost: hardly ever the first of each socket, and of 200 more than four.
    let (server, url) = udp(&["--cut", "10%"]);
    let value = failed(&sandbox, &url, &[&rate[..], &["--request-timeout", "20ms"]].concat());
    assert_eq!(value["protocol"], "udp");
    assert!(all(&value).contains("had none within --request-timeout"), "{value}");
    says(&text(&value, "answered"), &["they or their answers were lost on the way"]);
    let value = failed(&sandbox, &url, &[&rate[..], &["--request-timeout", "50s"]].concat());
    says(&text(&value, "rate"), &["no socket was free, all 4 waited for answers", "each holds its socket"]);
    all(&value);
    end(server, Signal::TERM);
    // The answers have another size.
    let (server, url) = udp(&["--response-bytes", "100"]);
    let output = brief(&sandbox, &url, &rate);
    assert_eq!(output.status.code(), Some(3));
    not_udp(&stdout(&output));
    let table = stdout(&output);
    assert!(table.contains("udp://") && table.contains(": 4 sockets, "), "{table}");
    assert!(table.contains("200 answers of another size"), "{table}");
    assert!(table.contains("200 had an answer of another size, the first of 100 bytes"), "{table}");
    end(server, Signal::TERM);
    // Nothing listens, which the kernel reports.
    let absent = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let value = failed(&sandbox, &format!("udp://{absent}"), &rate);
    says(&text(&value, "errors"), &["sockets failed", "the port is unreachable: nothing listened there"]);
    all(&value);
}

#[test]
fn options_of_another_protocol_are_refused() {
    let sandbox = sandbox();
    for url in ["udp://127.0.0.1:1", "tcp://127.0.0.1:1"] {
        for (option, value) in [
            ("--expect-status", "204"),
            ("--expect-body", "1"),
            ("--weights", "1"),
            ("--method", "HEAD"),
            ("--header", "a: b"),
            ("--body", "x"),
        ] {
            check(
                &sandbox.hostgap(&["load", url, option, value]),
                2,
                &format!("{option} is only for http:// and https://"),
            );
        }
    }
    for option in ["--request-bytes", "--response-bytes"] {
        let output = sandbox.hostgap(&["load", "http://127.0.0.1:1/", option, "100"]);
        check(
            &output,
            2,
            "--request-bytes and --response-bytes are only for tcp://, udp://, verbs:// and grpc://",
        );
    }
}

#[test]
fn foreign_bytes_do_not_reach_the_terminal() {
    let sandbox = sandbox();
    // Sequences that clear the screen and set the title, and a C1 control character.
    const WILD: &str = "\u{1b}[2J\u{1b}]0;mine\u{7}\u{9b}1m";
    #[track_caller]
    fn tame(output: &Output) {
        for text in [stdout(output), stderr(output)] {
            let wild = |c: &char| c.is_control() && *c != '\n';
            assert_eq!(text.chars().find(wild), None, "{text:?}");
        }
    }
    let answers: [fn(TcpStream); 3] = [
        |mut stream| {
            while asked(&mut stream) {
                let answer = format!("HTTP/1.1 500 {WILD}\r\n{WILD}: {WILD}\r\nContent-Length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes());
            }
        },
        |mut stream| {
            while asked(&mut stream) {
                let _ = stream.write_all(
                    format!("HTTP/1.1 503 {WILD}\r\nX: {WILD}\r\nContent-Length: 0\r\n\r\n").as_bytes(),
                );
            }
        },
        |mut stream| {
            asked(&mut stream);
            let _ = stream.write_all(format!("{WILD}\r\n\r\n").as_bytes());
        },
    ];
    for answer in answers {
        let output = brief(&sandbox, &server(answer), &["--rate", "50"]);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        tame(&output);
    }
    // As typed, or copied from somewhere.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(WILD);
    let typed = path.to_str().unwrap();
    let _socket = UnixListener::bind(&path).unwrap();
    tame(&brief(&sandbox, &format!("tcp://{WILD}:1"), &["--unix-socket", typed, "--rate", "50"]));
    for args in [
        &["http://127.0.0.1:1/", "--unix-socket", &format!("{typed}/none")][..],
        &[&format!("http://{WILD}/")],
        &[&format!("ftp://{WILD}/")],
        &[&format!("http://127.0.0.1:1/{WILD}")],
        &["http://127.0.0.1:1/", "--header", WILD],
        &["http://127.0.0.1:1/", "--method", WILD],
        &["http://127.0.0.1:1/", "--body", &format!("@{WILD}")],
        &["http://127.0.0.1:1/", "--rate", WILD],
        &["http://127.0.0.1:1/", "--duration", WILD],
        &["http://127.0.0.1:1/", "--expect-body", WILD],
        &["http://127.0.0.1:1/", "--find-max", "--slo", WILD],
        &["https://127.0.0.1:1/", "--tls-ca", WILD],
        &["http://127.0.0.1:1/", "--hlog", &format!("/nowhere/{WILD}")],
    ] {
        let output = sandbox.hostgap(&[&["load"], args].concat());
        assert!(!output.status.success(), "{args:?}");
        tame(&output);
    }
}
