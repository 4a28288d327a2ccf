//! `hostgap` as a CNI plugin: a container runtime runs it without arguments, with `CNI_COMMAND` in the environment.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use node::{Home, plugin};

use crate::{exit, speak};

/// Answers a container runtime, if one runs the program; `None` if a person does.
pub(crate) fn answer_runtime() -> Option<anyhow::Result<ExitCode>> {
    let is_called = std::env::var_os("CNI_COMMAND").is_some() && std::env::args_os().len() == 1;
    is_called.then(answer)
}

fn answer() -> anyhow::Result<ExitCode> {
    let mut input = String::new();
    // What cannot be read is no JSON, and the plugin says so in the form that a runtime understands.
    let _ = std::io::stdin().read_to_string(&mut input);
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().to_string_lossy();
    let reply = plugin::call(&Home::of_this_machine(), &name, |name| std::env::var(name).ok(), &input);
    if let Some(printed) = reply.printed {
        speak::result(printed)?;
    }
    Ok(if reply.is_success { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILURE) })
}
