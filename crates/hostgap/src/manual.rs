//! Man pages and shell completions, made from the command definitions.

use std::io;
use std::path::{Path, PathBuf};
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
    let mut command = crate::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &args.dir).with_context(|| format!("write man pages to {}", args.dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The page of a command, and those of the commands below it.
fn write_pages(command: &clap::Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, dir)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = String::from_utf8(text).expect("a page is text");
    std::fs::write(dir.join(page.get_filename()), with_lines_as_written(&text))
}

/// What follows the options are examples and lists. man would fill their lines, space them out, and break
/// `--arrivals` by a hyphen that no command line has.
fn with_lines_as_written(page: &str) -> String {
    let Some((before, extra)) = page.split_once("\n.SH EXTRA\n") else { return page.to_owned() };
    let end = extra.find("\n.SH ").map_or(extra.len(), |at| at + 1);
    let (extra, after) = extra.split_at(end);
    let titles = [("Examples:\n", "EXAMPLES"), ("Exit codes:\n", "EXIT STATUS")];
    let titled = titles.iter().find_map(|(first, title)| Some((*title, extra.strip_prefix(first)?)));
    let (title, extra) = titled.unwrap_or(("EXTRA", extra));
    format!("{before}\n.SH \"{title}\"\n.nf\n{}\n.fi\n{after}", extra.trim_end())
}

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "hostgap", &mut text);
    output::text(&String::from_utf8(text).expect("completions are text"))?;
    Ok(ExitCode::SUCCESS)
}
