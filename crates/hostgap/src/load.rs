//! `hostgap load`: the generator, alone.

mod args;
mod drive;
mod hlog;
mod job;
mod json;
mod request;
mod self_test;
mod slo;
mod text;
mod url;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use ::load::search::{RateSearch, RateSearchResult, SearchStep, TriedRate};
use ::load::slo::Slo;
use ::load::witness::COARSE;
use ::load::{CheckedRun, Client, LoadError, Run, RunVerdict, Schedule, WhenBusy};
use bpf::witness::Witness;
use linux::procfs::Procfs;

pub(crate) use self::args::Args;
use self::drive::drive;
use self::hlog::Hlog;
use self::job::{Goal, Job};
use crate::{exit, output, stop};

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.result.self_test {
        return self_test::run(args.result.json);
    }
    let job = job::job(args).map_err(job::quoted)?;
    let stop = stop::on_signals()?;
    let hlog = job.hlog.as_deref().map(Hlog::create).transpose()?;
    let mut clients = connect(&job)?;
    let mut ran = Vec::new();
    let ended = match &job.goal {
        Goal::Rates(schedules) => rates(&mut clients, &job, schedules, &stop, &mut ran),
        Goal::Max(slo) => highest(&mut clients, &job, slo, &stop).map(|best| ran.extend(best)),
    };
    // The finished runs are written even if the next one could not take place.
    hlog.map_or(Ok(()), |hlog| hlog.write(&job, &ran))?;
    ended?;
    if stop.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(exit::INTERRUPTED));
    }
    let valid = ran.iter().all(|ran| ran.verdict.is_valid());
    Ok(if valid && !ran.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::INVALID) })
}

/// Runs at one rate after the other, and prints each result as soon as there is one. If a run fails, those before
/// it are printed all the same.
fn rates(
    clients: &mut [Client],
    job: &Job,
    schedules: &[Schedule],
    stop: &AtomicBool,
    runs: &mut Vec<CheckedRun>,
) -> anyhow::Result<()> {
    let mut ended = Ok(());
    for schedule in schedules {
        match rate(clients, job, *schedule, stop) {
            Ok(Some(ran)) => {
                if !job.json {
                    let gap = if runs.is_empty() { "" } else { "\n" };
                    print(&format!("{gap}{}", text::table(job, &ran)))?;
                }
                complain(&ran);
                runs.push(ran);
            }
            Ok(None) => break,
            Err(error) => {
                ended = Err(error);
                break;
            }
        }
    }
    match (&runs[..], job.json) {
        (_, false) | ([], true) => {}
        ([ran], true) if schedules.len() == 1 => print(&format!("{}\n", json::run(job, ran)))?,
        (runs, true) => print(&format!("{}\n", json::sweep(job, runs)))?,
    }
    ended
}

/// Warms up and runs at one rate; `None`: it was interrupted before.
fn rate(
    clients: &mut [Client],
    job: &Job,
    schedule: Schedule,
    stop: &AtomicBool,
) -> anyhow::Result<Option<CheckedRun>> {
    let run = Run { schedule, ..job.run.clone() };
    warm_up(clients, job, &run, stop)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    Ok(Some(judged(clients, job, &run, stop, "")?))
}

/// Finds the highest rate at which the limits hold, and prints the run at it.
fn highest(
    clients: &mut [Client],
    job: &Job,
    slo: &Slo,
    stop: &AtomicBool,
) -> anyhow::Result<Option<CheckedRun>> {
    // In a closed loop every request has a connection: none is due that could be dropped or grown for.
    let warmup = Run { schedule: Schedule::Saturate, when_busy: WhenBusy::Wait, ..job.run.clone() };
    warm_up(clients, job, &warmup, stop)?;
    let found = search(clients, job, slo, stop)?;
    if job.json {
        print(&format!("{}\n", json::found(job, slo, &found)))?;
    } else {
        match &found.best {
            Some(ran) => print(&format!("{}\n{}", text::found(slo, ran), text::table(job, ran)))?,
            None => {
                let why = text::ended(&found).unwrap_or_else(|| "the search was interrupted".to_owned());
                print(&format!("no rate was found that meets {}: {why}\n", slo::words(slo)))?;
            }
        }
    }
    found.best.iter().for_each(complain);
    Ok(found.best)
}

/// Searches, and says of each rate that was tried whether it held.
fn search(
    clients: &mut [Client],
    job: &Job,
    slo: &Slo,
    stop: &AtomicBool,
) -> Result<RateSearchResult, LoadError> {
    let mut measure = |step, run: &Run| {
        let what = match step {
            SearchStep::ClosedLoop => "closed loop",
            SearchStep::Bisection => "searching:",
            SearchStep::Confirmation => "confirming:",
        };
        judged(clients, job, run, stop, what)
    };
    let mut emit = |tried: &TriedRate| {
        let held = tried.broken.as_ref().map_or("yes".to_owned(), |why| format!("no, {}", slo::why(why)));
        output::aside(format_args!("{}/s: {held}", tried.rate_per_s));
    };
    RateSearch { run: &job.run, slo, stop, measure: &mut measure, emit: &mut emit }.find()
}

/// Runs once, and judges the run.
fn judged(
    clients: &mut [Client],
    job: &Job,
    run: &Run,
    stop: &AtomicBool,
    what: &str,
) -> Result<CheckedRun, LoadError> {
    let before = Procfs::kernel().stat()?;
    let witness = witness(job, run);
    let outcome = drive(clients, run, stop, what, witness.as_ref())?;
    let stolen = ::load::stolen(&before, &Procfs::kernel().stat()?, job.cpus.as_ref());
    let verdict = RunVerdict::new(&outcome, &run.schedule, stolen, job.strict);
    Ok(CheckedRun { schedule: run.schedule, outcome, verdict })
}

/// Watches the machine beside a run at a rate. Where this user may not, the run goes on without, and its result shows
/// none.
fn witness(job: &Job, run: &Run) -> Option<Witness> {
    let cpus = job.watched.as_ref().filter(|_| run.schedule.rate_per_s().is_some())?;
    Witness::new(cpus, COARSE).ok()
}

fn complain(ran: &CheckedRun) {
    for complaint in ran.verdict.complaints() {
        output::aside(format_args!("hostgap: the run is not valid: {}", complaint.text));
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    Ok(output::text(&::report::terminal::safe(text))?)
}

fn connect(job: &Job) -> anyhow::Result<Vec<Client>> {
    linux::process::raise_open_files()?;
    Ok(job.pools.iter().map(|pool| Client::open(&job.target, *pool)).collect::<Result<_, _>>()?)
}

fn warm_up(clients: &mut [Client], job: &Job, run: &Run, stop: &AtomicBool) -> anyhow::Result<()> {
    if !job.warmup.is_zero() {
        let run = Run { duration: job.warmup, requests: None, ..run.clone() };
        drive(clients, &run, stop, "warming up", None)?;
    }
    Ok(())
}
