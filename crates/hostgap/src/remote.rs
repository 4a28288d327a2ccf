//! `hostgap remote`: what a race between two machines starts on the server's, and no command for people.

use std::io;
use std::process::ExitCode;

use ::lab::Home;
use ::lab::remote::{watch, work};

use crate::race::own_program;
use crate::stop;

/// Serve a race that another machine runs (internal): read requests from stdin, answer on stdout.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Wait for the end of the input, then remove what this process has left.
    #[arg(long, value_name = "PID")]
    watch: Option<u32>,
}

/// `hostgap remote`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let home = Home::of_this_machine();
    if let Some(pid) = args.watch {
        watch(&home, pid, &mut io::stdin())?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = stop::on_signals()?;
    work(&own_program()?, &home, &stop, io::stdin(), &mut io::stdout())?;
    Ok(ExitCode::SUCCESS)
}
