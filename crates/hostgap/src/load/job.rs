//! From the command line to what is to be done.

use std::path::PathBuf;
use std::time::Duration;

use ::load::{Expect, LoadError, Pool, Run, Schedule, Target, Wait, WhenBusy, plain};
use linux::CpuSet;
use linux::cpu::Scheduling;

use super::args::{Args, Arrivals, HttpArg, LoadArgs, WaitArg, WhenBusyArg};
use super::slo::Slo;
use super::{request, url};
use crate::exit::BadInput;
use crate::units;

/// Requests that may be open on a connection, if that is asked for without a number.
const PIPELINE: u32 = 16;

/// Load before what is counted, if nobody says how long.
const WARMUP: Duration = Duration::from_secs(1);

/// How many times as many connections there may be as at the start, if that is asked for without a number.
const GROWTH: u32 = 16;

/// A command line that was understood.
pub(super) struct Job {
    pub(super) url: String,
    pub(super) json: bool,
    pub(super) hlog: Option<PathBuf>,
    pub(super) strict: bool,
    /// Where the generator may run; `None`: anywhere.
    pub(super) cpus: Option<CpuSet>,
    pub(super) target: Target,
    /// Of each thread.
    pub(super) pools: Vec<Pool>,
    pub(super) warmup: Duration,
    /// What is run, but for its schedule.
    pub(super) run: Run,
    pub(super) goal: Goal,
}

impl Job {
    /// Whether each request has a connection of its own.
    pub(super) fn is_fresh(&self) -> bool {
        self.pools.iter().any(|pool| pool.fresh)
    }

    /// Of all threads together.
    pub(super) fn connections(&self) -> usize {
        self.pools.iter().map(|pool| pool.connections).sum()
    }
}

/// What is to be found out.
pub(super) enum Goal {
    /// How it is at each of these.
    Rates(Vec<Schedule>),
    /// The highest rate at which these limits hold.
    Max(Slo),
}

pub(super) fn job(args: Args) -> anyhow::Result<Job> {
    let expect = expect(&args)?;
    let target = url::target(&args.urls, &args.request, expect)?;
    let target = request::dressed(target, &args.request, args.load.no_keepalive)?;
    let duration = units::duration(&args.load.duration).map_err(BadInput)?;
    if duration.is_zero() {
        return Err(BadInput("--duration must be more than zero".to_owned()).into());
    }
    let timeout = units::duration(&args.load.timeout).map_err(BadInput)?;
    let schedules = args.load.rate.iter().map(|rate| schedule(rate, &args.load));
    let schedules = schedules.collect::<Result<Vec<_>, _>>().map_err(BadInput)?;
    fits(&args, &schedules)?;
    let kind = schedules[0];
    let goal = match args.load.slo.as_deref() {
        Some(text) => Goal::Max(text.parse().map_err(BadInput)?),
        None => Goal::Rates(schedules),
    };
    let cpus: Vec<u16> = args.generator.cpus.iter().flat_map(CpuSet::iter).collect();
    let threads = args.generator.threads.map_or(cpus.len().max(1), |threads| threads as usize);
    let places = if cpus.is_empty() { 0 } else { threads };
    let run = Run {
        requests: args.load.requests,
        when_busy: args.load.when_busy.into(),
        drain: timeout,
        timeout: request_timeout(&args.load, &target, timeout)?,
        wait: args.generator.wait.into(),
        threads: cpus.iter().cycle().take(places).map(|cpu| CpuSet::from_iter([*cpu])).collect(),
        scheduling: args.generator.fifo.map_or(Scheduling::Normal, Scheduling::Fifo),
        // The kind of arrivals is that of the first rate, also for a search.
        ..Run::new(kind, duration)
    };
    Ok(Job {
        url: args.urls.join(" "),
        json: args.result.json,
        hlog: args.result.hlog,
        strict: args.result.strict,
        pools: pools(&args.load, args.generator.timestamps, threads, timeout)?,
        cpus: args.generator.cpus,
        target,
        warmup: warmup(&args.load)?,
        run,
        goal,
    })
}

fn expect(args: &Args) -> anyhow::Result<Expect> {
    let body_bytes = args.request.expect_body.as_deref().map(units::bytes).transpose().map_err(BadInput)?;
    let expected = Expect { body_bytes: body_bytes.map(u64::from), ..Expect::default() };
    Ok(Expect { status: args.request.expect_status.unwrap_or(expected.status), ..expected })
}

fn schedule(rate: &str, load: &LoadArgs) -> Result<Schedule, String> {
    Ok(match (units::rate(rate)?, load.arrivals) {
        (units::Rate::Max, _) => Schedule::Saturate,
        (units::Rate::PerSecond(rate_per_s), Arrivals::Constant) => Schedule::Constant { rate_per_s },
        (units::Rate::PerSecond(rate_per_s), Arrivals::Poisson) => {
            Schedule::Poisson { rate_per_s, seed: load.seed }
        }
    })
}

