//! `hostgap report`: render a record file again, a race's or a search's, on any machine.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::record::{NodePair, RaceRecord, Record};
use ::report::{Style, Summary, html, search};
use anyhow::{Context, bail};

/// Render the record of a race or of a search for settings again: the table, and the page beside the record.
///
/// This needs only the record file, no kernel feature and no privilege. The record of a race or search that was
/// interrupted can be rendered too: it has every finished round or stage. A record with missing rounds is rendered with
/// a note and exit code 3. The records of a race of all pairs (`hostgap race --kube --all-pairs`), named together, are
/// rendered as one map.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Record files (race.jsonl of a race, search.json of `hostgap tune search`); several only from directories of
    /// their own, since each has its page beside it.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
    /// Write the page to this file instead of beside the record (with one record only).
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.html.is_some() && args.files.len() > 1 {
        return Err(
            crate::exit::BadInput("--html names one page, but several records are given".into()).into()
        );
    }
    if args.files.len() > 1 && are_pairs(&args.files)? {
        return Ok(match print_map(&args.files, args.json)? {
            None => ExitCode::SUCCESS,
            Some(why) => {
                crate::output::aside(format_args!("hostgap: {why}"));
                ExitCode::from(crate::exit::INVALID)
            }
        });
    }
    let mut whole = true;
    for (file, page) in args.files.iter().zip(&pages(args)?) {
        match Record::read(file)? {
            Record::Race(race) => {
                let summary = summarise(&race, page)?;
                print(&summary, args.json)?;
                if let Some(why) = incomplete(file, &summary) {
                    whole = false;
                    crate::output::aside(format_args!("hostgap: {why}"));
                }
            }
            Record::Search(search) => {
                write_page(page, &html::search_page(&search))?;
                write(&if args.json { search::json(&search) } else { search::text(&search) })?;
            }
        }
        crate::output::aside(format_args!("page: {}", page.display()));
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(crate::exit::INVALID) })
}

/// The page of each record.
///
/// # Errors
/// One would replace a record, or the page of another one.
fn pages(args: &Args) -> Result<Vec<PathBuf>, crate::exit::BadInput> {
    let page = |file: &PathBuf| args.html.clone().unwrap_or_else(|| file.with_file_name(PAGE));
    let pages: Vec<PathBuf> = args.files.iter().map(page).collect();
    let records: BTreeSet<PathBuf> = args.files.iter().map(|file| place(file)).collect();
    let mut taken = BTreeSet::new();
    for page in &pages {
        if records.contains(&place(page)) {
            return Err(crate::exit::BadInput(format!(
                "could not write the page to {}: that is the record",
                page.display()
            )));
        }
        if !taken.insert(place(page)) {
            return Err(crate::exit::BadInput(format!(
                "could not write several pages to {}: render the records of a directory one at a time, with --html",
                page.display()
            )));
        }
    }
    Ok(pages)
}

/// Where a file is or would be, by whatever name.
fn place(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| {
        let above = file.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        above.canonicalize().unwrap_or_else(|_| above.to_owned()).join(file.file_name().unwrap_or_default())
    })
}

/// The page's name beside its record.
pub(crate) const PAGE: &str = "report.html";

/// Reads a record and writes its page.
pub(crate) fn render(file: &Path, page: &Path) -> anyhow::Result<Summary> {
    summarise(&RaceRecord::read(file)?, page)
}

fn summarise(race: &RaceRecord, page: &Path) -> anyhow::Result<Summary> {
    let summary = ::report::analyse(race);
    write_page(page, &html::page(&summary))?;
    Ok(summary)
}

/// Why a record is not all of its race, if it is not.
fn incomplete(file: &Path, summary: &Summary) -> Option<String> {
    let missing = summary.progress.rounds_missing;
    (missing > 0).then(|| format!("{} is incomplete: missing rounds: {missing}", file.display()))
}

/// Whether all records are of one race of all pairs of a cluster's nodes.
fn are_pairs(files: &[PathBuf]) -> anyhow::Result<bool> {
    for file in files {
        match Record::read(file)? {
            Record::Race(race) if race.header.pair.is_some() => {}
            Record::Race(_) | Record::Search(_) => return Ok(false),
        }
    }
    Ok(true)
}

/// The directory above those of the records of one race of all pairs.
///
/// # Errors
/// They are of several races, by their places, paths or pairs.
fn directory_of_one_race<'f>(files: &'f [PathBuf], races: &[RaceRecord]) -> anyhow::Result<&'f Path> {
    let above = |file: &'f PathBuf| file.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    let names = |race: &RaceRecord| -> Vec<String> {
        race.header.entrants.iter().map(|entrant| entrant.name.clone()).collect()
    };
    let (mut pairs, mut directories) = (BTreeSet::new(), BTreeSet::new());
    for (file, race) in files.iter().zip(races) {
        // Pages are written beside the records.
        let is_new = pairs.insert(race.header.pair.as_ref()) && directories.insert(file.parent());
        if above(file) != above(&files[0]) || names(race) != names(&races[0]) || !is_new {
            bail!(
                "compare {} with {}: they are not of one race of all pairs, each in a directory of its own",
                files[0].display(),
                file.display()
            );
        }
    }
    Ok(above(&files[0]))
}

