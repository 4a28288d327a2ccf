//! `hostgap agent check` as a command: tables, JSON and exit codes, and the matrix of what other nodes' agents say.

use std::process::{Command, Output};
use std::time::Instant;

use serde_json::Value;
use testkit::require_root;

use super::{Nodes, PATIENCE, Running, json, text};

/// Where agents answer on their nodes.
const LISTEN: [&str; 4] = ["--wire", "wire", "--listen", "0.0.0.0:9475"];

impl Nodes {
    fn check(&self, node: &str, args: &[&str]) -> Output {
        let mut command = self.agent(node, "check");
        command.args(args);
        Nodes::output(command)
    }

    fn check_json(&self, node: &str, args: &[&str]) -> (Option<i32>, Value) {
        let mut command = self.agent(node, "check");
        command.args(args);
        let output = Nodes::output(json(command));
        let shown = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        (output.status.code(), shown)
    }

    /// Both nodes with agents that have found each other.
    fn both(&self, args: &[&str]) -> [Running; 2] {
        let agents = ["a", "b"].map(|node| self.start_with(node, "log", args));
        self.until_reached("a", "b", &agents[0]);
        self.until_reached("b", "a", &agents[1]);
        agents
    }

    /// Waits until the agent of a node answers at its address.
    #[track_caller]
    fn until_answered(&self, from: &str, of: &str) {
        let begun = Instant::now();
        loop {
            let (_, matrix) = self.check_json(from, &["--all"]);
            if matrix["silent"][of].is_null() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{matrix:#}");
        }
    }
}

#[test]
fn a_check_says_what_is_reached_and_ends_with_a_code() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("vxlan");
    let before = nodes.check("a", &[]);
    assert_eq!(before.status.code(), Some(1));
    assert!(text(&before.stderr).contains("`hostgap agent run` writes it"), "{}", text(&before.stderr));
    let mut agents = nodes.both(&["--wire", "wire"]);
    let shown = nodes.check("a", &[]);
    let table = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "{table}");
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = table.lines().take(4).map(cells).collect();
    assert_eq!(rows[0], ["NODE", "TO", "ADDRESS", "RTT", "FULL", "WAY"], "{table}");
    let of =
        |row: &Vec<String>| (row[1].clone(), row[2].clone(), row[4].clone(), row[5].clone(), row[6].clone());
    let expected =
        [("node", "192.0.2.2", "1500"), ("tunnel", "10.244.2.0", "1450"), ("pods", "10.244.2.1", "-")];
    for (row, (what, address, full)) in rows[1..].iter().zip(expected) {
        let words = [what, address, "ms", full, "vxlan"].map(str::to_owned);
        let [what, address, unit, full, way] = words;
        assert_eq!(of(row), (what, address, unit, full, way), "{table}");
    }
    assert!(table.ends_with("\n1 of 1 nodes are reached\n"), "{table}");
    agents.iter_mut().for_each(Running::kill);
    // The same without agents; then it finds out what no agent repairs.
    let shown = nodes.check("a", &["--peer", "b"]);
    assert_eq!(shown.status.code(), Some(0));
    assert!(
        text(&shown.stdout)
            .ends_with("\nno agent runs on this node: what it has made stays, and nothing repairs it\n")
    );
    let node = nodes.world.name("a");
    testkit::shell(&format!("ip -n {node} route del 10.244.2.0/24"));
    let shown = nodes.check("a", &[]);
    let table = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(3), "{table}");
    assert!(
        table.contains("\nb (ipv4): the main table has no route 10.244.2.0/24 via 10.244.2.0 dev hgvx"),
        "{table}"
    );
    assert!(
        table.contains("not sent: network is unreachable") && table.contains("0 of 1 nodes are reached"),
        "{table}"
    );
    let (code, row) = nodes.check_json("a", &[]);
    assert_eq!((code, &row["schema"]), (Some(3), &1.into()));
    let b = &row["peers"]["b"];
    assert_eq!(
        (&b["is_reached"], &b["reasons"][0]["kind"]),
        (&false.into(), &"route_missing".into()),
        "{row:#}"
    );
    assert_eq!(b["families"]["ipv4"]["node"]["carries_full"], true, "{row:#}");
}

