//! Topologies in the real kernel, with a real server and real load.

mod home;
mod standing;
