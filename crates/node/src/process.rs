//! The process that a container runtime starts: its environment and its standard input ask, its standard output
//! answers.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::{Home, plugin};

/// What the plugin's program says of itself. Every build has this text in its data, so that a file is known to be
/// one, of whatever version.
pub const ABOUT: &str = "\0hostgap, the plugin of the Container Network Interface\0";

/// Whether a container runtime has started this process: it sets `CNI_COMMAND` and gives no arguments.
pub fn is_called() -> bool {
    std::env::var_os("CNI_COMMAND").is_some() && std::env::args_os().len() == 1
}

/// Answers the runtime. The process ends with 1 if what was asked for failed, or if the answer cannot be written.
pub fn answer() -> ExitCode {
    let mut input = String::new();
    // What cannot be read is no JSON, and the plugin says so in the form that a runtime understands.
    let _ = io::stdin().read_to_string(&mut input);
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().to_string_lossy();
    let reply = plugin::call(&Home::of_this_machine(), &name, |name| std::env::var(name).ok(), &input);
    // A runtime keeps it in its log, or reads it when a call fails. A closed stderr is no error.
    for left in &reply.left {
        let _ = writeln!(io::stderr(), "hostgap: {left}");
    }
    let written = reply.printed.map_or(Ok(()), |printed| writeln!(io::stdout(), "{printed}"));
    if reply.is_success && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
