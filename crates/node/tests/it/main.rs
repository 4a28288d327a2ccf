//! Attachments on the real kernel: a node, its wire, and containers in namespaces of their own.

mod attachments;
mod scene;
mod verbs;
mod wanted;