/// Prints the map of the records of a race of all pairs, and writes the page of each race and that of all, which is one
/// directory above them. Returns why it is not valid, if it is not.
pub(crate) fn print_map(files: &[PathBuf], json: bool) -> anyhow::Result<Option<String>> {
    let races = files.iter().map(|file| Ok(RaceRecord::read(file)?)).collect::<anyhow::Result<Vec<_>>>()?;
    let above = directory_of_one_race(files, &races)?;
    let mut summaries = Vec::with_capacity(races.len());
    let mut invalid = None;
    for (file, race) in files.iter().zip(&races) {
        let summary = summarise(race, &file.with_file_name(PAGE))?;
        let why = incomplete(file, &summary);
        let why = why.or_else(|| Some(format!("{}: {}", file.display(), why_invalid(&summary)?)));
        invalid = invalid.or(why);
        summaries.push(summary);
    }
    let map = ::report::map(&races).context("compare pairs: none of the records is of a pair of nodes")?;
    let page = above.join(PAGE);
    let link = |client: &str, server: &str| {
        let is_it = |pair: &NodePair| pair.client.node == client && pair.server.node == server;
        let at = races.iter().position(|race| race.header.pair.as_ref().is_some_and(is_it))?;
        let page = files[at].with_file_name(PAGE);
        Some(page.strip_prefix(above).unwrap_or(&page).display().to_string())
    };
    write_page(&page, &html::map_page(&map, &link))?;
    match json {
        true => write(&::report::json_of_pairs(&map, &summaries))?,
        false => write(&::report::map_table(&map, style()))?,
    }
    crate::output::aside(format_args!("page:    {}\nrecords: {} of pairs", page.display(), files.len()));
    Ok(invalid)
}

/// Replaces the page atomically: a reader sees the old one or the new one, and the old one stays if there is no room
/// for the new one.
fn write_page(page: &Path, text: &str) -> anyhow::Result<()> {
    let written = match std::fs::symlink_metadata(page) {
        // A symbolic link, a pipe or a device is written in place.
        Ok(found) if !found.is_file() => std::fs::write(page, text),
        _ => replace(page, text),
    };
    written.with_context(|| format!("write {}", page.display()))
}

fn replace(page: &Path, text: &str) -> std::io::Result<()> {
    let fresh = page.with_extension("html.new");
    match std::fs::File::create_new(&fresh) {
        Ok(mut file) => {
            let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&fresh, page));
            written.inspect_err(|_| drop(std::fs::remove_file(&fresh)))
        }
        // In a directory without write permission an existing page may still be writable.
        Err(_) => std::fs::write(page, text),
    }
}

/// Prints the summaries of the same experiment on so many kernels, or on fewer, if it did not come to all of them. For
/// programs the form is that of several all the same.
pub(crate) fn print_all(summaries: &[Summary], kernels: usize, json: bool) -> anyhow::Result<()> {
    match summaries {
        [] => Ok(()),
        all if json && kernels > 1 => write(&::report::json_of_all(all)),
        [one] => print(one, json),
        all => {
            all.iter().try_for_each(|summary| print(summary, false))?;
            ::report::kernels(all, style()).map_or(Ok(()), |text| write(&text))
        }
    }
}

/// Prints a summary to stdout.
pub(crate) fn print(summary: &Summary, json: bool) -> anyhow::Result<()> {
    if json { write(&::report::json(summary)) } else { write(&::report::table(summary, style())) }
}

/// How to draw on this stdout.
fn style() -> Style {
    Style { colour: crate::output::has_colours(), width: terminal_width() }
}

fn write(text: &str) -> anyhow::Result<()> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    Ok(crate::output::text(&format!("{text}{end}"))?)
}

fn terminal_width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| width.0.into())
}

/// Why a race is not valid: a candidate broke, or has a load without a trial that counts, because the machine was too
/// busy with other work; `None`: it is. The result says both, too.
pub(crate) fn why_invalid(summary: &Summary) -> Option<String> {
    let broken = summary.candidates.iter().find_map(|c| Some((&c.name, c.broke.as_ref()?)));
    if let Some((name, broke)) = broken {
        return Some(format!("{name} broke in round {}: {}", broke.round, broke.why));
    }
    let empty = summary.candidates.iter().find(|c| c.rates.iter().any(|rate| rate.trials == 0))?;
    Some(format!("{} has a load without a trial that counts; race on a quieter machine", empty.name))
}
