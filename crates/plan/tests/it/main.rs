//! Plans on the real kernel, in namespaces of their own.

mod identity;
mod sample;
mod show;
