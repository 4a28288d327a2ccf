//! SIGINT and SIGTERM become a flag that long work looks at.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The flag. A second signal ends the process at once; what it leaves is removed by the next start.
pub(crate) fn on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The order matters: on the second signal the flag is already set and the first action ends the process.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .with_context(|| format!("could not handle signal {signal}"))?;
    }
    Ok(stop)
}
