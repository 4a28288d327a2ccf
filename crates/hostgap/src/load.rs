//! `hostgap load`: the generator, alone.

mod hlog;
mod json;
mod shown;
mod url;
mod verdict;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::load::{Client, Expect, Live, LoadError, Outcome, Run, Schedule, Target, Wait};
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use linux::CpuSet;
use linux::cpu::Scheduling;
use linux::procfs::Procfs;

use self::hlog::Hlog;
use self::verdict::Verdict;
use crate::exit::{self, BadInput};
use crate::{stop, units};

/// Ask an HTTP server at a constant rate, and tell how long its answers take.
///
/// The schedule does not wait for the server. Response time counts from the instant at which a request was meant to be
/// sent, so a server that stalls shows it; service time counts from the instant at which it was sent, which is what
/// most tools print; lag is the difference, and late the part of it that is the generator's own and not the wait for a
/// free connection. Latency to the microsecond needs a CPU for the generator (--cpus).
///
/// Every run is checked: whether it was what was asked for (rate, answers, connections), and whether the generator, its
/// machine and the samples leave a doubt (lateness, gaps, CPUs, a run that changed half-way, samples that depend on each
/// other). Doubts are told, and make the run fail under --strict.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hostgap load http://127.0.0.1:8080/ --rate 20k
  hostgap load http://[::1]:8080/4096 --rate 1.5k --connections 500 --duration 1m --cpus 2,3
  hostgap load http://10.0.0.1/ --rate max --json
  hostgap load http://10.0.0.1/ --rate 5k --strict --hlog run.hlog

Exit code 3: the run is not valid, because the rate was missed by more than 0.01 %, because less than 99.9 % of the
requests were answered as expected, because connections broke, or under --strict because a check left a doubt.")]
pub(crate) struct Args {
    /// `http://HOST[:PORT][/PATH]`
    #[arg(value_name = "URL")]
    url: String,
    /// Requests per second (500, 20k, 1.5M, 0.5), or max: each connection asks again as soon as it has its answer.
    #[arg(long, value_name = "RATE", default_value = "1k", allow_hyphen_values = true)]
    rate: String,
    /// Permanent connections, of all threads together.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// How long to measure (10s, 500ms, 1m30s).
    #[arg(long, value_name = "TIME", default_value = "10s")]
    duration: String,
    /// Load before that, which is not counted; 0s: none.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    warmup: String,
    /// How long to wait for connections, and for answers after the end.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    timeout: String,
    /// Threads, each with its share of the connections. Without it, one, or one for each of --cpus.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// CPUs as a list (0-3,8); threads are pinned to them in turn. Without it, threads run anywhere.
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuSet>,
    /// How a thread waits for the next instant.
    #[arg(long, value_enum, default_value_t = WaitArg::Hybrid)]
    wait: WaitArg,
    /// Run the threads under SCHED_FIFO with this priority, so that other programs do not make them late.
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99))]
    fifo: Option<u8>,
    /// The status of a good answer.
    #[arg(long, value_name = "CODE", default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=999))]
    status: u16,
    /// The size of a good answer's body in bytes (100, 4k). Without it, any.
    #[arg(long, value_name = "SIZE")]
    body: Option<String>,
    /// Fail with code 3 also for what only leaves a doubt.
    #[arg(long)]
    strict: bool,
    /// Print the result as JSON, times in nanoseconds.
    #[arg(long)]
    json: bool,
    /// Write all times to a file as an interval log of HdrHistogram, in nanoseconds, tagged response, service and lag.
    #[arg(long, value_name = "FILE")]
    hlog: Option<PathBuf>,
}

/// [`Wait`] as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum WaitArg {
    /// Sleep until shortly before it, as early as sleeps are late here, then spin.
    Hybrid,
    /// Sleep: the least CPU, some microseconds late.
    Sleep,
    /// Never sleep: only on a CPU that nobody else needs.
    Spin,
}

/// A command line that was understood.
struct Job {
    url: String,
    strict: bool,
    json: bool,
    hlog: Option<PathBuf>,
    cpus: Option<CpuSet>,
    target: Target,
    /// Of each thread.
    connections: Vec<usize>,
    timeout: Duration,
    warmup: Duration,
    run: Run,
}

/// `hostgap load`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let job = job(args)?;
    let stop = stop::on_signals()?;
    let hlog = job.hlog.as_deref().map(Hlog::create).transpose()?;
    let mut clients = connect(&job)?;
    if !job.warmup.is_zero() {
        let warmup = Run { duration: job.warmup, ..job.run.clone() };
        drive(&mut clients, &warmup, &stop, "warming up")?;
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(exit::INTERRUPTED));
    }
    let before = Procfs::kernel().stat()?;
    let outcome = drive(&mut clients, &job.run, &stop, "")?;
    let stolen = verdict::stolen(&before, &Procfs::kernel().stat()?, job.cpus.as_ref());
    let verdict = Verdict::new(&outcome, &job.run.schedule, stolen, job.strict);
    let text = match job.json {
        true => format!("{}\n", json::json(&job, &outcome, &verdict)),
        false => shown::table(&job, &outcome, &verdict),
    };
    std::io::stdout().write_all(text.as_bytes()).context("could not write the result")?;
    hlog.map_or(Ok(()), |hlog| hlog.write(&job, &outcome))?;
    if stop.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(exit::INTERRUPTED));
    }
    for complaint in verdict.complaints() {
        eprintln!("hostgap: the run is not valid: {}", complaint.text);
    }
    Ok(if verdict.is_valid() { ExitCode::SUCCESS } else { ExitCode::from(exit::INVALID) })
}

