//! `hostgap remote`: what a race starts on other machines and in pods, and no command for people.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ::lab::far_side::{watch, work};
use ::lab::kube::{do_pod_tasks, wait_for_the_end};
use ::lab::led::{Output, STOPPED, lead};
use ::lab::{Finished, Home};
use agent::source::kubernetes::delete_namespace;
use anyhow::{Context, anyhow};

use crate::own_program::own_program;
use crate::stop;

/// Do this machine's or pod's part in a race (internal): read requests from stdin, answer on stdout.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Wait for the end of the input, then remove what this process has left.
    #[arg(long, value_name = "PID")]
    watch: Option<u32>,
    /// Lead the race that the first line of stdin describes.
    #[arg(long)]
    lead: bool,
    /// Serve or load from this pod, as lines of stdin ask.
    // The option keeps its name: only a process of another version that has started can say which version it is.
    #[arg(long = "hand")]
    does_tasks: bool,
    /// Wait for the end of stdin, then delete the namespace.
    #[arg(long)]
    lease: bool,
    /// The namespace that goes with the lease; without it the pod's own Job takes all with it.
    #[arg(long, value_name = "NAME", requires = "lease")]
    namespace: Option<String>,
    /// Wait to be ended: the first process of a pod in which others work.
    #[arg(long)]
    wait: bool,
    /// What sshd says of the connection.
    #[arg(long, value_name = "SSH_CONNECTION", default_value = "", hide_default_value = true)]
    connection: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let home = Home::of_this_machine();
    if let Some(pid) = args.watch {
        watch(&home, pid, &mut io::stdin())?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = stop::on_signals()?;
    if args.does_tasks {
        do_pod_tasks(env!("CARGO_PKG_VERSION"), &stop, io::stdin(), &mut io::stdout())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.lease {
        wait_for_the_end(io::stdin(), &mut io::stdout(), &stop);
        return args.namespace.as_deref().map_or(Ok(ExitCode::SUCCESS), end_namespace);
    }
    if args.wait {
        while !stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(WAKES);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let output: Output = Arc::new(Mutex::new(io::stdout()));
    if args.lead {
        return Ok(match lead(&own_program()?, &home, &stop, io::stdin(), &output)? {
            Finished::Whole => ExitCode::SUCCESS,
            Finished::Stopped => ExitCode::from(STOPPED),
        });
    }
    work(&own_program()?, &home, &args.connection, &stop, io::stdin(), &output)?;
    Ok(ExitCode::SUCCESS)
}

/// How often a process that waits looks whether it is to end.
const WAKES: std::time::Duration = std::time::Duration::from_millis(200);

/// Deletes a namespace with all that is in it, this pod too.
fn end_namespace(name: &str) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("start the loop of events")?;
    let deleted = runtime.block_on(delete_namespace(name));
    deleted.map_err(|why| anyhow!("delete namespace {name}: {why}"))?;
    Ok(ExitCode::SUCCESS)
}
