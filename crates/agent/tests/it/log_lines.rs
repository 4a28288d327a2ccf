//! The lines that an agent logs of many nodes.

use std::time::Duration;

use agent::source::file::FileSource;
use agent::status::Status;
use testkit::require_root;

use crate::keep::{A, HOST_GW};
use crate::log::Log;
use crate::nodes::{Nodes, PATIENCE};

#[test]
fn many_nodes_that_fail_for_one_reason_have_one_line() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    let far = [1, 2, 3, 4, 5].map(|number| {
        (format!("n{number}"), format!("203.0.113.{number}"), format!("10.244.{}.0/24", 10 + number))
    });
    let far = far.iter().map(|(name, public, pods)| (name.as_str(), public.as_str(), pods.as_str()));
    nodes.write_leases(HOST_GW, &std::iter::once(A).chain(far).collect::<Vec<_>>());
    let (settings, home, log) = (nodes.settings("a"), nodes.home("a"), Log::default());
    let path = Status::path(&settings.status, &settings.network);
    // Its status is written after the line.
    let is_written = || Status::read(&path).is_ok_and(|status| status.peers.len() == 5);
    let written = async {
        while !is_written() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let source = FileSource { path: nodes.leases(), node: "a".to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = || {
        let until_written = async { drop(tokio::time::timeout(PATIENCE, written).await) };
        runtime.block_on(agent::run(settings, home, source, || (), until_written))
    };
    let listening = log.clone();
    let run = || tracing::subscriber::with_default(listening, run);
    nodes.world.open("a").run(run).unwrap().unwrap();
    let lines: Vec<String> = log.lines().into_iter().filter(|line| line.contains("203.0.113.")).collect();
    assert_eq!(lines.len(), 1, "{:#?}", log.lines());
    let said = "node n1, n2, n3 and 2 more, for one reason; n1: 203.0.113.1 is not on the link wire";
    assert!(lines[0].starts_with(said), "{lines:#?}");
}