/// What cannot be had together, in the words of the command line.
fn fits(args: &Args, schedules: &[Schedule]) -> Result<(), BadInput> {
    let load = &args.load;
    let refuse = |text: &str| Err(BadInput(text.to_owned()));
    if load.requests.is_some() && schedules.iter().any(|it| matches!(it, Schedule::Poisson { .. })) {
        return refuse(
            "-n: with --arrivals poisson the instant of the last request is not known beforehand; give a --duration",
        );
    }
    if !load.no_keepalive {
        return match args.request.http {
            Some(HttpArg::Http10) => {
                refuse("--http 1.0 ends the connection with each answer, so that it takes --no-keepalive")
            }
            Some(HttpArg::Http11) | None => Ok(()),
        };
    }
    let others = [
        (load.when_busy == WhenBusyArg::Grow, "--when-busy grow", "its connections are opened anyway"),
        (load.when_busy == WhenBusyArg::Pipeline, "--when-busy pipeline", "nothing goes behind its request"),
        (load.pipeline.is_some_and(|depth| depth > 1), "--pipeline", "nothing goes behind its request"),
        (
            load.connections_max.is_some(),
            "--connections-max",
            "--connections is how many there are at a time",
        ),
        (
            args.generator.timestamps,
            "--timestamps",
            "the stamps of a connection that is being made are not those of a request",
        ),
    ];
    match others.iter().find(|(given, _, _)| *given) {
        Some((_, option, why)) => refuse(&format!("--no-keepalive does not go with {option}: {why}")),
        None => Ok(()),
    }
}

/// Who counts requests counts all of them.
fn warmup(load: &LoadArgs) -> Result<Duration, BadInput> {
    match &load.warmup {
        Some(text) => units::duration(text).map_err(BadInput),
        None if load.requests.is_some() => Ok(Duration::ZERO),
        None => Ok(WARMUP),
    }
}

/// A lost datagram would keep its socket busy to the end, so over UDP there always is a limit.
fn request_timeout(
    load: &LoadArgs,
    target: &Target,
    timeout: Duration,
) -> Result<Option<Duration>, BadInput> {
    let asked = load.request_timeout.as_deref().map(units::duration).transpose().map_err(BadInput)?;
    Ok(asked.or_else(|| matches!(target.address, ::load::Address::Udp(_)).then_some(timeout)))
}

fn pools(load: &LoadArgs, stamps: bool, threads: usize, timeout: Duration) -> Result<Vec<Pool>, BadInput> {
    let connections = load.connections as usize;
    if connections < threads {
        let text = format!("{connections} connections are too few for {threads} threads: each needs one");
        return Err(BadInput(text));
    }
    let stacks = load.when_busy == WhenBusyArg::Pipeline;
    let depth = load.pipeline.unwrap_or(if stacks { PIPELINE } else { 1 }) as usize;
    let grows = load.when_busy == WhenBusyArg::Grow;
    let most =
        load.connections_max.unwrap_or(if grows { load.connections.saturating_mul(GROWTH) } else { 0 });
    let pool = |index| Pool {
        depth,
        stamps,
        fresh: load.no_keepalive,
        connections_max: share(most as usize, index, threads),
        ..Pool::of(share(connections, index, threads), timeout)
    };
    Ok((0..threads).map(pool).collect())
}

/// The part of a whole that falls to one of several; the first ones get what does not divide evenly.
fn share(whole: usize, index: usize, parts: usize) -> usize {
    whole / parts + usize::from(index < whole % parts)
}

impl From<WhenBusyArg> for WhenBusy {
    fn from(when_busy: WhenBusyArg) -> WhenBusy {
        match when_busy {
            WhenBusyArg::Wait => WhenBusy::Wait,
            WhenBusyArg::Pipeline => WhenBusy::Pipeline,
            WhenBusyArg::Grow => WhenBusy::Grow,
            WhenBusyArg::Drop => WhenBusy::Drop,
        }
    }
}

impl From<WaitArg> for Wait {
    fn from(wait: WaitArg) -> Wait {
        match wait {
            WaitArg::Hybrid => Wait::Hybrid,
            WaitArg::Sleep => Wait::Sleep,
            WaitArg::Spin => Wait::Spin,
        }
    }
}

/// A message about the command line quotes what was typed, or copied.
pub(super) fn quoted(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<BadInput>() {
        Ok(BadInput(text)) => BadInput(plain(&text)).into(),
        Err(error) => error,
    }
}

/// What the user can mend is told as such.
pub(super) fn explain(error: LoadError) -> anyhow::Error {
    match error {
        LoadError::Target { .. }
        | LoadError::Rate(_)
        | LoadError::Shape(_)
        | LoadError::Spin(_)
        | LoadError::Tls { .. } => BadInput(error.to_string()).into(),
        LoadError::Connect { .. }
        | LoadError::ConnectTimeout { .. }
        | LoadError::Files { .. }
        | LoadError::Linux(_)
        | LoadError::Download { .. }
        | LoadError::System { .. } => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_made_readable_keeps_its_kind() {
        let bad = quoted(BadInput("`\u{7}`".to_owned()).into());
        assert!(bad.is::<BadInput>());
        assert_eq!(bad.to_string(), "`\\u{7}`");
        assert_eq!(quoted(anyhow::anyhow!("other")).to_string(), "other");
    }

    #[test]
    fn shares_make_a_whole() {
        for (whole, parts) in [(64, 1), (64, 3), (5, 5), (7, 4)] {
            let shares: Vec<usize> = (0..parts).map(|index| share(whole, index, parts)).collect();
            assert_eq!(shares.iter().sum::<usize>(), whole);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }
}
