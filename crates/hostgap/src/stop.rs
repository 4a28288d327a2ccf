//! SIGINT, SIGTERM and SIGHUP set a flag that long-running work polls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A signal so soon after the first counts as the same one: `timeout` sends one to its child and one to the whole
/// process group, and a closing terminal may do so too.
const SAME_WISH: Duration = Duration::from_secs(1);

/// The flag. A signal a second or more after the first ends the process at once; the next start removes what it leaves.
/// SIGHUP and SIGINT stay ignored where they are: nohup promises that a command outlives its terminal, and a script
/// that the ^C for it does not reach what it has started in the background.
pub(crate) fn on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut heeded = vec![SIGTERM];
    for signal in [SIGHUP, SIGINT] {
        if !linux::process::ignores(signal)? {
            heeded.push(signal);
        }
    }
    let mut signals = Signals::new(heeded).context("handle signals")?;
    let flag = Arc::clone(&stop);
    let listen = move || {
        let mut first = None;
        for signal in signals.forever() {
            let since = *first.get_or_insert_with(Instant::now);
            if flag.swap(true, Ordering::Relaxed) && since.elapsed() >= SAME_WISH {
                std::process::exit(128 + signal);
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listen)
        .context("start the thread that waits for signals")?;
    Ok(stop)
}
