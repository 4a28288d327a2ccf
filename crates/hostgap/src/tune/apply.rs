//! `hostgap tune apply`: making the changes, with a watcher that can undo them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use host::{Description, Proposal, StoredPlan, TuningRequest};
use plan::{
    Account, Journal, Kernel, LockedStore, OpenTransaction, Phase, Plan, Store, TakenBack, TransactionError,
    Undone, Why,
};

use super::{StateArgs, request, show, watch};
use crate::exit::{BadInput, Unprivileged};
use crate::{input, output, units};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    request: request::RequestArgs,
    /// A plan that `plan --json` wrote. It is applied only if everything is still as it was then.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["profile", "set", "from_findings", "dev", "route", "netns"])]
    plan: Option<PathBuf>,
    /// How long to wait for `confirm` before everything is undone.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    confirm_within: Duration,
    /// Do not wait for a confirmation: the same was confirmed before, and is set again after a restart or for a new
    /// link.
    #[arg(long)]
    confirmed: bool,
    /// Wait at most this long for routes over the link, if something is set on routes, and for its interrupts: after a
    /// restart they appear later than the link.
    #[arg(long, value_name = "TIME", conflicts_with = "plan", value_parser = units::duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    state: StateArgs,
}

/// What is asked for, with its files read.
enum Wanted {
    Plan(StoredPlan),
    Request(TuningRequest),
}

impl Wanted {
    fn read(args: &Args) -> anyhow::Result<Self> {
        Ok(match &args.plan {
            Some(path) => Self::Plan(StoredPlan::parse(path, &input::text("plan", path)?)?),
            None => Self::Request(args.request.request()?),
        })
    }