#[test]
fn a_check_of_what_is_unknown_is_bad_input() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("host-gw");
    let _agents = nodes.both(&["--wire", "wire"]);
    let refused = nodes.check("a", &["--peer", "c"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("has no lease of a node c; those that it has are b"), "{said}");
    // Without the right to send echo requests it cannot run.
    let mut command = Command::new("ip");
    let node = nodes.world.name("a");
    command.args([
        "netns",
        "exec",
        node.as_str(),
        "setpriv",
        "--bounding-set=-net_raw",
        super::HOSTGAP,
        "agent",
        "check",
    ]);
    let unable = command.arg("--status-dir").arg(nodes.path("a").join("status")).output().unwrap();
    let said = text(&unable.stderr);
    assert_eq!(unable.status.code(), Some(4), "{said}");
    assert!(said.contains("could not open a socket for ICMP") && said.contains("CAP_NET_RAW"), "{said}");
    for wrong in [&["--all", "--peer", "b"][..], &["--port", "1"], &["--all", "--port", "0"]] {
        assert_eq!(nodes.check("a", wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn the_matrix_says_who_reaches_whom_and_whose_agent_is_silent() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("vxlan");
    let mut agents = nodes.both(&LISTEN);
    nodes.until_answered("a", "b");
    nodes.until_answered("b", "a");
    let (code, matrix) = nodes.check_json("a", &["--all"]);
    assert_eq!(
        (code, &matrix["schema"], &matrix["network"]),
        (Some(0), &1.into(), &"pods".into()),
        "{matrix:#}"
    );
    for (from, to) in [("a", "b"), ("b", "a")] {
        assert_eq!(matrix["rows"][from]["peers"][to]["is_reached"], true, "{matrix:#}");
    }
    let shown = text(&nodes.check("a", &["--all"]).stdout);
    assert!(shown.contains("2 of 2 ways are well; 2 of 2 agents have answered"), "{shown}");
    let head: Vec<&str> = shown.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["FROM", "to", "a", "to", "b"], "{shown}");
    // b drops what comes by its tunnel. Answers to what b sends come by it, too.
    let node = nodes.world.name("b");
    testkit::shell(&format!(
        "ip netns exec {node} nft 'add table inet harm'
         ip netns exec {node} nft 'add chain inet harm in {{ type filter hook prerouting priority -400; }}'
         ip netns exec {node} nft 'add rule inet harm in udp dport 8472 drop'"
    ));
    let shown = nodes.check("a", &["--all"]);
    let said = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(3), "{said}");
    for line in
        ["\na to b (ipv4): 192.0.2.2 answers", "\nb to a (ipv4): 192.0.2.1 answers", "0 of 2 ways are well"]
    {
        assert!(said.contains(line), "{line:?}: {said}");
    }
    testkit::shell(&format!("ip netns exec {node} nft 'delete table inet harm'"));
    agents[1].kill();
    let shown = nodes.check("a", &["--all"]);
    let said = text(&shown.stdout);
    assert_eq!(shown.status.code(), Some(3), "{said}");
    let silent = "\nb: its agent does not answer: 192.0.2.2:9475: ";
    assert!(
        said.contains(silent) && said.contains("1 of 1 ways are well; 1 of 2 agents have answered"),
        "{said}"
    );
    let line = said.lines().find(|line| line.starts_with("b ")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["b", "?", "?"], "{said}");
}

/// A check sends packets to all nodes: whoever asks again and again gets what is known already.
#[test]
fn an_agent_that_is_asked_by_many_checks_once() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("vxlan");
    let _agents = nodes.both(&LISTEN);
    nodes.until_answered("a", "b");
    let ask = || {
        let stream = nodes.world.open("a").run(|| std::net::TcpStream::connect("192.0.2.2:9475")).unwrap();
        stream.map(|mut stream| {
            use std::io::{Read, Write};
            stream.write_all(b"GET /check HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.split_once("\r\n\r\n").unwrap().1.to_owned()
        })
    };
    // While b's agent finds that a does not answer, which takes it seconds, all of them ask.
    let node = nodes.world.name("a");
    testkit::shell(&format!("ip netns exec {node} sysctl -qw net.ipv4.icmp_echo_ignore_all=1"));
    let answers: Vec<String> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..20).map(|_| scope.spawn(|| ask().unwrap())).collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    let rows: Vec<Value> = answers.iter().map(|answer| serde_json::from_str(answer).unwrap()).collect();
    assert!(rows.iter().all(|row| row["pods"][0] == "10.244.2.0/24"), "{rows:#?}");
    let distinct: std::collections::BTreeSet<&String> = answers.iter().collect();
    // One that had begun before, and one for all callers since.
    assert!(distinct.len() <= 2, "{distinct:#?}");
}
