//! The nodes of a cluster, each diagnosed by a pod in its network: what is the same on all of them is said once.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use ::lab::kube::{NodeSeen, NodeSurvey};
use serde_json::{Value, json};

use super::Args;
use super::text::{counted, labelled};
use crate::progress::Progress;
use crate::{exit, output, stop};

/// What a node may take beside the time between two readings: `kubectl exec`, and reading a large node.
const SLACK: Duration = Duration::from_secs(60);

/// Diagnoses each node of the cluster by a pod there.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let look = NodeSurvey {
        access: args.cluster.access(stop::on_signals()?)?,
        arguments: ["doctor", "--json", "--for"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("{}ms", args.time.as_millis())])
            .collect(),
        limit: args.time + SLACK,
    };
    let mut progress = Progress::quiet();
    let Some(seen) = look.run(&mut |event| progress.show(&event))? else {
        return Ok(ExitCode::from(exit::INTERRUPTED));
    };
    if args.json {
        output::result(as_json(&seen))?;
    } else {
        output::result(as_text(&seen).trim_end())?;
    }
    let diagnoses = || seen.iter().filter_map(|one| one.printed.as_ref().ok());
    let is_blind =
        |diagnosis: &Value| diagnosis["not_judged"].as_array().is_some_and(|parts| !parts.is_empty());
    let failed = seen.iter().any(|one| one.printed.is_err());
    let warns = diagnoses().any(|diagnosis| diagnosis["warnings"].as_u64().is_some_and(|count| count > 0));
    if failed || diagnoses().any(is_blind) || (args.strict && warns) {
        return Ok(ExitCode::from(exit::INVALID));
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(seen: &[NodeSeen]) -> Value {
    let node = |one: &NodeSeen| match &one.printed {
        Ok(diagnosis) => json!({ "node": one.node, "diagnosis": diagnosis, "failed": null }),
        Err(why) => json!({ "node": one.node, "diagnosis": null, "failed": why }),
    };
    json!({ "schema": 1, "nodes": seen.iter().map(node).collect::<Vec<_>>() })
}

/// A finding on some nodes.
struct Shared<'a> {
    /// As the first node has it.
    finding: &'a Value,
    /// What was seen, by node.
    saw: BTreeMap<&'a str, String>,
}

/// Findings of the same code about the same subject and of the same severity, in the order of the first node that has them.
fn shared(seen: &[NodeSeen]) -> Vec<Shared<'_>> {
    let mut all: Vec<Shared<'_>> = Vec::new();
    for NodeSeen { node, printed } in seen {
        let findings = printed.as_ref().ok().and_then(|diagnosis| diagnosis["findings"].as_array());
        for finding in findings.into_iter().flatten() {
            let is_same = |other: &&mut Shared<'_>| {
                ["code", "subject", "severity"].iter().all(|key| other.finding[key] == finding[key])
            };
            let saw = saw(finding);
            match all.iter_mut().find(is_same) {
                Some(one) => drop(one.saw.insert(node, saw)),
                None => all.push(Shared { finding, saw: BTreeMap::from([(node.as_str(), saw)]) }),
            }
        }
    }
    all
}

fn saw(finding: &Value) -> String {
    let evidence = finding["evidence"].as_array().into_iter().flatten();
    let each = evidence.map(|one| {
        format!(
            "{} [{}]",
            one["saw"].as_str().unwrap_or_default(),
            one["read_from"].as_str().unwrap_or_default()
        )
    });
    each.collect::<Vec<_>>().join("; ")
}

fn as_text(seen: &[NodeSeen]) -> String {
    let all = shared(seen);
    let warnings = all.iter().filter(|one| one.finding["severity"] == "warning").count();
    let (nodes, known) = (nodes(seen), all.len() - warnings);
    let mut text = match (looked(seen), warnings) {
        (0, _) => "no node could be looked at\n".to_owned(),
        (_, 0) => format!("{nodes}: no warning, {known} worth knowing\n"),
        (_, some) => format!("{nodes}: {}, {known} worth knowing\n", counted(some, "warning")),
    };
    for NodeSeen { node, printed } in seen {
        match printed {
            Ok(diagnosis) => {
                let parts =
                    diagnosis["not_judged"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let parts: Vec<&str> = parts.collect();
                if !parts.is_empty() {
                    text += &format!(
                        "\n{}",
                        labelled("", &format!("{node} is not judged for {}", parts.join(", ")))
                    );
                }
            }
            Err(why) => {
                text += &format!("\n{}", labelled("", &format!("{node} could not be looked at: {why}")));
            }
        }
    }
    let everywhere = |one: &&Shared<'_>| one.saw.len() == looked(seen) && looked(seen) > 1;
    let common: Vec<&Shared<'_>> = all.iter().filter(everywhere).collect();
    if !common.is_empty() {
        text += &format!("\nOn {}\n", all_nodes(seen));
        common.iter().for_each(|one| text += &shown(one, None));
    }
    for NodeSeen { node, .. } in seen {
        let own = all.iter().filter(|one| !everywhere(one) && one.saw.contains_key(node.as_str()));
        let own: Vec<&Shared<'_>> = own.collect();
        if !own.is_empty() {
            text += &format!("\nOn {node}\n");
            own.iter().for_each(|one| text += &shown(one, Some(node)));
        }
    }
    text + &unseen(seen)
}

/// How many nodes were looked at.
fn looked(seen: &[NodeSeen]) -> usize {
    seen.iter().filter(|one| one.printed.is_ok()).count()
}

/// "20 nodes", or "18 of 20 nodes" if two could not be looked at.
fn nodes(seen: &[NodeSeen]) -> String {
    let all = counted(seen.len(), "node");
    let looked = looked(seen);
    if looked == seen.len() { all } else { format!("{looked} of {all}") }
}

/// The nodes of what was seen on each of them.
fn all_nodes(seen: &[NodeSeen]) -> &'static str {
    if looked(seen) == seen.len() { "all nodes" } else { "all nodes that were looked at" }
}

