//! The loop: what the source says, what the kernel tells and a timer all lead to the same look at the node.

use std::collections::VecDeque;
use std::future::Future;
use std::time::{Duration, Instant};

use linux::netlink::Watch;
use node::Home;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tracing::info;

use crate::AgentError;
use crate::health::Health;
use crate::keep::{KeptNode, Settings};
use crate::lease::{Announcement, Snapshot};
use crate::path_mtu::{self, Targets};
use crate::source::LeaseSource;

/// How long a change waits for others that come with it, such as the routes of a link that went.
const GATHERED: Duration = Duration::from_millis(20);
/// What may go unseen is found after this.
const PERIOD: Duration = Duration::from_secs(10);
/// So many looks in a row within so long a time that had to repair something or could not, and another program works against
/// this one, or the kernel does: then there is a look a second, so that they do not take the whole machine.
const FIGHT: usize = 20;
const FIGHT_WITHIN: Duration = Duration::from_secs(30);
const FIGHT_PAUSE: Duration = Duration::from_secs(1);

/// Keeps a network on this node, in the calling thread's network namespace, until `stop`. What it has made stays then.
///
/// `ready` is called once the node is in the network for the first time.
///
/// # Errors
/// The network is another process's, or the kernel cannot be watched. Whatever fails later is tried again, and is in the
/// log and in the agent's state.
pub async fn run(
    settings: Settings,
    home: Home,
    source: impl LeaseSource,
    ready: impl FnOnce(),
    stop: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let (network, listen, period) = (settings.network.clone(), settings.listen, settings.path_mtu_period);
    let mut node = KeptNode::open(settings, home)?;
    // Opened before the first look, so that nothing changes between the two unseen.
    let mut kernel = notices(Watch::open()?)?;
    let (announce, announced) = watch::channel(None::<Announcement>);
    let mut leases = source.start(announced);
    let (ask, asked) = watch::channel(Targets::new());
    let mut path_mtus = path_mtu::start(asked, period);
    let health = Health::new();
    if let Some(address) = listen {
        health.serve(address).await.map_err(|why| AgentError::Listen { address, why })?;
    }
    let mut repairs = VecDeque::new();
    let mut ready = Some(ready);
    info!(network, "keeping the network on this node");
    let mut stop = std::pin::pin!(stop);
    // Before the source has said anything there is nothing new to bring the node to. What stands is looked after all the same.
    tokio::select! {
        () = &mut stop => return Ok(()),
        said = leases.changed() => said.map_err(|_| AgentError::SourceEnded)?,
        () = tokio::time::sleep(PERIOD) => {}
    }
    loop {
        let snapshot: Snapshot = leases.borrow_and_update().clone();
        let carried = path_mtus.borrow_and_update().clone();
        let begun = Instant::now();
        let look = node.keep(&snapshot, &carried);
        health.note(&node.status, look.is_ready, begun.elapsed());
        if let Some(announcement) = look.announcement {
            announce.send_if_modified(|known| {
                let is_new = known.as_ref() != Some(&announcement);
                *known = Some(announcement);
                is_new
            });
        }
        if let Some(targets) = look.targets {
            ask.send_if_modified(|known| {
                let is_new = *known != targets;
                *known = targets;
                is_new
            });
        }
        if look.is_ready
            && let Some(ready) = ready.take()
        {
            info!(network, "the node is in the network");
            ready();
        }
        let pause = if look.has_changed { pause(&mut repairs, Instant::now()) } else { GATHERED };
        let woken = async {
            tokio::select! {
                changed = leases.changed() => changed.is_ok(),
                changed = path_mtus.changed() => changed.is_ok(),
                changed = concerned(&mut kernel, &node) => changed,
                () = tokio::time::sleep(PERIOD) => true,
            }
        };
        tokio::select! {
            () = &mut stop => break,
            goes_on = woken => if !goes_on {
                return Err(AgentError::SourceEnded);
            },
        }
        tokio::select! {
            () = &mut stop => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    info!(network, "stopping; what was made stays, and packets flow");
    Ok(())
}

#[expect(
    deprecated,
    reason = "a Watch owns its descriptor, which is what the unsafe successor wants to be assured"
)]
fn notices(watch: Watch) -> Result<AsyncFd<Watch>, AgentError> {
    AsyncFd::with_interest(watch, Interest::READABLE).map_err(AgentError::Watch)
}

/// Waits until the kernel tells of something that the agent keeps.
async fn concerned(kernel: &mut AsyncFd<Watch>, node: &KeptNode) -> bool {
    loop {
        let Ok(mut guard) = kernel.readable_mut().await else { return true };
        let changes = guard.get_inner_mut().changes();
        guard.clear_ready();
        // Where it cannot be read, what has changed is looked at.
        if changes.map_or(true, |changes| changes.iter().any(|change| node.concerns(change))) {
            return true;
        }
    }
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
