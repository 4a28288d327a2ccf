//! `hostgap bpf counters`: what the programs have counted.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use bpf::forward::Counter;
use bpf::services::ServiceCounter;
use bpf::splice::SpliceCounter;
use bpf::{forward, guard, pins, services, splice};
use serde_json::json;

use super::known;
use crate::exit::BadInput;
use crate::output;

/// The counters of a node, by its programs.
#[derive(Default)]
struct Counted {
    /// Of its forwarding programs or of its guard.
    packets: Vec<(Counter, u64)>,
    /// Of those that splice, if it has them.
    spliced: Option<Vec<(SpliceCounter, u64)>>,
    /// Of those that lead calls of Services, if it has them.
    calls: Option<Vec<(ServiceCounter, u64)>>,
}

impl Counted {
    fn of(node: &str) -> linux::Result<Counted> {
        let folder = pins::folder(node);
        if services::is_loaded(&folder) {
            return Ok(Counted { calls: Some(services::counters(&folder)?), ..Counted::default() });
        }
        if guard::is_loaded(&folder) {
            return Ok(Counted { packets: guard::counters(&folder)?, ..Counted::default() });
        }
        let packets = forward::counters(&folder)?;
        let spliced = splice::is_loaded(&folder).then(|| splice::counters(&folder)).transpose()?;
        Ok(Counted { packets, spliced, calls: None })
    }

    fn packets(&self, drops: bool) -> impl Iterator<Item = &(Counter, u64)> {
        self.packets.iter().filter(move |(counter, _)| counter.is_drop() == drops)
    }

    fn json(&self, node: &str) -> serde_json::Value {
        let [dropped, passed]: [BTreeMap<_, _>; 2] = [true, false]
            .map(|drops| self.packets(drops).map(|(counter, packets)| (counter.name(), *packets)).collect());
        let spliced: Option<BTreeMap<_, _>> = self
            .spliced
            .as_ref()
            .map(|counters| counters.iter().map(|(counter, number)| (counter.name(), *number)).collect());
        let calls: Option<BTreeMap<_, _>> = self
            .calls
            .as_ref()
            .map(|counters| counters.iter().map(|(counter, number)| (counter.name(), *number)).collect());
        json!({ "node": node, "dropped": dropped, "passed": passed, "spliced": spliced, "calls": calls })
    }

    fn print(&self) -> anyhow::Result<()> {
        for (drops, title) in [(true, "dropped"), (false, "left to the kernel")] {
            // A guard leaves everything else to the kernel, and does not count it.
            if self.packets(drops).next().is_some() {
                output::result(format_args!("  {title}"))?;
            }
            for (counter, packets) in self.packets(drops) {
                output::result(format_args!("    {packets:>12}  {counter}"))?;
            }
        }
        if let Some(spliced) = &self.spliced {
            output::result("  spliced")?;
            for (counter, number) in spliced {
                output::result(format_args!("    {number:>12}  {counter}"))?;
            }
        }
        if let Some(calls) = &self.calls {
            output::result("  calls of Services")?;
            for (counter, number) in calls {
                output::result(format_args!("    {number:>12}  {counter}"))?;
            }
        }
        Ok(())
    }
}

pub(super) fn print(node: Option<String>, json: bool) -> anyhow::Result<()> {
    if let Some(node) = &node {
        known(node)?;
    }
    let is_named = node.is_some();
    let mut all = Vec::new();
    for node in node.map_or_else(pins::nodes, |node| vec![node]) {
        match Counted::of(&node) {
            Ok(counted) => all.push((node, counted)),
            // It was removed since the nodes were listed, or is still being made.
            Err(error) if error.source.kind() == ErrorKind::NotFound && !is_named => {}
            Err(error) if error.source.kind() == ErrorKind::NotFound => {
                return Err(BadInput(format!("node {node:?} has no counters: could not {error}")).into());
            }
            Err(error) => return Err(anyhow::Error::from(error).context("show the counters")),
        }
    }
    if json {
        let nodes: Vec<_> = all.iter().map(|(node, counted)| counted.json(node)).collect();
        output::result(json!({ "schema": 1, "nodes": nodes }))?;
        return Ok(());
    }
    if all.is_empty() {
        output::result("no node has hostgap programs")?;
    }
    for (node, counted) in all {
        output::result(format_args!("{node}"))?;
        counted.print()?;
    }
    Ok(())
}
