//! The experiment that a command line asks for: a file or the built-in one, with what the options change.

use std::path::Path;

use ::record::{Candidate, Experiment, Placement, RequestedRate, Workload, WorkloadKind};
use anyhow::Context;

use super::Args;
use super::machines::ServerArg;
use crate::exit::BadInput;
use crate::{plugins, units};

/// Rounds and builds of `--quick`, where a file has no `[quick]` table.
const QUICK: (u32, u32) = (10, 5);

/// The experiment of the file or the built-in one, with the command line's changes.
pub(super) fn experiment_of(args: &Args) -> anyhow::Result<Experiment> {
    let experiment = match &args.experiment {
        None => Experiment::default(),
        Some(path) => read_experiment(path)?,
    };
    let mut experiment = if args.quick { quick(experiment)? } else { experiment };
    let kind = args.workload.unwrap_or(experiment.workload.kind);
    if !args.paths.is_empty() || !args.cni.is_empty() {
        let files = args.cni.iter().map(|file| plugins::candidate(file));
        let paths = args.paths.iter().map(|name| named(name, kind)).collect::<Result<Vec<_>, _>>()?;
        experiment.candidates = paths.into_iter().chain(files).collect();
    }
    if !args.rate.is_empty() {
        experiment.rates = args.rate.iter().map(|text| rate(text)).collect::<Result<_, _>>()?;
    }
    if let Some(kind) = args.workload.filter(|kind| *kind != experiment.workload.kind) {
        // The file's values for another kind do not apply to this one.
        let ipv6 = experiment.workload.ipv6;
        experiment.workload = Workload { ipv6, ..Workload::of(kind) };
    }
    experiment.workload.http = args.http.or(experiment.workload.http);
    experiment.workload.tls |= args.tls;
    experiment.workload.arrivals = args.arrivals.unwrap_or(experiment.workload.arrivals);
    experiment.workload.objects = args.objects.or(experiment.workload.objects);
    if args.no_session_reuse {
        experiment.workload.session_reuse = Some(false);
    }
    if !args.body.is_empty() {
        let sizes = args.body.iter().map(|text| units::bytes(text).map_err(BadInput));
        experiment.workload.body_bytes = sizes.collect::<Result<_, _>>()?;
    }
    if let Some(rounds) = args.rounds {
        experiment.rounds = rounds;
        experiment.builds = experiment.builds.min(rounds);
    }
    if args.rounds.is_some() || args.duration.is_some() {
        // A length was asked for: the file's other end does not apply.
        (experiment.until, experiment.budget_s) = (None, None);
    }
    experiment.until = args.until.or(experiment.until);
    if let Some(text) = &args.budget {
        experiment.budget_s = Some(budget_s(text)?);
    }
    experiment.seed = args.seed.or(experiment.seed);
    if let Some(connections) = args.connections {
        // An explicit number overrides the file's minimum, too.
        (experiment.workload.connections, experiment.workload.connections_min) = (connections, None);
    }
    let mut kinds = args.server.iter().filter_map(ServerArg::kind);
    experiment.workload.server = kinds.next_back().unwrap_or(experiment.workload.server);
    experiment.underlay.steering = args.steering.unwrap_or(experiment.underlay.steering);
    args.wire.change(&mut experiment.underlay);
    experiment.workload.ipv6 |= args.ipv6;
    experiment.profile |= args.profile;
    experiment.why_late |= args.why_late;
    experiment.by_cpu |= args.by_cpu;
    experiment.witness &= !args.no_witness;
    if args.same_node {
        experiment.placement = Placement::SameNode;
    }
    args.vm.apply(&mut experiment);
    experiment.validate().context("use the experiment")?;
    Ok(experiment.swept())
}

/// A candidate by its name on the command line: a data path, or what becomes of packets.
fn named(name: &str, kind: WorkloadKind) -> Result<Candidate, BadInput> {
    let required = true;
    if kind == WorkloadKind::Packets {
        let filter = Some(name.parse().map_err(BadInput)?);
        return Ok(Candidate { path: "host".to_owned(), filter, required, ..Candidate::default() });
    }
    Ok(Candidate { path: name.to_owned(), required, ..Candidate::default() })
}

/// The experiment of a file.
pub(crate) fn read_experiment(path: &Path) -> anyhow::Result<Experiment> {
    let text = crate::input::text("experiment", path)?;
    let experiment =
        Experiment::from_toml(&text).with_context(|| format!("use experiment {}", path.display()))?;
    Ok(with_files_beside(experiment, path))
}

/// The quick form: the file's `[quick]` table, or fewer rounds.
fn quick(experiment: Experiment) -> anyhow::Result<Experiment> {
    match experiment.quick().context("use the experiment")? {
        Some(quick) => Ok(quick),
        None => {
            let (rounds, builds) = QUICK;
            Ok(Experiment { rounds, builds, ..experiment })
        }
    }
}

/// Paths in an experiment are relative to its file, not to the current directory.
fn with_files_beside(mut experiment: Experiment, path: &Path) -> Experiment {
    let folder = path.parent().unwrap_or(Path::new(""));
    for file in experiment.candidates.iter_mut().filter_map(|candidate| candidate.cni.as_mut()) {
        *file = folder.join(&*file).display().to_string();
    }
    experiment
}

/// Whole seconds; a fraction counts as one.
fn budget_s(text: &str) -> Result<u32, BadInput> {
    let budget = units::duration(text).map_err(BadInput)?;
    let seconds = budget.as_secs() + u64::from(budget.subsec_nanos() > 0);
    u32::try_from(seconds).map_err(|_| BadInput(format!("--budget {text} is more than a race can take")))
}

fn rate(text: &str) -> Result<RequestedRate, BadInput> {
    text.parse().map_err(|error: ::record::RateParseError| BadInput(error.to_string()))
}
