//! The loop: a new snapshot, a notice of the kernel and a timer all lead to the same look at the node.

use std::collections::VecDeque;
use std::future::Future;
use std::time::{Duration, Instant};

use linux::netlink::Watch;
use node::Home;
use plan::{Kernel, Plan, Survey};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::info;

use crate::check::{self, Checks};
use crate::cloud::{self, Wish};
use crate::health::Health;
use crate::keep::{KeptNode, ProbeResults};
use crate::latest::send_if_new;
use crate::lease::{Announcement, Snapshot};
use crate::offload::{self, Tunnels};
use crate::path_mtu::{self, Targets};
use crate::settings::Settings;
use crate::source::LeaseSource;
use crate::standby::take_over;
use crate::{AgentError, Endpoint};

/// How long a change waits for others that come with it, such as the routes of a link that went.
const GATHERED: Duration = Duration::from_millis(20);
/// What may go unseen is found after this.
const PERIOD: Duration = Duration::from_secs(10);
/// How often the agent looks at what the kernel does not announce.
const UNANNOUNCED_PERIOD: Duration = Duration::from_secs(1);
/// What is new waits no longer than this for the next look.
const REST_MAX: Duration = Duration::from_secs(1);
/// So many looks in a row within so long a time that had to repair something or could not, and another program works
/// against this one, or the kernel does: then there is a look a second, so that they do not take the whole machine.
const FIGHT: usize = 20;
const FIGHT_WITHIN: Duration = Duration::from_secs(30);
const FIGHT_PAUSE: Duration = Duration::from_secs(1);

/// Keeps a network on this node, in the calling thread's network namespace, until `stop`. What it has made stays then.
///
/// `ready` is called once the node is in the network for the first time.
///
/// # Errors
/// The network is another process's, or the kernel cannot be watched. Whatever fails later is tried again, and is in
/// the log and in the agent's state.
pub async fn run(
    settings: Settings,
    home: Home,
    source: impl LeaseSource,
    ready: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let (network, options) = (settings.network.clone(), settings.clone());
    let (sockets, addresses): (Vec<Endpoint>, Vec<Endpoint>) =
        settings.listen.iter().cloned().partition(|at| matches!(at, Endpoint::Socket(_)));
    let files = check::Network { name: network.clone(), status: settings.status.clone(), home: home.clone() };
    let health = Health::new(Checks::of(files), &settings.version);
    serve(&health, sockets).await?;
    let (announce, announced) = watch::channel(None::<Announcement>);
    let leases = source.start(announced);
    let mut stop = std::pin::pin!(stop);
    let node = tokio::select! {
        () = &mut stop => return Ok(()),
        taken = take_over(&settings, &home, leases.clone(), &health) => taken?,
    };
    serve(&health, addresses).await?;
    info!(network, "keeping the network on this node");
    tokio::select! {
        () = &mut stop => {}
        ended = keep(node, leases, &announce, &health, &options, ready) => return ended,
    }
    info!(network, "stopping; what was made stays, and packets flow");
    Ok(())
}

async fn serve(health: &Health, endpoints: Vec<Endpoint>) -> Result<(), AgentError> {
    for at in endpoints {
        health.serve(&at).await.map_err(|why| AgentError::Listen { at, why })?;
    }
    Ok(())
}

