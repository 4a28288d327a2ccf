//! What a host has of a tuning, on the real kernel.

mod seen;
