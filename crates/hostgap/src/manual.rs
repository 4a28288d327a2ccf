//! Man pages and shell completions, made from the command definitions.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use crate::output;

/// Write the man pages into a directory.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The directory; it is created.
    dir: PathBuf,
}

/// Print the completions for a shell.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell to complete commands for.
    shell: clap_complete::Shell,
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("create {}", args.dir.display()))?;
    clap_mangen::generate_to(crate::command(), &args.dir)
        .with_context(|| format!("write man pages to {}", args.dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "hostgap", &mut text);
    output::text(&String::from_utf8(text).expect("completions are text"))?;
    Ok(ExitCode::SUCCESS)
}
