//! The state of a tuning on a host, on the real kernel.

mod seen;
