//! Ports that were free a moment ago.

use std::io;
use std::time::{Duration, Instant};

/// How long a child may take from its fork until it executes its program.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens a socket on a port, and retries while the port is in use. A program that another test is just
/// starting holds copies of this process's closed sockets until it executes.
///
/// # Errors
/// Those of `open`, also if the port is still in use after some seconds.
pub fn bound<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let begin = Instant::now();
    loop {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}
