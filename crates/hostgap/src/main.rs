//! `hostgap`: measure the gap between a container's network and the bare host's, find its cause, close it.
//!
//! A file or a folder a subcommand; this file only reads the command line, and turns errors into
//! messages and exit codes.

mod agent;
mod bpf;
mod clean;
mod cluster;
mod cni;
mod doctor;
mod examples;
mod exit;
mod input;
mod lab;
mod load;
mod manual;
mod output;
mod own_program;
mod paths;
mod plugins;
mod progress;
mod race;
mod remote;
mod report;
mod serve;
mod stop;
mod tune;
mod units;
mod wire;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Measure the gap between a container's network and the bare host's, find its cause, close it.
///
/// `hostgap race` compares container data paths by tail latency at a constant request rate, against the host, in
/// network namespaces of its own. `hostgap doctor` finds what slows packets down on this host, and changes nothing.
/// `hostgap tune apply` changes this host's settings, and takes that back unless you confirm.
///
/// Begin with `hostgap paths`, then `hostgap race --quick`.
#[derive(Debug, Parser)]
#[command(name = "hostgap", version, max_term_width = 100, after_long_help = exit::HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Race(Box<race::Args>),
    Report(report::Args),
    Paths(paths::Args),
    Tune(tune::Args),
    Doctor(doctor::Args),
    Explain(doctor::ExplainArgs),
    Collect(doctor::CollectArgs),
    Load(load::Args),
    Serve(serve::Args),
    Lab(lab::Args),
    Cni(cni::Args),
    Agent(agent::Args),
    Clean(clean::Args),
    Bpf(bpf::Args),
    #[command(hide = true)]
    Remote(remote::Args),
    #[command(hide = true)]
    Man(manual::ManArgs),
    Completions(manual::CompletionsArgs),
}

/// The command line with its complete help.
fn command() -> clap::Command {
    examples::with(Cli::command().color(output::colours_of_help()))
}

fn main() -> ExitCode {
    if node::process::is_called() {
        return node::process::answer();
    }
    let cli = match command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(other) => return exit::print_usage(&other),
    };
    let result = match cli.command {
        Command::Race(args) => race::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Paths(args) => paths::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Explain(args) => doctor::explain(&args),
        Command::Collect(args) => doctor::collect(&args),
        Command::Load(args) => load::run(args),
        Command::Serve(args) => serve::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Cni(args) => cni::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Clean(args) => clean::run(&args),
        Command::Bpf(args) => bpf::run(args),
        Command::Remote(args) => remote::run(&args),
        Command::Man(args) => manual::man(&args),
        Command::Completions(args) => manual::completions(&args),
    };
    result.unwrap_or_else(|error| exit::print_error(&error))
}
