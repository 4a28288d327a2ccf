//! Proxies beside client and server, as a service mesh puts them: `proxy = { server = "envoy-http" }`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiment_error::{ExperimentError, out_of_range};
use crate::{Candidate, Experiment, Placement, WorkloadKind};

/// The proxies of one candidate. Connections are redirected into each, so neither client nor server knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Proxies {
    /// The one in the client's namespace, which takes what the client sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ProxyKind>,
    /// The one in the server's namespace, which takes what the server would receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ProxyKind>,
    /// What the server's proxy and the server say to each other is passed from socket to socket by eBPF, past TCP.
    #[serde(skip_serializing_if = "is_false")]
    pub splice: bool,
}

/// A program that passes connections on, and what it reads of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyKind {
    /// nginx passes bytes on (its module `stream`).
    NginxTcp,
    /// nginx reads each request of HTTP/1.1.
    NginxHttp,
    /// HAProxy passes bytes on.
    HaproxyTcp,
    /// HAProxy reads each request.
    HaproxyHttp,
    /// Envoy passes bytes on.
    EnvoyTcp,
    /// Envoy reads each request.
    EnvoyHttp,
}

impl Proxies {
    /// Both, the client's first.
    pub fn both(&self) -> [Option<ProxyKind>; 2] {
        [self.client, self.server]
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Proxies::default()
    }
}

impl ProxyKind {
    /// All kinds, in the order of their variants.
    pub const ALL: [ProxyKind; 6] = [
        ProxyKind::NginxTcp,
        ProxyKind::NginxHttp,
        ProxyKind::HaproxyTcp,
        ProxyKind::HaproxyHttp,
        ProxyKind::EnvoyTcp,
        ProxyKind::EnvoyHttp,
    ];

    /// Its name in experiment files.
    pub fn name(self) -> &'static str {
        match self {
            ProxyKind::NginxTcp => "nginx-tcp",
            ProxyKind::NginxHttp => "nginx-http",
            ProxyKind::HaproxyTcp => "haproxy-tcp",
            ProxyKind::HaproxyHttp => "haproxy-http",
            ProxyKind::EnvoyTcp => "envoy-tcp",
            ProxyKind::EnvoyHttp => "envoy-http",
        }
    }

    /// Whether it reads requests, and not just bytes.
    pub fn reads_http(self) -> bool {
        match self {
            ProxyKind::NginxHttp | ProxyKind::HaproxyHttp | ProxyKind::EnvoyHttp => true,
            ProxyKind::NginxTcp | ProxyKind::HaproxyTcp | ProxyKind::EnvoyTcp => false,
        }
    }
}

impl fmt::Display for Proxies {
    /// `envoy-http at the client, nginx-tcp at the server, spliced`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.client, self.server) {
            (Some(client), Some(server)) if client == server => write!(f, "{} at both ends", client.name())?,
            (Some(client), Some(server)) => {
                write!(f, "{} at the client, {} at the server", client.name(), server.name())?;
            }
            (Some(client), None) => write!(f, "{} at the client", client.name())?,
            (None, Some(server)) => write!(f, "{} at the server", server.name())?,
            (None, None) => f.write_str("no proxy")?,
        }
        f.write_str(if self.splice { ", spliced" } else { "" })
    }
}

