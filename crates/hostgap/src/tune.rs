//! `hostgap tune`: knobs of this host, set for as long as somebody wants them set.

mod about;
mod apply;
mod arrival;
mod asked;
mod bound;
mod bounds;
mod findings;
mod host;
mod keep;
mod knobs;
mod managers;
mod proposal;
mod search;
mod show;
mod standing;
mod tracking;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::speak;

/// Set what a host's network can be set to, and take it back.
///
/// `plan` shows what a profile or single settings would change; `apply` does it, and takes it back by itself unless
/// `confirm` follows in time; `rollback` takes it back at any time; `keep` makes it survive a restart. A candidate of a
/// race has the same settings when its experiment says so (`tune.KNOB = value`).
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  hostgap tune plan latency                       what the profile would change here, and why
  hostgap tune apply latency                      do it; it is taken back after 60 s ...
  hostgap tune confirm                            ... unless a new login says that all is well
  hostgap tune apply --set somaxconn=8192 --set tcp_congestion_control=bbr
  hostgap tune apply --netns web --set tcp_rmem='4096 131072 33554432'
  hostgap tune plan wan --json > wan.json; hostgap tune apply --plan wan.json
  hostgap tune status; hostgap tune rollback; hostgap tune keep";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the knobs: what each takes, where it lives, and why anybody would turn it.
    Knobs {
        /// Only knobs whose name has this in it.
        name: Option<String>,
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
    },
    Search(Box<search::Args>),
    /// List the profiles: what each sets and why, and what it leaves out on purpose.
    Profiles {
        /// Only this one.
        name: Option<String>,
    },
    /// Show what would change, old and new, why, and what it interrupts. Nothing is changed.
    Plan {
        #[command(flatten)]
        asked: asked::AskedArgs,
        /// Print it as JSON, which `apply --plan` takes.
        #[arg(long)]
        json: bool,
    },
    /// Print the commands that do the same by hand.
    ShowCommands {
        #[command(flatten)]
        asked: asked::AskedArgs,
    },
    /// Change it, and take it back unless it is confirmed in time.
    ///
    /// A process of its own watches before anything is changed. It takes everything back when the time is over, when
    /// this process dies before all is done, and when it is told to end itself. Nobody watches over it: if it is killed
    /// (SIGKILL), what is unconfirmed stays until the next `hostgap tune apply`, or `rollback`.
    Apply(apply::Args),
    /// Tell what stands, what somebody else has changed since, and how the last one ended.
    Status {
        #[command(flatten)]
        state: StateArgs,
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Let it stay. From a new login, which proves that the machine can still be reached.
    ///
    /// A login that was there when the machine was tuned is refused, as far as the kernel counts logins
    /// (/proc/self/sessionid): it may live on where a new one does not come through. What was tuned in a named namespace
    /// can be confirmed from anywhere.
    Confirm {
        #[command(flatten)]
        state: StateArgs,
        /// Take it from a login that was there before, too: at a console, or where a tool keeps its connection (Ansible).
        #[arg(long)]
        same_login: bool,
    },
    /// Take it back: everything that nobody else has changed since.
    Rollback {
        #[command(flatten)]
        state: StateArgs,
        /// Forget what stands without taking it back: where the journal cannot be read any more.
        #[arg(long)]
        discard: bool,
    },
    /// Make what is confirmed survive a restart, or forget that again.
    Keep(keep::Args),
    #[command(hide = true)]
    Watch {
        #[command(flatten)]
        state: StateArgs,
    },
}

/// Where the way back is kept.
#[derive(Debug, Clone, clap::Args)]
struct StateArgs {
    /// Where the journal is kept.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/hostgap/tune")]
    state: PathBuf,
}

impl StateArgs {
    fn store(&self) -> plan::Store {
        plan::Store::at(&self.state)
    }
}

/// `hostgap tune`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Knobs { name, json } => knobs::run(name.as_deref(), *json),
        Command::Profiles { name } => asked::profiles(name.as_deref()),
        Command::Plan { asked, json } => {
            let proposal = proposal::Proposal::of(asked)?;
            if *json {
                speak::result(show::json(&proposal))?;
            } else {
                speak::result(show::text(&proposal).trim_end())?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::ShowCommands { asked } => {
            show::commands(&proposal::Proposal::of(asked)?).iter().try_for_each(speak::result)?;
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
