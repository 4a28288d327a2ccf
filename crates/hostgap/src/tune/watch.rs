//! The watcher process of a tuning: how it is started, and what it does.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;

use anyhow::{Context, bail};
use plan::{Kernel, Store, WatchEnd, Watcher};

use crate::{exit, output, stop};

/// The line that the watcher prints when it is ready.
const WATCHING: &str = "watching";

/// Starts the watcher, and returns when it is ready. It lives on in a session of its own.
pub(super) fn start(store: &Store) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("find this executable")?;
    let mut command = Command::new(own);
    command.args(["tune", "watch", "--state"]).arg(store.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context("start the watcher")?;
    let mut line = String::new();
    let read = BufReader::new(child.stdout.take().expect("asked for above")).read_line(&mut line);
    read.context("read from the watcher")?;
    if line.trim_end() != WATCHING {
        child.wait().context("wait for the watcher")?;
        let why = if line.is_empty() { "it ended without a message" } else { line.trim_end() };
        bail!("start the watcher: {why}; nothing was changed");
    }
    Ok(())
}

/// `hostgap tune watch`, an internal command.
pub(super) fn run(store: &Store) -> anyhow::Result<ExitCode> {
    linux::session::lead()?;
    let stop = stop::on_signals()?;
    let mut kernel = Kernel::new()?;
    let watcher = match Watcher::of(store) {
        Ok(watcher) => watcher,
        Err(error) => {
            // The process that started it reads one line.
            output::result(error)?;
            return Ok(ExitCode::from(exit::FAILURE));
        }
    };
    output::result(WATCHING)?;
    Ok(match watcher.watch(&mut kernel, || stop.load(Ordering::Relaxed))? {
        WatchEnd::Settled => ExitCode::SUCCESS,
        WatchEnd::TakenBack(_, back) if back.is_whole => ExitCode::SUCCESS,
        WatchEnd::TakenBack(..) => ExitCode::from(exit::FAILURE),
    })
}