impl Experiment {
    /// Checks that the proxies of a candidate can pass the workload on.
    pub(crate) fn validate_proxies(&self, candidate: &Candidate) -> Result<(), ExperimentError> {
        let proxies = candidate.proxy;
        if proxies.splice && proxies.server.is_none() {
            let why =
                "the hop between a server's proxy and the server is what can be spliced; name `server` too";
            return Err(out_of_range("candidates.proxy.splice", true, why));
        }
        let is_short = matches!(self.workload.kind, WorkloadKind::Connect | WorkloadKind::Download);
        if proxies.splice && is_short {
            let why = "a connection for each request is over before it is spliced; take a workload that keeps connections";
            return Err(out_of_range("candidates.proxy.splice", true, why));
        }
        let refused = |why: &str| Err(out_of_range("candidates.proxy", proxies, why));
        if proxies.is_empty() {
            return Ok(());
        }
        if self.placement == Placement::SameNode && candidate.path == "host" {
            return refused("on one node `host` is the loopback link, on which nothing is redirected");
        }
        match self.workload.kind {
            WorkloadKind::Http | WorkloadKind::Connect | WorkloadKind::Download => {}
            WorkloadKind::TcpRr | WorkloadKind::Grpc => {
                if proxies.both().into_iter().flatten().any(ProxyKind::reads_http) {
                    return refused(
                        "it reads HTTP/1.1, which this workload does not speak; take one that ends in -tcp",
                    );
                }
            }
            WorkloadKind::UdpRr
            | WorkloadKind::Verbs
            | WorkloadKind::UdpStream
            | WorkloadKind::TcpStream
            | WorkloadKind::Packets => {
                return refused("it passes on what a server answers over TCP; take such a workload");
            }
        }
        if self.workload.tls && proxies.both().into_iter().flatten().any(ProxyKind::reads_http) {
            return refused("it cannot read what client and server encrypt; take one that ends in -tcp");
        }
        if candidate.cni.is_some() && candidate.name.is_none() {
            let why = "a CNI configuration with a proxy needs a `name`";
            return Err(out_of_range("candidates.name", "missing", why));
        }
        Ok(())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(workload: &str, candidate: &str) -> Result<Experiment, ExperimentError> {
        Experiment::from_toml(&format!(
            "schema = 1\nname = \"x\"\n{workload}\n[[candidates]]\npath = \"host\"\n{candidate}"
        ))
    }

    #[test]
    fn they_are_read_written_and_named() {
        for (proxy, title) in [
            ("server = \"envoy-http\"", "host, envoy-http at the server"),
            ("client = \"nginx-tcp\"", "host, nginx-tcp at the client"),
            ("server = \"nginx-tcp\", splice = true", "host, nginx-tcp at the server, spliced"),
            ("client = \"haproxy-tcp\", server = \"haproxy-tcp\"", "host, haproxy-tcp at both ends"),
            (
                "client = \"nginx-tcp\", server = \"envoy-tcp\"",
                "host, nginx-tcp at the client, envoy-tcp at the server",
            ),
        ] {
            let experiment = with("", &format!("proxy = {{ {proxy} }}")).unwrap();
            assert_eq!(experiment.candidates[0].title(), title);
            assert_eq!(Experiment::from_toml(&experiment.to_toml()).unwrap(), experiment);
        }
        assert!(!with("", "name = \"plain\"").unwrap().to_toml().contains("proxy"));
        for kind in ProxyKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }

    #[test]
    fn what_a_proxy_cannot_pass_on_is_refused() {
        let http = "proxy.server = \"envoy-http\"";
        let said = "`candidates.proxy` is envoy-http at the server: it ";
        for (workload, candidate, why) in [
            ("workload.kind = \"udp-rr\"", http, format!("{said}passes on what a server answers over TCP")),
            ("workload.kind = \"grpc\"", http, format!("{said}reads HTTP/1.1")),
            ("workload.tls = true", http, format!("{said}cannot read what client and server encrypt")),
            ("placement = \"same_node\"", http, "envoy-http at the server: on one node".to_owned()),
            (
                "",
                "proxy = { client = \"nginx-tcp\", splice = true }",
                "`candidates.proxy.splice` is true: the hop between".to_owned(),
            ),
            (
                "workload.kind = \"connect\"",
                "proxy = { server = \"nginx-tcp\", splice = true }",
                "`candidates.proxy.splice` is true: a connection for each request".to_owned(),
            ),
            ("", "proxy.server = \"squid\"", "unknown variant `squid`".to_owned()),
            ("", "proxy.both = \"envoy-http\"", "unknown key `both`".to_owned()),
        ] {
            let error = with(workload, candidate).expect_err(candidate).to_string();
            assert!(error.contains(&why), "{why:?} is not in {error:?}");
        }
        let bytes = "proxy.server = \"envoy-tcp\"";
        for workload in ["workload.kind = \"grpc\"", "workload.tls = true", "workload.kind = \"tcp-rr\""] {
            assert!(with(workload, bytes).is_ok(), "{workload}");
        }
    }
}
