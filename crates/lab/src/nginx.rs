//! What is the same of an nginx that answers and of one that passes on: nothing of the machine's is read, and all files
//! are under a directory of ours.

use std::fs;
use std::path::Path;

use linux::CpuSet;

use crate::LabError;

/// Writes a configuration into a directory; the arguments that say where it is.
pub(crate) fn args(dir: &Path, config: &str) -> Result<Vec<String>, LabError> {
    let path = dir.join("nginx.conf");
    fs::write(&path, config).map_err(LabError::file("write", &path))?;
    let text = |path: &Path| path.display().to_string();
    let log = dir.join("server.log");
    Ok(["-e", &text(&log), "-p", &text(dir), "-c", &text(&path)].map(str::to_owned).to_vec())
}

/// The beginning of a configuration: one worker a CPU, with places for so many connections. The kernel spreads
/// connections over workers by a hash, so one worker may get nearly all of them.
pub(crate) fn workers(dir: &Path, cpus: &CpuSet, connections: u32) -> String {
    let dir = dir.display();
    let places = worker_connections(connections);
    let files = 2 * (places + 64);
    let affinity = cpus.iter().map(affinity_mask).collect::<Vec<_>>().join(" ");
    format!(
        "daemon off;
user root;
worker_processes {workers};
worker_cpu_affinity {affinity};
worker_rlimit_nofile {files};
pid {dir}/nginx.pid;
error_log {dir}/server.log;
events {{ worker_connections {places}; }}
",
        workers = cpus.len(),
    )
}

/// The beginning of `http`: no log, and connections that stay.
pub(crate) fn http(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "  access_log off;
  keepalive_timeout 24h;
  keepalive_time 24h;
  keepalive_requests 4294967295;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
"
    )
}

/// The settings of a worker for a number of connections. nginx closes idle persistent connections as soon
/// as a sixteenth or less of its places is free (`ngx_drain_connections`), so an eighth is added, and some for what is
/// no connection of a client.
fn worker_connections(connections: u32) -> u32 {
    connections.saturating_add(connections / 8).saturating_add(64)
}

/// nginx's own format: a binary number in which the lowest bit is CPU 0.
fn affinity_mask(cpu: u16) -> String {
    format!("1{}", "0".repeat(cpu.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_has_places_enough_to_keep_all_connections() {
        for connections in [1, 32, 960, 1_000, 3_290, 20_000] {
            let places = worker_connections(connections);
            assert!(places - connections - 8 > places / 16, "{connections}");
        }
    }

    #[test]
    fn nginx_counts_cpus_from_the_right() {
        assert_eq!(affinity_mask(0), "1");
        assert_eq!(affinity_mask(3), "1000");
    }
}
