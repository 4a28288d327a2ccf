//! The job that a command line describes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::load::slo::Slo;
use ::load::{Address, Expect, Pool, Run, Schedule, Target, Wait, WhenBusy, plain};
use linux::CpuSet;
use linux::cpu::Scheduling;
use linux::netlink::Netlink;

use super::args::{Args, Arrivals, HttpArg, LoadArgs, WaitArg, WhenBusyArg};
use super::{request, slo, url};
use crate::exit::BadInput;
use crate::units;

/// The default of `--pipeline` with `--when-busy pipeline`.
const PIPELINE: u32 = 16;

/// The default of `--warmup`.
const WARMUP: Duration = Duration::from_secs(1);

/// The default limit of `--when-busy grow`, as a multiple of the connections at the start.
const GROWTH: u32 = 16;

/// A valid command line.
pub(super) struct Job {
    pub(super) url: String,
    pub(super) json: bool,
    pub(super) hlog: Option<PathBuf>,
    pub(super) strict: bool,
    /// The generator's CPUs; `None`: any.
    pub(super) cpus: Option<CpuSet>,
    pub(super) target: Target,
    /// Which CPUs to watch for stalls of the machine; `None`: none.
    pub(super) watched: Option<CpuSet>,
    /// The connections of each thread.
    pub(super) pools: Vec<Pool>,
    pub(super) warmup: Duration,
    /// The run, except for its schedule.
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

/// The question that the runs answer.
pub(super) enum Goal {
    /// The latencies at each of these rates.
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
        Some(text) => Goal::Max(slo::read(text).map_err(BadInput)?),
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
        // All rates have the same kind of arrivals; a search has one rate.
        ..Run::new(kind, duration)
    };
    Ok(Job {
        url: args.urls.join(" "),
        json: args.result.json,
        hlog: args.result.hlog,
        strict: args.result.strict,
        pools: pools(&args.load, args.generator.timestamps, threads, timeout)?,
        watched: (!args.generator.no_witness)
            .then(|| watched(&target, args.generator.cpus.as_ref()))
            .transpose()?,
        cpus: args.generator.cpus,
        target,
        warmup: warmup(&args.load)?,
        run,
        goal,
    })
}

/// The generator's CPUs, and all of them if the server runs on this machine too.
fn watched(target: &Target, own: Option<&CpuSet>) -> anyhow::Result<CpuSet> {
    let is_here = match &target.address {
        Address::Tcp(address) | Address::Udp(address) => is_own(address.ip()),
        Address::Verbs(by) => is_own(by.address.ip()),
        Address::Unix(_) => true,
    };
    match own {
        Some(own) if !is_here => Ok(own.clone()),
        _ => Ok(linux::cpu::online()?),
    }
}

/// Whether it is this machine that has an address. That of a container on this machine is another namespace's, of which
/// nothing is known here. Where the kernel does not say, it is another machine's.
fn is_own(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let own = || Netlink::open()?.own_prefixes(address.is_ipv6());
    address.is_loopback() || own().is_ok_and(|own| own.iter().any(|own| own.contains(&address)))
}

fn expect(args: &Args) -> anyhow::Result<Expect> {
    let body_bytes = args.request.expect_body.as_deref().map(units::bytes).transpose().map_err(BadInput)?;
    let expected = Expect { body_bytes: body_bytes.map(u64::from), ..Expect::default() };
    Ok(Expect { status: args.request.expect_status.unwrap_or(expected.status), ..expected })
}

fn schedule(rate: &str, load: &LoadArgs) -> Result<Schedule, String> {
    Ok(match (units::rate(rate)?, load.arrivals) {
        (units::RateArg::Max, _) => Schedule::Saturate,
        (units::RateArg::PerSecond(rate_per_s), Arrivals::Constant) => Schedule::Constant { rate_per_s },
        (units::RateArg::PerSecond(rate_per_s), Arrivals::Poisson) => {
            Schedule::Poisson { rate_per_s, seed: load.seed }
        }
    })
}

/// Refuses options that contradict each other.
fn fits(args: &Args, schedules: &[Schedule]) -> Result<(), BadInput> {
    let load = &args.load;
    let refuse = |text: &str| Err(BadInput(text.to_owned()));
    if load.requests.is_some() && schedules.iter().any(|it| matches!(it, Schedule::Poisson { .. })) {
        return refuse(
            "-n: with --arrivals poisson the instant of the last request is not known in advance; give a --duration",
        );
    }
    if !load.no_keepalive {
        return match args.request.http {
            Some(HttpArg::Http10) => {
                refuse("--http 1.0 ends the connection with each answer, so it needs --no-keepalive")
            }
            Some(HttpArg::Http11) | None => Ok(()),
        };
    }
    let others = [
        (load.when_busy == WhenBusyArg::Grow, "--when-busy grow", "its connections are opened anyway"),
        (load.when_busy == WhenBusyArg::Pipeline, "--when-busy pipeline", "a connection has one request"),
        (load.pipeline.is_some_and(|depth| depth > 1), "--pipeline", "a connection has one request"),
        (
            load.connections_max.is_some(),
            "--connections-max",
            "--connections is the most connections at a time",
        ),
        (
            args.generator.timestamps,
            "--timestamps",
            "the time stamps during the handshake do not belong to a request",
        ),
    ];
    match others.iter().find(|(given, _, _)| *given) {
        Some((_, option, why)) => refuse(&format!("--no-keepalive cannot be used with {option}: {why}")),
        None => Ok(()),
    }
}

/// With `-n` the warm-up is off by default, so that every request counts.
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
    let limit = load.request_timeout.as_deref().map(units::duration).transpose().map_err(BadInput)?;
    Ok(limit.or_else(|| matches!(target.address, ::load::Address::Udp(_)).then_some(timeout)))
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

/// One of several equal parts of a whole; the first ones get the remainder.
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

/// Escapes text from the command line for a message.
pub(super) fn quoted(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<BadInput>() {
        Ok(BadInput(text)) => BadInput(plain(&text)).into(),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn an_error_that_is_made_readable_keeps_its_kind() {
        let bad = quoted(BadInput("`\u{7}`".to_owned()).into());
        assert!(bad.is::<BadInput>());
        assert_eq!(bad.to_string(), "`\\u{7}`");
        assert_eq!(quoted(anyhow::anyhow!("other")).to_string(), "other");
    }

    #[test]
    fn the_servers_of_all_own_addresses_are_here() {
        if !testkit::require_root() {
            return;
        }
        let own = testkit::World::new().add("own").run(|| {
            let netlink = Netlink::open().unwrap();
            netlink.link_set_up(1, true).unwrap();
            for address in ["192.0.2.1/24", "2001:db8::1/64"] {
                netlink.address_add(1, &address.parse().unwrap()).unwrap();
            }
            let addresses = [
                "127.0.0.2",
                "::1",
                "192.0.2.1",
                "::ffff:192.0.2.1",
                "2001:db8::1",
                "198.51.100.1",
                "2001:db8::2",
            ];
            // The kernel makes an address of IPv6 its own a moment after it was added, by a thread of its own.
            let deadline = Instant::now() + Duration::from_secs(60);
            while !is_own("2001:db8::1".parse().unwrap()) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            addresses.map(|address| is_own(address.parse().unwrap()))
        });
        assert_eq!(own.unwrap(), [true, true, true, true, true, false, false]);
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
