//! `hostgap tune keep`: makes the settings survive a restart, and ends that.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use host::{KeptFiles, KeptTuning};
use plan::{Account, Phase};

use super::{StateArgs, request};
use crate::exit::{self, BadInput};
use crate::output;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Remove the files. The settings stay until the next restart.
    #[arg(long)]
    forget: bool,
    /// Write below this directory, for an image of another system.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    #[command(flatten)]
    state: StateArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let files = KeptFiles::below(&args.root);
    if args.forget {
        let removed = files.forget()?;
        reload(&files);
        output::result(format_args!("{removed} files removed."))?;
        return Ok(ExitCode::SUCCESS);
    }
    let store = args.state.store();
    let Some(standing) = store.standing()? else {
        return Err(BadInput("there is no tuning to keep: apply and confirm one first".to_owned()).into());
    };
    if standing.phase != Phase::Confirmed || store.account()? == Account::Restarted {
        let text = format!("tuning {} is not confirmed: run `hostgap tune confirm` first", standing.id);
        return Err(BadInput(text).into());
    }
    let kept = KeptTuning::of(&standing)?;
    let own = std::env::current_exe().context("find this executable")?;
    // Removes everything of a tuning that was kept before.
    files.forget()?;
    let written = files.write(&kept, &own)?;
    reload(&files);
    let profile = Some(files.profile().display().to_string());
    let dev = kept.link().map(str::to_owned);
    let request = request::RequestArgs { profile, dev, ..request::RequestArgs::default() };
    let faults = files.faults(&kept, &request.proposal()?)?;
    let printed = written.iter().try_for_each(|path| output::result(path.display()));
    faults.iter().for_each(output::aside);
    output::after_work(printed)?;
    if !faults.is_empty() {
        return Ok(ExitCode::from(exit::INVALID));
    }
    output::result(format_args!("Tuning {} is applied again at every start.", standing.id))?;
    Ok(ExitCode::SUCCESS)
}

fn reload(files: &KeptFiles) {
    if !files.reload() {
        output::aside("systemd did not reload its units: run `systemctl daemon-reload`.");
    }
}
