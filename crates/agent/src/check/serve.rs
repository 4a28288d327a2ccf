//! Checks on request, over HTTP. They load the network, so there is one at a time at most, and a caller that asks
//! within a second of one gets the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::{CheckError, Network, Row, check};

/// How long a result is given out again.
const FRESH: Duration = Duration::from_secs(1);

/// What is checked for others. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Checks {
    network: Network,
    /// Locked while a check runs, whether its caller waits or has hung up: those that come meanwhile get its result.
    last: Arc<Mutex<Option<Checked>>>,
}

/// What a check has found.
#[derive(Debug, Clone)]
struct Checked {
    /// When the check ended. The row is handed out again while it is young.
    at: Instant,
    /// The row as JSON.
    row: Arc<str>,
}

impl Checks {
    pub(crate) fn of(network: Network) -> Checks {
        Checks { network, last: Arc::default() }
    }

    /// The row of this node as JSON.
    ///
    /// # Errors
    /// In words: nothing can be checked.
    pub(crate) async fn row(&self) -> Result<Arc<str>, String> {
        let network = self.network.clone();
        self.row_by(move || check(&network, &[])).await
    }

    /// The same by a check that is given.
    async fn row_by(
        &self,
        check: impl FnOnce() -> Result<Row, CheckError> + Send + 'static,
    ) -> Result<Arc<str>, String> {
        let mut last = self.last.clone().lock_owned().await;
        if let Some(checked) = &*last
            && checked.at.elapsed() < FRESH
        {
            return Ok(checked.row.clone());
        }
        // The check holds the lock, and not this future: that is dropped if the caller hangs up, and the check goes on.
        let checked = tokio::task::spawn_blocking(move || {
            let row = check().map_err(|error| format!("could not {error}"))?;
            let row: Arc<str> = serde_json::to_string(&row).expect("its keys are texts").into();
            *last = Some(Checked { at: Instant::now(), row: row.clone() });
            Ok(row)
        });
        checked.await.map_err(|error| error.to_string())?
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::mpsc;

    use node::Home;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_caller_that_hangs_up_leaves_its_check_to_those_who_ask_after_it() {
        let network = Network {
            name: "pods".to_owned(),
            status: PathBuf::from("/nowhere"),
            home: Home::at("/nowhere", "/nowhere"),
        };
        let checks = Checks::of(network);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = runtime.block_on(async {
            let (begun, has_begun) = oneshot::channel();
            let (go_on, may_end) = mpsc::channel::<()>();
            let first = checks.clone();
            let caller = tokio::spawn(async move {
                let check = move || {
                    begun.send(()).unwrap();
                    may_end.recv().unwrap();
                    Ok(Row { network: "of the first".to_owned(), ..Row::default() })
                };
                first.row_by(check).await
            });
            has_begun.await.unwrap();
            caller.abort();
            assert!(caller.await.unwrap_err().is_cancelled());
            let second = tokio::spawn(async move {
                checks.row_by(|| Ok(Row { network: "of the second".to_owned(), ..Row::default() })).await
            });
            // The second caller has come before the first one's check ends.
            tokio::task::yield_now().await;
            go_on.send(()).unwrap();
            second.await.unwrap()
        });
        assert!(answer.unwrap().contains("of the first"));
    }
}
