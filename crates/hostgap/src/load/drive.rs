//! Runs a load with a progress bar, and ends it when a signal comes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::load::{Client, Live, LoadError, Outcome, Run};
use bpf::witness::Witness;
use indicatif::{ProgressBar, ProgressStyle};

/// Runs, shows the progress, and stops when a signal comes.
pub(super) fn drive(
    clients: &mut [Client],
    run: &Run,
    stop: &AtomicBool,
    what: &str,
    witness: Option<&Witness>,
) -> Result<Outcome, LoadError> {
    let live = Live::default();
    watched(
        |done| watch(&live, run, stop, done, what),
        || match witness {
            Some(witness) => ::load::witness::run_witnessed(clients, run, &live, witness),
            None => ::load::run_live(clients, run, &live),
        },
    )
}

/// Works beside a thread that watches until the work is done, also where that panics.
fn watched<T>(watch: impl FnOnce(&AtomicBool) + Send, work: impl FnOnce() -> T) -> T {
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _done = Done(&done);
        scope.spawn(|| watch(&done));
        work()
    })
}

fn watch(live: &Live, run: &Run, stop: &AtomicBool, done: &AtomicBool, what: &str) {
    let bar = crate::output::takes_orders(&std::io::stderr()).then(|| {
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}")
            .expect("the template is constant and was tried");
        let whole = run.requests.unwrap_or(run.duration.as_millis() as u64);
        ProgressBar::new(whole).with_style(style)
    });
    let started = Instant::now();
    while !done.load(Ordering::Relaxed) {
        if stop.load(Ordering::Relaxed) {
            live.stop();
        }
        if let Some(bar) = &bar {
            let elapsed = started.elapsed();
            let per_s = live.answered() as f64 / elapsed.as_secs_f64().max(1e-3);
            bar.set_position(match run.requests {
                Some(requests) => live.answered().min(requests),
                None => elapsed.min(run.duration).as_millis() as u64,
            });
            let open = live.sent().saturating_sub(live.answered());
            bar.set_message(format!("{what} {} answered, {per_s:.0}/s, {open} open", live.answered()));
        }
        thread::sleep(Duration::from_millis(50));
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_run_that_panics_leaves_nobody_watching() {
        let watch = |done: &AtomicBool| {
            while !done.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        };
        assert_eq!(watched(watch, || 7), 7);
        assert!(catch_unwind(AssertUnwindSafe(|| watched(watch, || panic!("planted")))).is_err());
    }
}
