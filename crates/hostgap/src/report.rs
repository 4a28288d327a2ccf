//! `hostgap report`: render a record file again, a race's or a search's, on any machine.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::record::{Race, Record};
use ::report::{Style, Summary, html, search};
use anyhow::Context;

/// Render the record of a race or of a search for settings again: the table, and the page beside the record.
///
/// A record file is enough; no kernel feature and no privilege is needed. The record of a race or a search that was cut
/// off can be rendered too: it holds every finished round or stage.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Record files (race.jsonl of a race, search.json of `hostgap tune search`).
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
    /// Write the page here instead of beside the record (one file only).
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// `hostgap report`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.html.is_some() && args.files.len() > 1 {
        return Err(
            crate::exit::BadInput("--html names one page, but several records are given".into()).into()
        );
    }
    for file in &args.files {
        let page = args.html.clone().unwrap_or_else(|| file.with_file_name(PAGE));
        match Record::read(file)? {
            Record::Race(race) => show(&summarise(&race, &page)?, args.json)?,
            Record::Search(search) => {
                write_page(&page, &html::search_page(&search))?;
                write(&if args.json { search::json(&search) } else { search::text(&search) })?;
            }
        }
        crate::speak::aside(format_args!("page: {}", page.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The page's name beside its record.
pub(crate) const PAGE: &str = "report.html";

/// Reads a record and writes its page.
pub(crate) fn render(file: &Path, page: &Path) -> anyhow::Result<Summary> {
    summarise(&Race::read(file)?, page)
}

fn summarise(race: &Race, page: &Path) -> anyhow::Result<Summary> {
    let summary = ::report::analyse(race);
    write_page(page, &html::page(&summary))?;
    Ok(summary)
}

fn write_page(page: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(page, text).with_context(|| format!("could not write {}", page.display()))
}

/// Prints the summaries of the same experiment on several kernels.
pub(crate) fn show_all(summaries: &[Summary], json: bool) -> anyhow::Result<()> {
    match summaries {
        [] => Ok(()),
        [one] => show(one, json),
        all if json => write(&::report::json_of_all(all)),
        all => {
            all.iter().try_for_each(|summary| show(summary, false))?;
            ::report::kernels(all, style()).map_or(Ok(()), |text| write(&text))
        }
    }
}

/// Prints a summary to stdout.
pub(crate) fn show(summary: &Summary, json: bool) -> anyhow::Result<()> {
    if json { write(&::report::json(summary)) } else { write(&::report::table(summary, style())) }
}

/// How to draw on this stdout.
fn style() -> Style {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    Style { colour, width: terminal_width() }
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        stdout.write_all(b"\n")?;
    }
    Ok(())
}

fn terminal_width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| width.0.into())
}