/// Keeps the node as its leases say, until that cannot go on.
async fn keep(
    mut node: KeptNode,
    mut leases: watch::Receiver<Snapshot>,
    announce: &watch::Sender<Option<Announcement>>,
    health: &Health,
    settings: &Settings,
    ready: impl FnOnce(),
) -> Result<(), AgentError> {
    // Opened before the first look, so that nothing changes between the two unseen.
    let mut notices = notices(Watch::open()?)?;
    let mut kernel = Kernel::new()?;
    let (ask, targets) = watch::channel(Targets::new());
    let (try_out, tried) = watch::channel(Tunnels::new());
    let mut path_mtus = path_mtu::start(targets, settings.path_mtu_period);
    let mut offloads = offload::start(tried, settings.path_mtu_period);
    let (wish, wished) = watch::channel(None::<Wish>);
    let mut views = cloud::start(settings.cloud.clone(), settings.network.clone(), wished);
    let mut repairs = VecDeque::new();
    let mut ready = Some(ready);
    // Before the source has said anything there is nothing new to bring the node to. What stands is looked
    // after all the same.
    tokio::select! {
        changed = leases.changed() => changed.map_err(|_| AgentError::SourceEnded)?,
        () = sleep(PERIOD) => {}
    }
    loop {
        let snapshot: Snapshot = leases.borrow_and_update().clone();
        let found = ProbeResults {
            path_mtus: path_mtus.borrow_and_update().clone(),
            offloads: offloads.borrow_and_update().clone(),
            cloud: views.borrow_and_update().clone(),
        };
        let begun = Instant::now();
        let look = node.keep(&snapshot, &found);
        let took = begun.elapsed();
        health.note(&node.status, look.is_ready, took);
        if let Some(announcement) = look.announcement {
            send_if_new(announce, Some(announcement));
        }
        if let Some(wanted) = look.wanted {
            send_if_new(&ask, wanted.targets);
            send_if_new(&try_out, wanted.tunnels);
        }
        if look.wish.is_some() {
            send_if_new(&wish, look.wish);
        }
        if look.is_ready
            && let Some(ready) = ready.take()
        {
            info!(network = node.status.network, "the node is in the network");
            ready();
        }
        let pause = if look.has_changed { pause(&mut repairs, Instant::now()) } else { GATHERED };
        let ended = Instant::now();
        tokio::select! {
            changed = leases.changed() => changed.map_err(|_| AgentError::SourceEnded)?,
            changed = path_mtus.changed() => changed.map_err(|_| AgentError::SourceEnded)?,
            changed = offloads.changed() => changed.map_err(|_| AgentError::SourceEnded)?,
            changed = views.changed() => changed.map_err(|_| AgentError::SourceEnded)?,
            () = concerned(&mut notices, &node) => {}
            () = unannounced_change(node.unannounced(), &mut kernel) => {}
            () = sleep(PERIOD) => {}
        }
        sleep(pause.max(rest(took, ended.elapsed()))).await;
    }
}

#[expect(
    deprecated,
    reason = "a Watch owns its descriptor, which is what the unsafe successor wants to be assured"
)]
fn notices(watch: Watch) -> Result<AsyncFd<Watch>, AgentError> {
    AsyncFd::with_interest(watch, Interest::READABLE).map_err(AgentError::Watch)
}

/// Waits until the kernel announces a change to something that the agent keeps.
async fn concerned(notices: &mut AsyncFd<Watch>, node: &KeptNode) {
    loop {
        let Ok(mut guard) = notices.readable_mut().await else { return };
        let changes = guard.get_inner_mut().changes();
        guard.clear_ready();
        // Where it cannot be read, what has changed is looked at.
        if changes.map_or(true, |changes| changes.iter().any(|change| node.concerns(change))) {
            return;
        }
    }
}

/// Waits until a step is no longer so whose changes the kernel does not announce.
async fn unannounced_change(plan: &Plan, kernel: &mut Kernel) {
    if plan.is_empty() {
        return std::future::pending().await;
    }
    loop {
        sleep(UNANNOUNCED_PERIOD).await;
        let drifts = Survey::of([plan], kernel).and_then(|survey| survey.drifts(plan, kernel));
        // Where it cannot be asked, the look says why.
        if drifts.map_or(true, |drifts| !drifts.is_empty()) {
            return;
        }
    }
}

/// How much longer to rest after a look that took so long and ended so long ago: as long as it took. Where there is
/// much to compare, and something new all the time, the agent has half of a CPU then; what comes seldom waits for
/// nothing.
fn rest(took: Duration, since: Duration) -> Duration {
    took.min(REST_MAX).saturating_sub(since)
}

/// How long to wait after a repair.
fn pause(repairs: &mut VecDeque<Instant>, now: Instant) -> Duration {
    repairs.push_back(now);
    if repairs.len() > FIGHT {
        repairs.pop_front();
    }
    let first = repairs.front().copied().unwrap_or(now);
    if repairs.len() == FIGHT && now.duration_since(first) < FIGHT_WITHIN { FIGHT_PAUSE } else { GATHERED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_followed_by_a_rest_as_long_as_itself() {
        let ms = Duration::from_millis;
        assert_eq!(rest(ms(300), ms(0)), ms(300));
        assert_eq!(rest(ms(300), ms(200)), ms(100));
        assert_eq!(rest(ms(300), ms(5000)), ms(0), "what comes seldom waits for nothing");
        assert_eq!(rest(ms(7000), ms(0)), REST_MAX);
    }
}
