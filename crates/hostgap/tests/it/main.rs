//! The real binary against real nginx (or our own responder where that is what is tested), in real namespaces.

mod bad_input;
mod lab;
mod leaves_nothing;
mod race;
mod run;
