//! `hostgap load`: the generator, alone.

mod args;
mod drive;
mod hlog;
mod job;
mod json;
mod request;
mod search;
mod self_test;
mod slo;
mod text;
mod url;
mod verdict;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use ::load::{Client, Outcome, Run, Schedule};
use linux::procfs::Procfs;

pub(crate) use self::args::Args;
use self::drive::drive;
use self::hlog::Hlog;
use self::job::{Goal, Job, explain};
use self::slo::Slo;
use self::verdict::Verdict;
use crate::{exit, speak, stop};

/// One run and its result.
struct Ran {
    schedule: Schedule,
    outcome: Outcome,
    verdict: Verdict,
}

/// `hostgap load`.
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
    runs: &mut Vec<Ran>,
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
) -> anyhow::Result<Option<Ran>> {
    let run = Run { schedule, ..job.run.clone() };
    warm_up(clients, job, &run, stop)?;
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    judged(clients, job, &run, stop, "").map(Some)
}

/// Finds the highest rate at which the limits hold, and prints the run at it.
fn highest(clients: &mut [Client], job: &Job, slo: &Slo, stop: &AtomicBool) -> anyhow::Result<Option<Ran>> {
    warm_up(clients, job, &Run { schedule: Schedule::Saturate, ..job.run.clone() }, stop)?;
    let found = search::search(clients, job, slo, stop)?;
    if job.json {
        print(&format!("{}\n", json::found(job, slo, &found)))?;
    } else {
        match &found.best {
            Some(ran) => print(&format!("{}\n{}", text::found(slo, ran), text::table(job, ran)))?,
            None => {
                let why = found.ended.as_deref().unwrap_or("the search was interrupted");
                print(&format!("no rate was found that meets {slo}: {why}\n"))?;
            }
        }
    }
    found.best.iter().for_each(complain);
    Ok(found.best)
}

/// Runs once, and judges the run.
fn judged(
    clients: &mut [Client],
    job: &Job,
    run: &Run,
    stop: &AtomicBool,
    what: &str,
) -> anyhow::Result<Ran> {
    let before = Procfs::kernel().stat()?;
    let outcome = drive(clients, run, stop, what)?;
    let stolen = verdict::stolen(&before, &Procfs::kernel().stat()?, job.cpus.as_ref());
    let verdict = Verdict::new(&outcome, &run.schedule, stolen, job.strict);
    Ok(Ran { schedule: run.schedule, outcome, verdict })
}

fn complain(ran: &Ran) {
    for complaint in ran.verdict.complaints() {
        speak::aside(format_args!("hostgap: the run is not valid: {}", complaint.text));
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    Ok(speak::text(&::report::terminal::safe(text))?)
}

fn connect(job: &Job) -> anyhow::Result<Vec<Client>> {
    linux::process::raise_open_files()?;
    job.pools.iter().map(|pool| Client::open(&job.target, *pool)).collect::<Result<_, _>>().map_err(explain)
}

fn warm_up(clients: &mut [Client], job: &Job, run: &Run, stop: &AtomicBool) -> anyhow::Result<()> {
    if !job.warmup.is_zero() {
        let run = Run { duration: job.warmup, requests: None, ..run.clone() };
        drive(clients, &run, stop, "warming up")?;
    }
    Ok(())
}
