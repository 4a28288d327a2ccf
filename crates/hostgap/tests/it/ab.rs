//! `hostgap load` in the form of ApacheBench, judged by ApacheBench and by nginx's log of both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use linux::Netns;

use crate::sandbox::{HOSTGAP, Sandbox, json, sandbox, stderr, until};

const URL: &str = "http://127.0.0.1/100";

/// nginx in a namespace of its own. Dropping this ends it.
struct Nginx {
    child: Child,
    netns: Netns,
    log: PathBuf,
}

impl Nginx {
    /// A log line has the first line of the request, the status, and the request's number on its connection.
    fn start(sandbox: &Sandbox) -> Nginx {
        let dir = sandbox.out().to_owned();
        let (log, config) = (dir.join("access.log"), dir.join("nginx.conf"));
        fs::write(&config, config_text(&dir)).unwrap();
        let program = std::env::var_os("HOSTGAP_NGINX").unwrap_or_else(|| "nginx".into());
        let mut command = sandbox.command(program.to_str().unwrap());
        command.args(["-e", "stderr", "-p"]).arg(&dir).arg("-c").arg(&config).stderr(Stdio::inherit());
        let netns = Netns::anonymous().unwrap();
        let child = netns.run(|| command.spawn()).unwrap().unwrap();
        let nginx = Nginx { child, netns, log };
        let ready = || nginx.netns.run(|| std::net::TcpStream::connect("127.0.0.1:80").is_ok()).unwrap();
        until("nginx listens", ready);
        nginx
    }

    fn output(&self, sandbox: &Sandbox, program: &str, args: &[&str]) -> Output {
        let mut command = sandbox.command(program);
        command.args(args);
        self.netns.run(|| command.output()).unwrap().unwrap()
    }

    /// The log lines since the last call, once there are `count`.
    fn lines(&self, count: usize) -> Vec<String> {
        let read = || fs::read_to_string(&self.log).unwrap();
        until("nginx has written that much", || read().lines().count() >= count);
        let lines = read().lines().map(str::to_owned).collect();
        fs::write(&self.log, "").unwrap();
        lines
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config_text(dir: &Path) -> String {
    let dir = dir.display();
    let body = "x".repeat(100);
    format!(
        "daemon off;
master_process off;
user root;
pid {dir}/nginx.pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
  log_format line '$request $status $connection_requests';
  access_log {dir}/access.log line;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  server {{
    listen 127.0.0.1:80;
    location = /100 {{ return 200 \"{body}\"; }}
  }}
}}
"
    )
}

/// Sends the requests that `ab` would send over HTTP/1.0. nginx must not see a difference.
#[test]
fn nginx_sees_the_same_requests_as_from_ab() {
    let sandbox = sandbox();
    let nginx = Nginx::start(&sandbox);
    let said = text_of(&nginx.output(&sandbox, "ab", &["-q", "-n", "300", "-c", "4", URL]));
    assert!(said.contains("Complete requests:      300\nFailed requests:        0\n"), "{said}");
    let theirs = nginx.lines(300);
    assert_eq!(theirs, vec!["GET /100 HTTP/1.0 200 1"; 300]);
    // Even a generator without a CPU of its own finishes them within this time.
    let patient = ["--timeout", "60s", "--json"];
    let args = ["-n", "300", "--no-keepalive", "--connections", "4", "--expect-body", "100"];
    let args = [&args[..], &patient].concat();
    for rate in ["max", "1k"] {
        let args = [&["load", URL, "--http", "1.0", "--rate", rate], &args[..]].concat();
        let output = nginx.output(&sandbox, HOSTGAP, &args);
        let value = json(&output);
        assert_eq!((&value["answered"], &value["connection_errors"]), (&300.into(), &0.into()), "{value}");
        assert_eq!((&value["requests"], &value["keepalive"]), (&300.into(), &false.into()));
        assert_eq!(value["reconnects"], 300, "a connection for each: {}", stderr(&output));
        assert_eq!(nginx.lines(300), theirs);
    }
    // Over HTTP/1.1 the request asks the server to close. With neither option, connections stay open.
    nginx.output(&sandbox, HOSTGAP, &[&["load", URL, "--rate", "max"], &args[..]].concat());
    assert_eq!(nginx.lines(300), vec!["GET /100 HTTP/1.1 200 1"; 300]);
    let stays = ["load", URL, "--rate", "max", "-n", "300", "--connections", "1"];
    let table = text_of(&nginx.output(&sandbox, HOSTGAP, &stays));
    assert!(table.contains("300 intended, 300 answered"), "{table}");
    assert_eq!(nginx.lines(300)[299], "GET /100 HTTP/1.1 200 300");
}

/// Both do the same amount of work, so their rates agree as far as a busy machine allows.
#[test]
fn a_run_of_requests_is_as_fast_as_that_of_ab() {
    let sandbox = sandbox();
    let nginx = Nginx::start(&sandbox);
    let ours = || {
        let args = ["load", URL, "-n", "3000", "--rate", "max", "--connections", "4", "--no-keepalive"];
        let value =
            json(&nginx.output(&sandbox, HOSTGAP, &[&args[..], &["--http", "1.0", "--json"]].concat()));
        assert_eq!(value["answered"], 3000, "{value}");
        let (rate, seconds) =
            (value["answered_rps"].as_f64().unwrap(), value["duration_s"].as_f64().unwrap());
        assert!((rate * seconds - 3000.0).abs() < 0.5, "{rate}/s for {seconds} s");
        rate
    };
    let theirs = || {
        let said = text_of(&nginx.output(&sandbox, "ab", &["-q", "-n", "3000", "-c", "4", URL]));
        let line = said.lines().find_map(|line| line.strip_prefix("Requests per second:"));
        line.unwrap().split_whitespace().next().unwrap().parse::<f64>().unwrap()
    };
    let mut said = Vec::new();
    let agrees = (0..10).any(|_| {
        let ratio = ours() / theirs();
        said.push(ratio);
        (0.5..2.0).contains(&ratio)
    });
    assert!(agrees, "{said:?}");
}

#[track_caller]
fn text_of(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}
