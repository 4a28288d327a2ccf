//! `hostgap remote`: what a race between two machines starts on the server's, and no command for people.

use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use ::lab::remote::{Output, STOPPED, lead, watch, work};
use ::lab::{Finished, Home};

use crate::race::own_program;
use crate::stop;

/// Do this machine's part in a race between two (internal): read requests from stdin, answer on stdout.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Wait for the end of the input, then remove what this process has left.
    #[arg(long, value_name = "PID")]
    watch: Option<u32>,
    /// Lead the race that the first line of stdin describes.
    #[arg(long)]
    lead: bool,
    /// What sshd says of the connection.
    #[arg(long, value_name = "SSH_CONNECTION", default_value = "", hide_default_value = true)]
    connection: String,
}

/// `hostgap remote`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let home = Home::of_this_machine();
    if let Some(pid) = args.watch {
        watch(&home, pid, &mut io::stdin())?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = stop::on_signals()?;
    if args.lead {
        let output: Output = Arc::new(Mutex::new(io::stdout()));
        return Ok(match lead(&own_program()?, &home, &stop, io::stdin(), &output)? {
            Finished::Whole => ExitCode::SUCCESS,
            Finished::Stopped => ExitCode::from(STOPPED),
        });
    }
    work(&own_program()?, &home, &args.connection, &stop, io::stdin(), &mut io::stdout())?;
    Ok(ExitCode::SUCCESS)
}
