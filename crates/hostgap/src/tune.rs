//! `hostgap tune`: set knobs of this host, and undo that.

mod apply;
mod keep;
mod knobs;
mod request;
mod search;
mod show;
mod standing;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use host::StoredPlan;

use crate::output;

/// Tune a host's network, and undo that exactly.
///
/// `plan` shows what a profile or single settings would change. `apply` makes the changes, and undoes them by itself
/// unless `confirm` follows in time. `rollback` undoes them at any time; `keep` makes them survive a restart.
/// Candidates of a race can have the same settings (`tune.KNOB = value` in an experiment).
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  hostgap tune plan latency                       what the profile would change here, and why
  hostgap tune apply latency                      do it; it is undone after 60 s ...
  hostgap tune confirm                            ... unless a new login says that all is well
  hostgap tune apply --set somaxconn=8192 --set tcp_congestion_control=bbr
  hostgap tune apply --netns web --set tcp_rmem='4096 131072 33554432'
  hostgap tune plan wan --json > wan.json; hostgap tune apply --plan wan.json
  hostgap tune status; hostgap tune rollback; hostgap tune keep";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the knobs: their values, where each is set, and what it is good for.
    Knobs {
        /// Only knobs whose name contains this text.
        name: Option<String>,
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
    },
    Search(Box<search::Args>),
    /// List the profiles: what each sets and why, and what it leaves out on purpose.
    Profiles {
        /// Only this profile.
        name: Option<String>,
    },
    /// Show what would change, with old and new values, why, and what that interrupts. Changes nothing; needs root, to
    /// read the state of the link's queues.
    Plan {
        #[command(flatten)]
        request: request::RequestArgs,
        /// Print the plan as JSON, for `apply --plan`.
        #[arg(long)]
        json: bool,
    },
    /// Print the commands that do the same by hand.
    ShowCommands {
        #[command(flatten)]
        request: request::RequestArgs,
    },
    /// Make the changes, and undo them unless they are confirmed in time.
    ///
    /// A separate process, the watcher, runs before anything is changed. It undoes everything when the time is over,
    /// when this process dies before all is done, and when the watcher itself is asked to end. If the watcher is killed
    /// (SIGKILL), unconfirmed changes stay until the next `hostgap tune apply`, or `rollback`.
    Apply(apply::Args),
    /// Show what is set, what has been changed since by others, and how the last tuning ended.
    Status {
        #[command(flatten)]
        state: StateArgs,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Confirm the changes from a new login, which proves that the machine can still be reached.
    ///
    /// A login from before the change is refused, where the kernel counts logins (/proc/self/sessionid): an
    /// old connection can go on working after new ones have become impossible. Changes in a named namespace
    /// can be confirmed from anywhere.
    Confirm {
        #[command(flatten)]
        state: StateArgs,
        /// Accept a login from before the change too: at a console, or where a tool keeps its connection (Ansible).
        #[arg(long)]
        same_login: bool,
    },
    /// Undo the changes, except what has been changed since by others.
    Rollback {
        #[command(flatten)]
        state: StateArgs,
        /// Forget the changes without undoing them, where the journal can no longer be read.
        #[arg(long)]
        discard: bool,
    },
    /// Make confirmed changes survive a restart, or end that.
    Keep(keep::Args),
    #[command(hide = true)]
    Watch {
        #[command(flatten)]
        state: StateArgs,
    },
}

/// The location of the journal.
#[derive(Debug, Clone, clap::Args)]
struct StateArgs {
    /// The directory of the journal.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/hostgap/tune")]
    state: PathBuf,
}

impl StateArgs {
    fn store(&self) -> plan::Store {
        plan::Store::at(&self.state)
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Knobs { name, json } => knobs::run(name.as_deref(), *json),
        Command::Profiles { name } => request::profiles(name.as_deref()),
        Command::Plan { request, json } => {
            let proposal = request.proposal()?;
            if *json {
                output::result(serde_json::json!(StoredPlan::of(&proposal)))?;
            } else {
                output::result(show::text(&proposal).trim_end())?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::ShowCommands { request } => {
            show::commands(&request.proposal()?).iter().try_for_each(output::result)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Search(args) => search::run(args),
        Command::Apply(args) => apply::run(args),
        Command::Status { state, json } => standing::status(&state.store(), *json),
        Command::Confirm { state, same_login } => standing::confirm(&state.store(), *same_login),
        Command::Rollback { state, discard } => standing::rollback(&state.store(), *discard),
        Command::Keep(args) => keep::run(args),
        Command::Watch { state } => watch::run(&state.store()),
    }
}
