//! Tests that cannot run here say so.

use std::io::Write;

/// Notes that the calling test cannot run here, and why. The caller returns right after.
///
/// With `HOSTGAP_SKIPS` naming a file, a line is appended to it, which the test runner counts and prints.
///
/// # Panics
/// If that file cannot be written: an uncounted skip would look like a pass.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("SKIPPED {test}: {reason}\n");
    match std::env::var_os("HOSTGAP_SKIPS") {
        None => {
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        Some(path) => {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
            file.and_then(|mut file| file.write_all(line.as_bytes()))
                .expect("the list of skips must be writable");
        }
    }
}
