//! nginx as a proxy, with a minimal configuration of our own.

use std::path::{Path, PathBuf};
use std::process::Command;

use linux::CpuSet;

use super::Hop;
use crate::program::Program;
use crate::{LabError, nginx};

/// The file of the module `stream`; `None`: this nginx has it built in.
pub(super) fn stream_module(nginx: &Program) -> Result<Option<PathBuf>, String> {
    let output = Command::new(&nginx.program).arg("-V").output();
    let output = output.map_err(|error| format!("{} -V: {error}", nginx.program.display()))?;
    let built = String::from_utf8_lossy(&output.stderr).into_owned();
    let has = |option: &str| built.split_whitespace().any(|word| word == option);
    if has("--with-stream") {
        return Ok(None);
    }
    if !has("--with-stream=dynamic") {
        return Err(format!("{} is built without its module stream", nginx.version));
    }
    let usual = built.split_whitespace().find_map(|word| word.strip_prefix("--modules-path="));
    // Beside the program is where a build that was moved as a whole has it.
    let beside = nginx.program.parent().map(|dir| dir.join("modules"));
    let dirs = usual.map(PathBuf::from).into_iter().chain(beside);
    let mut files = dirs.map(|dir| dir.join("ngx_stream_module.so"));
    files
        .find(|file| file.exists())
        .map(Some)
        .ok_or_else(|| format!("{} has no module stream: apt-get install libnginx-mod-stream", nginx.version))
}

/// Writes the configuration; the arguments that say where it is.
pub(super) fn args(hop: &Hop<'_>, cpus: &CpuSet, module: Option<&Path>) -> Result<Vec<String>, LabError> {
    nginx::args(hop.dir, &config(hop, cpus, module))
}

fn config(hop: &Hop<'_>, cpus: &CpuSet, module: Option<&Path>) -> String {
    let load = module.map_or_else(String::new, |file| format!("load_module {};\n", file.display()));
    // Each connection has two ends here.
    let workers = nginx::workers(hop.dir, cpus, 2 * hop.connections);
    let passes = if hop.reads_http { http(hop) } else { stream(hop) };
    format!("{load}{workers}{passes}")
}

fn http(hop: &Hop<'_>) -> String {
    let Hop { listen, to, connections, .. } = hop;
    format!(
        "http {{
{http}  upstream server {{
    server {to};
    keepalive {connections};
    keepalive_timeout 24h;
    keepalive_time 24h;
    keepalive_requests 4294967295;
  }}
  server {{
    listen {listen} reuseport backlog=4096;
    location / {{
      proxy_pass http://server;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
    }}
  }}
}}
",
        http = nginx::http(hop.dir),
    )
}

fn stream(hop: &Hop<'_>) -> String {
    let Hop { listen, to, .. } = hop;
    format!(
        "stream {{
  server {{
    listen {listen} reuseport backlog=4096;
    proxy_pass {to};
    proxy_timeout 24h;
  }}
}}
"
    )
}
