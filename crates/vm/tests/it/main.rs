//! Boots a real Debian kernel and checks what comes back.

mod boot;
mod emulator;
