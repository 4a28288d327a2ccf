//! Waiting for the routes of a new link and, with some drivers, for its interrupts.

use std::time::{Duration, Instant};

use ipnet::IpNet;
use tune::Lives;

use crate::{Host, HostError, TuningRequest};

/// The wait is over when nothing new has appeared for this long: the routes of a link are made one after the other.
const SETTLED: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);

/// The objects on which settings are made.
#[derive(Debug, PartialEq, Eq)]
struct Arrived {
    routes: Vec<IpNet>,
    interrupts: usize,
}

impl TuningRequest {
    /// Waits at most so long for the objects of the settings: routes over the link, or the link's interrupts. It is no
    /// error if they do not appear.
    ///
    /// # Errors
    /// Those of [`TuningRequest::wishes`] and [`Host::look`].
    pub fn wait_for_objects(&self, most: Duration) -> Result<(), HostError> {
        let wishes = self.wishes()?;
        let about = |is: fn(Lives) -> bool| wishes.wishes.iter().any(|wish| is(wish.wanted.setting.lives));
        let routes = about(|lives| matches!(lives, Lives::Route(_)));
        let interrupts = about(|lives| lives == Lives::Interrupts);
        let is_enough = |arrived: &Arrived| {
            (!routes || !arrived.routes.is_empty()) && (!interrupts || arrived.interrupts > 0)
        };
        if !routes && !interrupts {
            return Ok(());
        }
        let look = || {
            let host = Host::look(self.netns.as_deref(), wishes.device.as_deref())?;
            let routes = host.site.routes.into_iter().map(|(dst, _)| dst).chain(host.announced).collect();
            Ok::<_, HostError>(Arrived { routes, interrupts: host.site.nic.interrupts.len() })
        };
        let begin = Instant::now();
        let (mut last, mut since) = (look()?, begin);
        while begin.elapsed() < most && !(is_enough(&last) && since.elapsed() >= SETTLED) {
            std::thread::sleep(PAUSE);
            let now = look()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }
}
