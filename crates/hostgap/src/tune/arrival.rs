//! A link that has just come: its routes come after it, and with some drivers its interrupts.

use std::time::{Duration, Instant};

use ::tune::Lives;
use ipnet::IpNet;

use super::asked::AskedArgs;
use super::host::Host;

/// How long nothing may have come any more: what brings up a link makes its routes one after the other.
const SETTLED: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);

/// What settings are made at.
#[derive(Debug, PartialEq, Eq)]
struct Arrived {
    routes: Vec<IpNet>,
    interrupts: usize,
}

/// Waits until there is what is to be set: routes over the link where something is set at routes, and the link's interrupts
/// where these are; at most so long.
///
/// # Errors
/// What is asked for cannot be read, or there is no such link.
pub(super) fn wait(asked: &AskedArgs, most: Duration) -> anyhow::Result<()> {
    let wishes = asked.wishes()?;
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
        let host = Host::look(asked.netns.as_deref(), wishes.device.as_deref())?;
        let routes = host.site.routes.into_iter().map(|(dst, _)| dst).chain(host.announced).collect();
        anyhow::Ok(Arrived { routes, interrupts: host.site.nic.interrupts.len() })
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
