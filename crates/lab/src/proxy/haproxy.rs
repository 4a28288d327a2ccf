//! HAProxy with a minimal configuration of our own.

use std::fs;

use super::Hop;
use crate::LabError;
use crate::program::{self, Program};

/// Looks for it. It says `HAProxy version 2.6.12-1+deb12u4 2026/09/01 - https://haproxy.org/`.
pub(super) fn find() -> Result<Program, String> {
    let found = program::find(program::places("haproxy", None), "-v", "HAProxy version ")?;
    let version = found.version.split_whitespace().next().unwrap_or_default();
    Ok(Program { version: format!("HAProxy {version}"), ..found })
}

/// Writes the configuration; the arguments that say where it is.
pub(super) fn args(hop: &Hop<'_>) -> Result<Vec<String>, LabError> {
    let path = hop.dir.join("haproxy.cfg");
    fs::write(&path, config(hop)).map_err(LabError::file("write", &path))?;
    // In the foreground, as one process.
    Ok(vec!["-db".to_owned(), "-f".to_owned(), path.display().to_string()])
}

fn config(hop: &Hop<'_>) -> String {
    let Hop { listen, to, threads, connections, .. } = hop;
    let (mode, reuse) = match hop.reads_http {
        true => ("http", "\n  timeout http-keep-alive 24h\n  http-reuse always"),
        false => ("tcp", ""),
    };
    format!(
        "global
  nbthread {threads}
  maxconn {maxconn}
defaults
  mode {mode}
  timeout connect 10s
  timeout client 24h
  timeout server 24h{reuse}
listen proxy
  bind {listen}
  server server {to}
",
        maxconn = connections + 64,
    )
}
