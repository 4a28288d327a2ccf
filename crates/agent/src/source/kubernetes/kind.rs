//! Kinds of objects of the API.

use std::fmt::Debug;
use std::time::Duration;

use serde::de::DeserializeOwned;

/// A kind of objects, with the fields that are read of one.
pub(super) trait Kind: Clone + Debug + DeserializeOwned + Send + 'static {
    /// Where the API server has all of them.
    const PATH: &'static str;
    /// Which of them, as a selector of labels.
    const LABELS: Option<&'static str>;
    /// A watch that has had no event for so long is opened again, on another connection: the other end of this one may
    /// be gone without a sign. Where there was none to report, that costs one request.
    const SILENCE_MAX: Duration;

    /// The name by which it is known here, with its namespace if it has one.
    fn name(&self) -> String;

    /// The version of the object.
    fn version(&self) -> &str;
}
