//! How a cluster is asked for a sidecar.

/// A label and annotation by which a cluster puts a proxy beside a container: `sidecar.istio.io/inject=true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarMark {
    /// The name of both.
    pub key: String,
    /// The value of both.
    pub value: String,
}
