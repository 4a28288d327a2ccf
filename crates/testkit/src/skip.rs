//! Lets a test report that it cannot run here.

use std::io::Write;

/// Records that the calling test cannot run here, and why. The caller must return right after.
///
/// If `HOSTGAP_SKIPS` names a file, appends a line to it, which the test runner counts and prints.
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