fn job(args: Args) -> anyhow::Result<Job> {
    let body_bytes = args.body.as_deref().map(units::bytes).transpose().map_err(BadInput)?.map(u64::from);
    let target = url::target(&args.url, Expect { status: args.status, body_bytes })?;
    let schedule = match units::rate(&args.rate).map_err(BadInput)? {
        units::Rate::PerSecond(rate_per_s) => Schedule::Constant { rate_per_s },
        units::Rate::Max => Schedule::Saturate,
    };
    let duration = units::duration(&args.duration).map_err(BadInput)?;
    if duration.is_zero() {
        return Err(BadInput("--duration must be more than zero".to_owned()).into());
    }
    let timeout = units::duration(&args.timeout).map_err(BadInput)?;
    let cpus: Vec<u16> = args.cpus.iter().flat_map(CpuSet::iter).collect();
    let threads = args.threads.map_or(cpus.len().max(1), |threads| threads as usize);
    let connections = args.connections as usize;
    if connections < threads {
        let text = format!("{connections} connections are too few for {threads} threads: each needs one");
        return Err(BadInput(text).into());
    }
    let wait = match args.wait {
        WaitArg::Hybrid => Wait::Hybrid,
        WaitArg::Sleep => Wait::Sleep,
        WaitArg::Spin => Wait::Spin,
    };
    let places = if cpus.is_empty() { 0 } else { threads };
    Ok(Job {
        url: args.url,
        strict: args.strict,
        json: args.json,
        hlog: args.hlog,
        cpus: args.cpus,
        target,
        connections: (0..threads).map(|index| share(connections, index, threads)).collect(),
        timeout,
        warmup: units::duration(&args.warmup).map_err(BadInput)?,
        run: Run {
            schedule,
            duration,
            drain: timeout,
            wait,
            threads: cpus.iter().cycle().take(places).map(|cpu| CpuSet::from_iter([*cpu])).collect(),
            scheduling: args.fifo.map_or(Scheduling::Normal, Scheduling::Fifo),
        },
    })
}

/// The part of a whole that falls to one of several; the first ones get what does not divide evenly.
fn share(whole: usize, index: usize, parts: usize) -> usize {
    whole / parts + usize::from(index < whole % parts)
}

fn connect(job: &Job) -> anyhow::Result<Vec<Client>> {
    let connect = |connections: &usize| Client::connect(&job.target, *connections, job.timeout);
    job.connections.iter().map(connect).collect::<Result<_, _>>().map_err(explain)
}

/// What the user can mend is told as such.
fn explain(error: LoadError) -> anyhow::Error {
    match error {
        LoadError::Target { .. } | LoadError::Rate(_) | LoadError::Shape(_) | LoadError::Spin(_) => {
            BadInput(error.to_string()).into()
        }
        LoadError::Connect { .. }
        | LoadError::ConnectTimeout { .. }
        | LoadError::Listen { .. }
        | LoadError::Linux(_)
        | LoadError::System { .. } => error.into(),
    }
}

/// Runs, shows how far it is, and stops when a signal comes.
fn drive(clients: &mut [Client], run: &Run, stop: &AtomicBool, what: &str) -> anyhow::Result<Outcome> {
    let live = Live::default();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| watch(&live, run.duration, stop, &done, what));
        let outcome = ::load::run_live(clients, run, &live);
        done.store(true, Ordering::Relaxed);
        outcome
    })
    .map_err(explain)
}

fn watch(live: &Live, duration: Duration, stop: &AtomicBool, done: &AtomicBool, what: &str) {
    let bar = std::io::stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}")
            .expect("the template is constant and was tried");
        ProgressBar::new(duration.as_millis() as u64).with_style(style)
    });
    let started = Instant::now();
    while !done.load(Ordering::Relaxed) {
        if stop.load(Ordering::Relaxed) {
            live.stop();
        }
        if let Some(bar) = &bar {
            let elapsed = started.elapsed();
            let per_s = live.answered() as f64 / elapsed.as_secs_f64().max(1e-3);
            bar.set_position(elapsed.min(duration).as_millis() as u64);
            let open = live.sent().saturating_sub(live.answered());
            bar.set_message(format!("{what} {} answered, {per_s:.0}/s, {open} not", live.answered()));
        }
        thread::sleep(Duration::from_millis(50));
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_a_whole() {
        for (whole, parts) in [(64, 1), (64, 3), (5, 5), (7, 4)] {
            let shares: Vec<usize> = (0..parts).map(|index| share(whole, index, parts)).collect();
            assert_eq!(shares.iter().sum::<usize>(), whole);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }
}
