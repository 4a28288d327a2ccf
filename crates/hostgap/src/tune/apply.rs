//! `hostgap tune apply`: the change, under the eyes of a watcher.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use plan::{Held, Kernel, Phase, TakenBack, TransactionError, Undone, Why};

use super::asked;
use super::bound::Bound;
use super::proposal::Proposal;
use super::{StateArgs, show, watch};
use crate::exit::{BadInput, Unprivileged};
use crate::{speak, units};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    asked: asked::AskedArgs,
    /// A plan that `plan --json` has written. It is applied if everything is still as it was then.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["profile", "set", "from_findings", "dev", "netns"])]
    plan: Option<PathBuf>,
    /// How long to wait for `confirm` until everything is taken back.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    confirm_within: Duration,
    /// It was confirmed before, and is made again at a start or for a new link: nothing is waited for.
    #[arg(long)]
    confirmed: bool,
    #[command(flatten)]
    state: StateArgs,
}

/// `hostgap tune apply`.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(Unprivileged)?;
    if !args.confirmed && args.confirm_within.is_zero() {
        return Err(BadInput("--confirm-within 0s would take everything back at once".to_owned()).into());
    }
    let held = args.state.store().hold()?;
    let mut kernel = Kernel::new()?;
    settle(&held, &mut kernel)?;
    if args.confirmed && held.store().standing()?.is_some() {
        return again(args, &mut kernel);
    }
    // Looked at once the lock is there, so that no other tuning changes it in between.
    let proposal = proposal(args)?;
    speak::aside(show::text(&proposal).trim_end());
    if proposal.changes.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let plan = proposal.plan();
    let (standing, journal) = held.begin(&plan, proposal.cpu_latency_us(), about(&proposal))?;
    if let Err(error) = watch::start(held.store()) {
        drop(journal);
        held.forget()?;
        return Err(error);
    }
    match held.apply(&plan, journal, &mut kernel) {
        Ok(()) => {}
        Err(TransactionError::Apply { why, back }) => {
            tell_failure(&back);
            return Err((*why).into());
        }
        Err(error) => return Err(error.into()),
    }
    let patience = (!args.confirmed).then_some(args.confirm_within);
    let standing = held.await_confirmation(standing, patience)?;
    drop(held);
    match standing.phase {
        Phase::Unconfirmed { .. } => speak::result(format_args!(
            "Applied as {}. It is taken back in {} s, unless you say, best from a new login:\n  hostgap tune confirm",
            standing.id,
            args.confirm_within.as_secs_f64()
        ))?,
        Phase::Applying | Phase::Confirmed => speak::result(format_args!("Applied as {}.", standing.id))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What a dead command has left is taken back before anything else is done.
pub(super) fn settle(held: &Held, kernel: &mut Kernel) -> anyhow::Result<()> {
    let Some(standing) = held.store().standing()? else { return Ok(()) };
    let overdue = standing.left_ns() == Some(0) && !held.store().is_watched();
    let why = match standing.phase {
        _ if !standing.is_of_this_boot() => Why::Asked,
        Phase::Applying => Why::Died,
        Phase::Unconfirmed { .. } if overdue => Why::Unconfirmed,
        Phase::Unconfirmed { .. } | Phase::Confirmed => return Ok(()),
    };
    let back = held.take_back(kernel, why)?;
    if standing.is_of_this_boot() {
        speak::aside(format_args!("Tuning {} was taken back, {why}.", standing.id));
        tell_failure(&back);
    } else {
        let id = &standing.id;
        speak::aside(format_args!(
            "Tuning {id} is gone: the machine was started anew since, which resets all of it."
        ));
    }
    Ok(())
}

/// What could not be taken back, and what was left alone.
pub(super) fn tell_failure(back: &TakenBack) {
    for (placed, undone) in &back.steps {
        if let Undone::Failed { .. } | Undone::ChangedByOther { .. } = undone {
            speak::aside(format_args!("  {}\n    {undone}", placed.commands().join("; ")));
        }
    }
    if !back.is_whole {
        speak::aside("Not all of it could be taken back: `hostgap tune rollback` tries again.");
    }
}

fn proposal(args: &Args) -> anyhow::Result<Proposal> {
    match &args.plan {
        Some(path) => Bound::read(path)?.proposal(),
        None => Proposal::of(&args.asked),
    }
}

/// What stands was made again: for a link that came anew while the rest stands, there is no second way back to write.
fn again(args: &Args, kernel: &mut Kernel) -> anyhow::Result<ExitCode> {
    let proposal = proposal(args)?;
    for placed in proposal.plan().steps {
        plan::by_hand(&placed, kernel)?;
    }
    speak::result(format_args!("{} settings made again.", proposal.changes.len()))?;
    Ok(ExitCode::SUCCESS)
}

/// What `status` and `keep` want to know later.
fn about(proposal: &Proposal) -> serde_json::Value {
    let changes = proposal.changes.iter().map(|change| (&change.setting, change.why.as_str()));
    let already = proposal.already.iter().map(|setting| (setting, "it was so already"));
    let settings: Vec<_> = changes
        .chain(already)
        .map(|(setting, why)| {
            let mut pair = show::pair(setting);
            pair["why"] = why.into();
            pair
        })
        .collect();
    serde_json::json!({
        "netns": proposal.host.netns,
        "device": proposal.host.device,
        "settings": settings,
    })
}
