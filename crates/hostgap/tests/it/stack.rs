//! Servers on a stack of their own, in a race and alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linux::Netns;
use rustix::process::Signal;
use serde_json::Value;
use testkit::{World, dump, run};

use crate::ending::ended;
use crate::load::end;
use crate::sandbox::{HOSTGAP, Sandbox, check, check_race, json, kill, sandbox};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A quick race with candidates of the host that differ in their servers.
fn raced(sandbox: &Sandbox, workload: &str, stacks: &[&str]) -> Value {
    let file = experiment(sandbox, workload, 2, stacks);
    let output = sandbox.run_race(&[file.to_str().unwrap(), "--seed", "7", "--json"]);
    check_race(&output, "");
    json(&output)
}

fn experiment(sandbox: &Sandbox, workload: &str, rounds: u32, stacks: &[&str]) -> PathBuf {
    let file = sandbox.out().join("stack.toml");
    let mut text = format!(
        "schema = 1\nname = \"stack\"\nrates = [2000]\nrounds = {rounds}\nbuilds = 1\nworkload = {{ {workload} }}\n"
    );
    for stack in stacks {
        text += &format!("[[candidates]]\npath = \"host\"\nstack = {{ {stack} }}\nrequired = true\n");
    }
    std::fs::write(&file, text).unwrap();
    file
}

/// A race checks after each trial that the kernel's own stack delivered next to nothing of its packets.
#[test]
fn packets_of_each_server_take_its_way() {
    let sandbox = sandbox();
    let stacks = ["kind = \"afxdp\"", "kind = \"afxdp\", wait = \"spin\"", "wait = \"spin\""];
    let names = ["host, afxdp", "host, afxdp, spinning", "host, spinning"];
    for workload in ["kind = \"http\", connections = 40", "kind = \"udp-rr\", connections = 4, ipv6 = true"] {
        let result = raced(&sandbox, workload, &stacks);
        let candidates = result["candidates"].as_array().unwrap();
        for name in names {
            let found = candidates.iter().find(|candidate| candidate["name"] == name);
            let rate = &found.unwrap_or_else(|| panic!("{name}: {result}"))["rates"][0];
            assert_eq!(
                (&rate["connection_errors"], &rate["unexpected"]),
                (&0.into(), &0.into()),
                "{name}: {rate}"
            );
        }
        assert!(result["server"].as_str().unwrap().starts_with("hostgap serve"), "{result}");
        sandbox.assert_nothing_left();
    }
}

/// Its program leaves the link with it, which is not what is said.
#[test]
fn a_server_on_a_stack_that_dies_ends_the_race_with_its_name() {
    for (wait, name) in [("spin", "host, afxdp, spinning"), ("sleep", "host, afxdp")] {
        let sandbox = sandbox();
        let stack = format!("kind = \"afxdp\", wait = {wait:?}");
        let file = experiment(&sandbox, "kind = \"http\", connections = 4", 1000, &[&stack]);
        let race = sandbox.start_race(&[file.to_str().unwrap()]);
        sandbox.until_a_round_is_done();
        for (pid, _) in sandbox.pids().into_iter().filter(|(_, line)| line.contains(" --afxdp ")) {
            kill(pid, Signal::KILL);
        }
        ended(&sandbox, race, &format!("the server of {name} ended by itself (signal: 9 (SIGKILL))"));
    }
}

#[test]
fn a_server_on_a_stack_is_shown_with_its_commands() {
    let sandbox = sandbox();
    let file = sandbox.out().join("stack.toml");
    let candidate = "[[candidates]]\npath = \"host\"\nstack = { kind = \"afxdp\", wait = \"spin\" }\n";
    std::fs::write(&file, format!("schema = 1\nname = \"x\"\n{candidate}")).unwrap();
    let output = sandbox.hostgap(&["race", file.to_str().unwrap(), "--show-commands"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("hostgap serve --listen 0.0.0.0:80 --listen [::]:80 --afxdp eth0"), "{text}");
    assert!(text.contains(" --wait spin\n"), "{text}");
    let pod = candidate.replace("\"host\"", "\"docker\"");
    std::fs::write(&file, format!("schema = 1\nname = \"x\"\n{pod}")).unwrap();
    check(&sandbox.hostgap(&["race", file.to_str().unwrap()]), 2, "take `path = \"host\"`");
}

/// A server in a namespace, once it listens.
fn serve(netns: &Netns) -> Child {
    let mut command = Command::new(HOSTGAP);
    command.args(["serve", "--listen", "0.0.0.0:80", "--afxdp", "b0"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = netns.run(|| command.spawn()).unwrap().unwrap();
    let mut line = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    BufReader::with_capacity(1, stderr).read_line(&mut line).unwrap();
    assert_eq!(line, "listening on http://192.0.2.2:80/\n");
    child
}

/// Its program and its socket end with it, whatever ends it, and the link is as it was.
#[test]
fn a_killed_server_leaves_nothing() {
    let _sandbox = sandbox();
    let world = World::new();
    let (near, far) = (world.add("a"), world.add("b"));
    let ip = |netns: &Netns, arguments: &str| {
        run(netns, "ip", &arguments.split(' ').collect::<Vec<_>>());
    };
    ip(&near, &format!("link add a0 type veth peer name b0 netns {}", world.name("b")));
    for (netns, link, host) in [(&near, "a0", 1), (&far, "b0", 2)] {
        ip(netns, &format!("address add 192.0.2.{host}/24 dev {link}"));
        ip(netns, &format!("link set {link} up"));
    }
    let address: SocketAddr = (IpAddr::from(Ipv4Addr::new(192, 0, 2, 2)), 80).into();
    let ask = || {
        let mut stream = near.run(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /7 HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nxxxxxxx"), "{answer}");
    };
    expect_refusal(&near, address);
    let before = dump(&far);
    let mut server = serve(&far);
    ask();
    assert!(dump(&far) != before, "a program is at the link");
    server.kill().unwrap();
    server.wait().unwrap();
    // The kernel takes the program off a moment after its last descriptor.
    let deadline = Instant::now() + PATIENCE;
    while dump(&far) != before {
        assert!(Instant::now() < deadline, "something was left");
    }
    expect_refusal(&near, address);
    // The queue may still be the dead one's.
    let server = serve(&far);
    ask();
    assert_eq!(end(server, Signal::TERM).trim(), "1 connections, 1 requests answered, 0 refused");
}

/// The kernel has the packets, and nothing listens there.
fn expect_refusal(near: &Netns, address: SocketAddr) {
    let refused = near.run(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap();
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}
