//! Channels of which only the latest value counts.

use tokio::sync::watch;

/// Wakes the waiters for a value, if it is another one than before.
pub(crate) fn send_if_new<T: PartialEq>(to: &watch::Sender<T>, value: T) {
    to.send_if_modified(|known| {
        let is_new = *known != value;
        *known = value;
        is_new
    });
}
