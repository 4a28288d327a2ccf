//! The time before an agent keeps the network: another process may keep it. Meanwhile this one reads the
//! leases, so that a rollout of a DaemonSet, or an administrator, knows that the next agent can do its work
//! before the present one ends.

use std::time::{Duration, Instant};

use node::Home;
use plan::BookError;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::AgentError;
use crate::health::Health;
use crate::installation::KnownFacts;
use crate::keep::KeptNode;
use crate::lease::Snapshot;
use crate::rehearse::rehearse;
use crate::settings::Settings;

/// Between two attempts: for so long nothing is repaired. The kernel does not wake for a lock a process that also
/// waits for other things.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two attempts on a full disk.
const ROOM_PAUSE: Duration = Duration::from_secs(1);
/// Between two rehearsals: what cannot be done yet is tried again after this, and what can be, if there is something
/// new by then. Endpoints of Services may change all the time.
const REHEARSAL: Duration = Duration::from_secs(1);

/// Takes the network over on this node: at once, or if the settings say so when the process ends that keeps it. Where
/// the disk has no room to write down who keeps it, when there is some.
///
/// # Errors
/// Another process keeps it, or the kernel or a directory cannot be used.
pub(crate) async fn take_over(
    settings: &Settings,
    home: &Home,
    leases: watch::Receiver<Snapshot>,
    health: &Health,
) -> Result<KeptNode, AgentError> {
    let mut standby = None;
    let mut lacks_room = false;
    loop {
        let mut pause = PAUSE;
        match KeptNode::open(settings.clone(), home.clone()) {
            Err(AgentError::Book(BookError::Held { .. })) if settings.waits => {
                standby.get_or_insert_with(|| Standby::begin(settings, home, &leases)).look(health);
            }
            Err(error) if error.is_for_lack_of_room() => {
                if !lacks_room {
                    warn!("{error}; waiting until there is room");
                }
                (lacks_room, pause) = (true, ROOM_PAUSE);
            }
            opened => {
                if standby.is_some() {
                    // What it could do is one thing, and what it will have done another.
                    health.note_waiting(false);
                }
                return opened;
            }
        }
        sleep(pause).await;
    }
}

/// An agent that waits.
struct Standby<'a> {
    settings: &'a Settings,
    home: &'a Home,
    leases: watch::Receiver<Snapshot>,
    /// When it was last found out whether it could bring the node to the leases, and if not, why.
    last: Option<(Instant, Result<(), String>)>,
    facts: KnownFacts,
}

impl<'a> Standby<'a> {
    fn begin(settings: &'a Settings, home: &'a Home, leases: &watch::Receiver<Snapshot>) -> Standby<'a> {
        let network = &settings.network;
        info!(network, "another agent keeps the network on this node; waiting until it ends");
        Standby { settings, home, leases: leases.clone(), last: None, facts: KnownFacts::default() }
    }

    /// Finds out whether it could take over, where that may have changed, and says so.
    fn look(&mut self, health: &Health) {
        let is_new = self.leases.has_changed().unwrap_or(true);
        if is_due(self.last.as_ref().map(|(at, outcome)| (at.elapsed(), outcome)), is_new) {
            let snapshot = self.leases.borrow_and_update().clone();
            let outcome = rehearse(self.settings, self.home, &snapshot, &mut self.facts);
            let before = self.last.take().map(|(_, outcome)| outcome);
            match &outcome {
                outcome if before.as_ref() == Some(outcome) => {}
                Ok(()) => info!("ready: this agent could take the network over"),
                Err(why) => info!("not ready: {why}"),
            }
            self.last = Some((Instant::now(), outcome));
        }
        health.note_waiting(matches!(self.last, Some((_, Ok(())))));
    }
}

/// Whether to rehearse, so long after the last time and its outcome.
fn is_due(last: Option<(Duration, &Result<(), String>)>, is_new: bool) -> bool {
    match last {
        None => true,
        Some((since, _)) if since < REHEARSAL => false,
        Some((_, outcome)) => is_new || outcome.is_err(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_all_the_time_is_rehearsed_once_a_second() {
        let (well, ill) = (Ok(()), Err("no".to_owned()));
        let soon = Duration::from_millis(50);
        assert!(is_due(None, false));
        assert!(!is_due(Some((soon, &well)), true) && !is_due(Some((soon, &ill)), true));
        assert!(is_due(Some((REHEARSAL, &well)), true) && !is_due(Some((REHEARSAL, &well)), false));
        assert!(is_due(Some((REHEARSAL, &ill)), false));
    }
}
