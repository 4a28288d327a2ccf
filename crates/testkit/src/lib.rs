//! What tests share: worlds of namespaces, and skips that are counted.

mod skip;

pub use skip::skip;
