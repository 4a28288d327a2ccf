//! A real Debian kernel is booted, and what comes back from it is looked at.

mod boot;
mod emulator;
