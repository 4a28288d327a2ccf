//! Checks on request, over HTTP. They load the network, so there is one at a time at most, and a caller that asks within a
//! second of one gets the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::{Network, check};

/// How long a result is given out again.
const FRESH: Duration = Duration::from_secs(1);

/// What is checked for others. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Checks {
    network: Network,
    /// Locked while a check runs, so that callers that come meanwhile get its result.
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
        let mut last = self.last.lock().await;
        if let Some(checked) = &*last
            && checked.at.elapsed() < FRESH
        {
            return Ok(checked.row.clone());
        }
        let network = self.network.clone();
        let checked = tokio::task::spawn_blocking(move || check(&network, &[]));
        let row = checked
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| format!("could not {error}"))?;
        let row: Arc<str> = serde_json::to_string(&row).expect("its keys are texts").into();
        *last = Some(Checked { at: Instant::now(), row: row.clone() });
        Ok(row)
    }
}
