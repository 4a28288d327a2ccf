//! The nodes of a cluster, each diagnosed by a pod in its network.

use std::process::ExitCode;
use std::time::Duration;

use ::lab::kube::NodeSurvey;

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
        arguments: ["doctor", "--in-container", "--json", "--for"]
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
        output::result(diagnoses.json())?;
    } else {
        output::result(diagnoses.text().trim_end())?;
    }
    let seen = &diagnoses.seen;
    let warned = seen.iter().filter(|one| one.warnings().is_some_and(|count| count > 0)).count();
    if seen.iter().any(|one| one.printed.is_err() || one.is_blind()) {
        output::aside("hostgap: the diagnosis is not complete; the nodes that are missing are listed above");
        return Ok(ExitCode::from(exit::INVALID));
    }
    if args.strict && warned > 0 {
        output::aside(format_args!("hostgap: nodes with warnings: {warned}"));
        return Ok(ExitCode::from(exit::INVALID));
    }
    Ok(ExitCode::SUCCESS)
}
