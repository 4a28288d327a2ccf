//! Envoy with a minimal configuration of our own: no administration, no telemetry.

use serde_json::{Value, json};

use super::Hop;
use crate::program::{self, Program};

/// The types of its configuration.
const TYPES: &str = "type.googleapis.com/envoy.extensions";

/// Looks for it. It says `envoy  version: 0123abcd/1.40.0/Clean/RELEASE/BoringSSL`.
pub(super) fn find() -> Result<Program, String> {
    let found = program::find(program::places("envoy", None), "--version", "version: ")?;
    let version = found.version.split('/').nth(1).unwrap_or(&found.version);
    Ok(Program { version: format!("Envoy {version}"), ..found })
}

/// The arguments, with the configuration in them.
pub(super) fn args(hop: &Hop<'_>) -> Vec<String> {
    let threads = hop.threads.to_string();
    // Without hot restarts it keeps nothing in shared memory.
    let args =
        ["--disable-hot-restart", "--log-level", "warning", "--concurrency", &threads, "--config-yaml"];
    args.into_iter().map(str::to_owned).chain([config(hop).to_string()]).collect()
}

fn config(hop: &Hop<'_>) -> Value {
    let filter = if hop.reads_http { http() } else { tcp() };
    // The default is 1024 of each.
    let most = json!({
        "max_connections": u32::MAX, "max_pending_requests": u32::MAX, "max_requests": u32::MAX,
    });
    let socket = |address: &std::net::SocketAddr| json!({ "socket_address": { "address": address.ip(), "port_value": address.port() } });
    json!({ "static_resources": {
        "listeners": [{
            "name": "proxy",
            "address": socket(&hop.listen),
            "filter_chains": [{ "filters": [filter] }],
        }],
        "clusters": [{
            "name": "server",
            "type": "STATIC",
            "connect_timeout": "10s",
            "circuit_breakers": { "thresholds": [most] },
            "load_assignment": {
                "cluster_name": "server",
                "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": socket(&hop.to) } }] }],
            },
        }],
    }})
}

fn tcp() -> Value {
    json!({
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": {
            "@type": format!("{TYPES}.filters.network.tcp_proxy.v3.TcpProxy"),
            "stat_prefix": "proxy",
            "cluster": "server",
            "idle_timeout": "0s",
        },
    })
}

fn http() -> Value {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": { "@type": format!("{TYPES}.filters.http.router.v3.Router") },
    });
    let all = json!({ "match": { "prefix": "/" }, "route": { "cluster": "server", "timeout": "0s" } });
    json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": format!("{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": "proxy",
            "codec_type": "HTTP1",
            "http_filters": [router],
            "route_config": { "virtual_hosts": [{ "name": "server", "domains": ["*"], "routes": [all] }] },
        },
    })
}
