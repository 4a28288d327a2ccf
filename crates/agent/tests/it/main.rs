//! Agents on real kernels: nodes are namespaces on one wire.

mod keep;
mod nodes;
