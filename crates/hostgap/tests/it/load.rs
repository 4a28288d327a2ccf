//! `hostgap serve` and `hostgap load`, alone, over loopback.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Output};

use rustix::process::Signal;

use crate::turn::{HOSTGAP, Turn, check, json, kill, stderr, stdout, text, turn};

/// A responder on a port of the kernel's choice, and its URL.
fn serve(turn: &Turn, args: &[&str]) -> (Child, String) {
    let mut child =
        turn.command(HOSTGAP).args(["serve", "--listen", "127.0.0.1:0"]).args(args).spawn().unwrap();
    // Byte by byte, so that what follows is left for whoever waits for the end.
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
    let turn = turn();
    let (server, url) = serve(&turn, &["--body", "4k"]);
    let table = stdout(&valid(&turn, &url, &[]));
    assert!(table.contains("p50") && table.contains("p99"), "{table}");
    let value = json(&valid(&turn, &url, &["--json"]));
    assert_eq!(
        (&value["schema"], &value["intended"], &value["answered"]),
        (&1.into(), &500.into(), &500.into())
    );
    assert_eq!(text(turn.command("curl").args(["-sf", &format!("{url}123")])).len(), 123);
    let told = end(server, Signal::TERM);
    let answered: u64 = told.split_whitespace().nth(2).unwrap().parse().unwrap();
    // Every run asked 500 times, and curl once.
    assert_eq!(answered % 500, 1, "{told}");
}

/// A run that the machine gave its time to: another program may take a few milliseconds, and then the run rightly is
/// not valid.
fn valid(turn: &Turn, url: &str, args: &[&str]) -> Output {
    let brief = ["--rate", "500", "--duration", "1s", "--warmup", "0s", "--connections", "8", "--body", "4k"];
    let mut said = Vec::new();
    for _ in 0..10 {
        let output = turn.hostgap(&[&["load", url, "--fifo", "20"], &brief[..], args].concat());
        if output.status.success() {
            return output;
        }
        assert!(stderr(&output).contains("and 500 answered as expected"), "{}", stderr(&output));
        check(&output, 3, "were sent in time");
        said.push(stderr(&output));
    }
    panic!("ten times: {said:?}");
}

#[test]
fn a_run_that_is_not_valid_is_code_3() {
    let turn = turn();
    let (server, url) = serve(&turn, &[]);
    let wrong = turn.hostgap(&[
        "load",
        &url,
        "--rate",
        "200",
        "--duration",
        "500ms",
        "--body",
        "7",
        "--warmup",
        "0s",
    ]);
    assert_eq!(wrong.status.code(), Some(3));
    assert!(stderr(&wrong).contains("the run is not valid: "), "{}", stderr(&wrong));
    assert!(stderr(&wrong).contains("status 200 and 100 bytes"), "{}", stderr(&wrong));
    // More than any generator can do.
    let beyond = turn.hostgap(&["load", &url, "--rate", "50M", "--duration", "500ms", "--warmup", "0s"]);
    assert_eq!(beyond.status.code(), Some(3), "{}", stderr(&beyond));
    assert!(stderr(&beyond).contains("less than 99.9 %"), "{}", stderr(&beyond));
    end(server, Signal::INT);
}

#[test]
fn an_interrupt_shows_what_was_measured() {
    let turn = turn();
    let (server, url) = serve(&turn, &[]);
    let load = turn
        .command(HOSTGAP)
        .args(["load", &url, "--rate", "200", "--duration", "10m", "--warmup", "0s", "--json"])
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    kill(load.id(), Signal::INT);
    let output = load.wait_with_output().unwrap();
    check(&output, 130, "");
    assert!(json(&output)["answered"].as_u64().unwrap() > 0, "{}", stdout(&output));
    end(server, Signal::INT);
}

#[test]
fn a_port_in_use_and_one_where_nobody_listens() {
    let turn = turn();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = turn.hostgap(&["serve", "--listen", &address]);
    check(&output, 1, &format!("could not listen on {address}: Address already in use"));
    drop(taken);
    let output = turn.hostgap(&["load", &format!("http://{address}/"), "--duration", "1s"]);
    check(&output, 1, &format!("could not connect to {address}: Connection refused"));
}

#[test]
fn bad_input() {
    let turn = turn();
    let bad: [(&[&str], &str); 9] = [
        (&["load", "ftp://x"], "http://HOST"),
        (&["load", "http://127.0.0.1/", "--rate", "0"], "0"),
        (&["load", "http://127.0.0.1/", "--rate", "9999M"], "a rate of 9999M is not possible"),
        (&["load", "http://127.0.0.1/", "--rate", "fast"], "`fast` is not a rate"),
        (&["load", "http://127.0.0.1/", "--duration", "0s"], "--duration must be more than zero"),
        (&["load", "http://127.0.0.1/", "--connections", "1", "--threads", "2"], "too few"),
        (&["load", "http://127.0.0.1/", "--body", "1x"], "`1x` is not a size"),
        (&["serve", "--listen", "nowhere"], "nowhere"),
        (&["serve", "--body", "2M"], "at most 1M"),
    ];
    for (args, says) in bad {
        check(&turn.hostgap(args), 2, says);
    }
}
