//! Kinds of objects of the API, and an object as it is read.

use std::fmt::Debug;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A kind of objects, with the fields that are read of one.
pub(super) trait Kind: Clone + Debug + DeserializeOwned + Send + 'static {
    /// One of them, for texts.
    const NAME: &'static str;
    /// Where the API server has all of them.
    const PATH: &'static str;
    /// Which of them, as a selector of labels.
    const LABELS: Option<&'static str>;
    /// Objects of a page of a list: some 1 MB.
    const PAGE: u32;
    /// A watch that has had no event for so long is opened again, on another connection: the other end of this one may
    /// be gone without a sign. Where there was none to report, that costs one request.
    const SILENCE_MAX: Duration;
}

/// An object of a kind.
#[derive(Debug, Clone)]
pub(super) struct Object<R> {
    /// The name by which it is known here, with its namespace if it has one.
    pub(super) name: String,
    pub(super) version: String,
    /// Its fields, or why they cannot be read. An API server does not check all that a user writes, and one object must
    /// not keep the others of its kind from being read.
    pub(super) fields: Result<R, String>,
}

/// What objects of all kinds have.
#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: Option<String>,
    resource_version: String,
}

impl<'de, R: Kind> Deserialize<'de> for Object<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<R>, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let Named { metadata: Metadata { name, namespace, resource_version } } =
            Named::deserialize(&object).map_err(serde::de::Error::custom)?;
        let name = match namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        };
        let fields = R::deserialize(&object).map_err(|error| error.to_string());
        Ok(Object { name, version: resource_version, fields })
    }
}
