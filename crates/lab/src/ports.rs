//! Ports of every topology.

/// The port on which the server answers in its pod.
pub const SERVER_PORT: u16 = 80;
/// The port of the node that leads to it, for data paths that publish ports.
pub const PUBLISHED_PORT: u16 = 8080;
/// The port that a client with a proxy calls; the proxy calls the port that leads to the server.
pub const PROXIED_PORT: u16 = 8000;