/// What could not be read, with the nodes where it could not.
fn unseen(seen: &[NodeSeen]) -> String {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for NodeSeen { node, printed } in seen {
        let parts = printed.as_ref().ok().and_then(|diagnosis| diagnosis["unseen"].as_array());
        for part in parts.into_iter().flatten().filter_map(Value::as_str) {
            all.entry(part).or_default().push(node);
        }
    }
    if all.is_empty() {
        return String::new();
    }
    let line = |(part, nodes): (&str, Vec<&str>)| {
        let on = if nodes.len() == looked(seen) { all_nodes(seen).to_owned() } else { nodes.join(", ") };
        labelled("", &format!("{part} (on {on})"))
    };
    format!("\nNot seen\n{}", all.into_iter().map(line).collect::<String>())
}

/// A finding, with what one node saw, or all of them.
fn shown(shared: &Shared<'_>, node: Option<&str>) -> String {
    let word = |key: &str| shared.finding[key].as_str().unwrap_or_default();
    let subject = if word("subject").is_empty() { String::new() } else { format!(" ({})", word("subject")) };
    let mut text = format!("\n{}", labelled(word("code"), &format!("{}{subject}", word("title"))));
    let saw: Vec<(&str, &String)> = match node {
        Some(node) => vec![("", &shared.saw[node])],
        None => shared.saw.iter().map(|(node, saw)| (*node, saw)).collect(),
    };
    let same = saw.iter().all(|(_, each)| *each == saw[0].1);
    for (at, (node, each)) in saw.iter().take(if same { 1 } else { saw.len() }).enumerate() {
        let label = if at == 0 { "  saw" } else { "" };
        let line = if same { (*each).clone() } else { format!("{node}: {each}") };
        text += &labelled(label, &line);
    }
    if word("severity") == "warning" {
        text += &labelled("  why", word("why"));
    }
    text += &labelled("  do", word("remedy"));
    text + &labelled("  verify", word("verify"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, findings: &[(&str, &str, &str)]) -> NodeSeen {
        let finding = |(code, subject, saw): &(&str, &str, &str)| {
            json!({ "code": code, "subject": subject, "severity": "information", "title": format!("title of {code}"),
                "evidence": [{ "saw": saw, "read_from": "/proc/x" }], "why": "w", "remedy": "r", "verify": "v" })
        };
        let findings: Vec<Value> = findings.iter().map(finding).collect();
        let unseen = ["/proc/y", name];
        let printed = Ok(json!({ "findings": findings, "warnings": 0, "not_judged": [], "unseen": unseen }));
        NodeSeen { node: name.to_owned(), printed }
    }

    #[test]
    fn what_all_nodes_have_is_said_once() {
        let seen = [
            node("a", &[("HG020", "eth0", "1 queue"), ("HG045", "eth0", "bbr"), ("HG001", "", "CPU 3")]),
            node("b", &[("HG045", "eth0", "bbr"), ("HG020", "eth0", "2 queues")]),
        ];
        let text = as_text(&seen);
        assert!(text.starts_with("2 nodes: no warning, 3 worth knowing\n\nOn all nodes\n"), "{text}");
        assert_eq!(text.matches("bbr").count(), 1);
        assert!(text.contains("saw     a: 1 queue") && text.contains("          b: 2 queues"), "{text}");
        assert!(text.contains("\nOn a\n\nHG001") && !text.contains("On b"), "{text}");
        assert!(text.contains("/proc/y (on all nodes)") && text.contains("b (on b)"), "{text}");
    }

    #[test]
    fn a_node_that_could_not_be_looked_at_is_named() {
        let lost = NodeSeen { node: "c".to_owned(), printed: Err("no route".to_owned()) };
        let both = |saw| [("HG020", "eth0", saw)];
        let text = as_text(&[node("a", &both("1 queue")), node("b", &both("2 queues")), lost.clone()]);
        assert!(text.starts_with("2 of 3 nodes: no warning, 1 worth knowing\n"), "{text}");
        assert!(text.contains("c could not be looked at: no route"), "{text}");
        assert!(text.contains("\nOn all nodes that were looked at\n\nHG020"), "{text}");
        assert!(text.contains("/proc/y (on all nodes that were looked at)"), "{text}");
        assert!(as_text(&[lost]).starts_with("no node could be looked at\n"));
    }
}
