//! The nodes of a cluster, each diagnosed by a pod in its network.

use std::process::ExitCode;
use std::time::Duration;

use ::lab::kube::NodeSurvey;
use serde_json::{Value, json};

use super::Args;
use super::several::{Diagnoses, Seen};
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
    let seen = seen.into_iter().map(|one| Seen { host: one.node, printed: one.printed }).collect();
    let diagnoses = Diagnoses { kind: "node", seen };
    if args.json {
        output::result(as_json(&diagnoses.seen))?;
    } else {
        output::result(diagnoses.text().trim_end())?;
    }
    let is_blind = |one: &Seen| {
        let parts = one.printed.as_ref().ok().and_then(|diagnosis| diagnosis["not_judged"].as_array());
        parts.is_some_and(|parts| !parts.is_empty())
    };
    let seen = &diagnoses.seen;
    let failed = seen.iter().any(|one| one.printed.is_err());
    let warns = seen.iter().any(|one| one.warnings().is_some_and(|count| count > 0));
    if failed || seen.iter().any(is_blind) || (args.strict && warns) {
        return Ok(ExitCode::from(exit::INVALID));
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(seen: &[Seen]) -> Value {
    let node = |one: &Seen| match &one.printed {
        Ok(diagnosis) => json!({ "node": one.host, "diagnosis": diagnosis, "failed": null }),
        Err(why) => json!({ "node": one.host, "diagnosis": null, "failed": why }),
    };
    json!({ "schema": 1, "nodes": seen.iter().map(node).collect::<Vec<_>>() })
}