    /// What it would change here.
    fn proposal(&self) -> anyhow::Result<Proposal> {
        let stored = match self {
            Self::Plan(stored) => stored,
            Self::Request(request) => return Ok(Proposal::of(request)?),
        };
        let proposal = stored.proposal(&stored.wishes()?).context("use the plan, which no longer fits")?;
        let differences = stored.differences(&proposal);
        if differences.is_empty() {
            return Ok(proposal);
        }
        let text = format!("the plan no longer fits; make it again:\n{}", differences.join("\n"));
        Err(BadInput(text).into())
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(Unprivileged::to_see_queues)?;
    if !args.confirmed && args.confirm_within.is_zero() {
        return Err(BadInput("--confirm-within 0s would undo everything at once".to_owned()).into());
    }
    // What cannot be read leaves no trace, not even the directory of the journal.
    let wanted = Wanted::read(args)?;
    if let (Some(most), Wanted::Request(request)) = (args.wait, &wanted) {
        request.wait_for_objects(most)?;
    }
    let held = args.state.store().hold()?;
    let mut kernel = Kernel::new()?.keeping_announced_routes();
    settle(&held, &mut kernel)?;
    refuse_beside_unconfirmed(held.store())?;
    // Made under the lock, so that no other tuning changes the host in between.
    let proposal = wanted.proposal()?;
    output::aside(show::text(&proposal).trim_end());
    if proposal.changes.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    match held.store().standing()? {
        Some(standing) if args.confirmed => add(&held, &standing, &proposal, &mut kernel),
        Some(_) | None => begin(args, &held, &proposal, &mut kernel),
    }
}

/// The first that stands.
fn begin(
    args: &Args,
    held: &LockedStore,
    proposal: &Proposal,
    kernel: &mut Kernel,
) -> anyhow::Result<ExitCode> {
    let plan = proposal.plan();
    let (standing, journal) =
        held.begin(&plan, proposal.cpu_latency_us(), Description::of(proposal).about())?;
    if let Err(error) = watch::start(held.store()) {
        drop(journal);
        held.forget()?;
        return Err(error);
    }
    carry_out(held, &standing, &plan, journal, kernel)?;
    let mut description = carry_on(held, &standing, proposal, kernel)?;
    if proposal.host.netns.is_none() {
        description.note_logins();
    }
    let patience = (!args.confirmed).then_some(args.confirm_within);
    let standing =
        held.await_confirmation(OpenTransaction { about: description.about(), ..standing }, patience)?;
    match standing.phase {
        Phase::Unconfirmed { .. } => {
            let from = if proposal.host.netns.is_none() { ", from a new login" } else { "" };
            let seconds = args.confirm_within.as_secs_f64();
            output::result(format_args!(
                "Applied as {}. It is undone in {seconds} s, unless you run{from}:\n  hostgap tune confirm",
                standing.id
            ))?;
        }
        Phase::Applying | Phase::Confirmed | Phase::Extending { .. } => {
            output::result(format_args!("Applied as {}.", standing.id))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds to a confirmed tuning: a link appeared again, and its settings are made again, in the same journal.
fn add(
    held: &LockedStore,
    standing: &OpenTransaction,
    proposal: &Proposal,
    kernel: &mut Kernel,
) -> anyhow::Result<ExitCode> {
    let mut description = Description::read_to_extend(standing, proposal)?;
    let plan = proposal.plan();
    let (standing, journal) = held.extend(&plan)?;
    // A watcher that holds a limit is still running. One that is just ending after a confirmation may be mistaken for
    // it; then the next command undoes what this one leaves if it dies.
    if !held.store().is_watched()
        && let Err(error) = watch::start(held.store())
    {
        drop(journal);
        held.await_confirmation(standing, None)?;
        return Err(error);
    }
    carry_out(held, &standing, &plan, journal, kernel)?;
    description.add(carry_on(held, &standing, proposal, kernel)?);
    let standing =
        held.await_confirmation(OpenTransaction { about: description.about(), ..standing }, None)?;
    let count = proposal.changes.len();
    let settings = if count == 1 { "setting" } else { "settings" };
    output::result(format_args!("{count} {settings} made again, as part of tuning {}.", standing.id))?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses while a tuning is unconfirmed: "nothing to change" would be true only until it is undone.
fn refuse_beside_unconfirmed(store: &Store) -> anyhow::Result<()> {
    match store.standing()? {
        Some(OpenTransaction { id, phase: phase @ Phase::Unconfirmed { .. }, .. }) => {
            Err(TransactionError::Stands { id, phase }.into())
        }
        Some(_) | None => Ok(()),
    }
}

fn carry_out(
    held: &LockedStore,
    standing: &OpenTransaction,
    plan: &Plan,
    journal: Journal,
    kernel: &mut Kernel,
) -> anyhow::Result<()> {
    match held.apply(standing, plan, journal, kernel) {
        Ok(()) => Ok(()),
        Err(TransactionError::Apply { why, back }) => {
            print_failures(&back);
            Err((*why).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Makes the settings that depend on the first steps. Returns the description of all of them.
fn carry_on(
    held: &LockedStore,
    standing: &OpenTransaction,
    first: &Proposal,
    kernel: &mut Kernel,
) -> anyhow::Result<Description> {
    let mut description = Description::of(first);
    if first.later.is_empty() {
        return Ok(description);
    }
    let netns = first.host.netns.as_ref().map(linux::NetnsName::as_str);
    let device = first.host.device.as_ref().map(|device| device.name.as_str());
    let second = match Proposal::of_wishes(netns, device, &first.later) {
        Ok(second) => second,
        Err(error) => {
            print_failures(&held.take_back(kernel, Why::Failed)?);
            return Err(error.into());
        }
    };
    output::aside(show::text(&second).trim_end());
    if !second.changes.is_empty() {
        let plan = second.plan();
        let journal = held.go_on(&plan)?;
        carry_out(held, standing, &plan, journal, kernel)?;
    }
    description.add(Description::of(&second));
    Ok(description)
}

/// Undoes first what a dead command left behind.
pub(super) fn settle(held: &LockedStore, kernel: &mut Kernel) -> anyhow::Result<()> {
    let Some(standing) = held.store().standing()? else { return Ok(()) };
    let id = &standing.id;
    if held.store().account()? == Account::Restarted {
        held.take_back(kernel, Why::Asked)?;
        output::aside(format_args!(
            "Tuning {id} is gone: the machine was restarted since, which resets all of it."
        ));
        return Ok(());
    }
    let overdue = standing.left_ns() == Some(0) && !held.store().is_watched();
    let why = match standing.phase {
        Phase::Applying | Phase::Extending { .. } => Why::Died,
        Phase::Unconfirmed { .. } if overdue => Why::Unconfirmed,
        Phase::Unconfirmed { .. } | Phase::Confirmed => return Ok(()),
    };
    let back = held.take_back(kernel, why)?;
    let what = match standing.phase {
        Phase::Extending { .. } => format!("What was being added to tuning {id}"),
        Phase::Applying | Phase::Unconfirmed { .. } | Phase::Confirmed => format!("Tuning {id}"),
    };
    output::aside(format_args!("{what} was undone, {why}."));
    print_failures(&back);
    Ok(())
}

/// Prints what could not be undone, and what was left alone.
pub(super) fn print_failures(back: &TakenBack) {
    for (placed, undone) in &back.steps {
        if let Undone::Failed { .. } | Undone::ChangedByOther { .. } = undone {
            output::aside(format_args!("  {}\n    {undone}", placed.commands().join("; ")));
        }
    }
    if !back.is_whole {
        output::aside("Not all of it could be undone: `hostgap tune rollback` tries again.");
    }
    if let Some(doubt) = &back.doubt {
        output::aside(format_args!("It is not certain that this was all: {doubt}."));
    }
}
