//! Services and their endpoints as the API server has them, the little of them that is kept, and what follows from the
//! two: where calls are led. kube-proxy's rules hold.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use plan::forwarding::{Protocol, Service as LedService, ServiceAddress};
use serde::Deserialize;

use super::kind::Kind;

/// Those of other proxies, and those without an address, are left out by the API server, as kube-proxy asks it too.
const LABELS: &str = "!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless";
/// The seconds of an affinity that names none (`DefaultClientIPServiceAffinitySeconds`).
const AFFINITY_S: u32 = 10_800;

/// The fields that are read of a Service.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Service {
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Deserialize)]
struct Metadata {
    namespace: String,
    #[serde(default)]
    labels: Labels,
}

/// An EndpointSlice has one that names its Service.
#[derive(Debug, Clone, Default, Deserialize)]
struct Labels {
    #[serde(default, rename = "kubernetes.io/service-name")]
    service: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default, rename = "clusterIP")]
    cluster_ip: String,
    #[serde(default, rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    #[serde(default)]
    ports: Vec<ServicePort>,
    #[serde(default)]
    session_affinity: String,
    #[serde(default)]
    session_affinity_config: Option<AffinityConfig>,
    #[serde(default)]
    internal_traffic_policy: Option<String>,
    #[serde(default, rename = "externalIPs")]
    external_ips: Vec<String>,
    #[serde(default)]
    load_balancer_source_ranges: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    load_balancer: LoadBalancer,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct LoadBalancer {
    #[serde(default)]
    ingress: Option<Vec<Ingress>>,
}

/// An address of a load balancer, or a name, to which no rule can lead.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ingress {
    ip: Option<String>,
    ip_mode: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct ServicePort {
    #[serde(default)]
    name: String,
    #[serde(default = "tcp")]
    protocol: String,
    port: u16,
    /// 0 or absent if it has none.
    #[serde(default, rename = "nodePort")]
    node_port: u16,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AffinityConfig {
    #[serde(default, rename = "clientIP")]
    client_ip: Option<ClientIp>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientIp {
    #[serde(default)]
    timeout_seconds: Option<u32>,
}

/// The fields that are read of an EndpointSlice.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndpointSlice {
    metadata: Metadata,
    address_type: String,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<EndpointPort>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
    #[serde(default)]
    node_name: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
struct EndpointPort {
    name: Option<String>,
    protocol: Option<String>,
    /// The API server takes any number here.
    port: Option<i64>,
}

/// What is kept of a Service's object: addresses, ports, and how its calls are spread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptService {
    addresses: Vec<IpAddr>,
    /// Its addresses outside of the cluster: `externalIPs`, and those of a load balancer. Another Service may claim the
    /// same.
    external: BTreeSet<IpAddr>,
    /// Its ports: name, protocol and number.
    ports: Vec<(String, Protocol, u16)>,
    /// The same with the ports of nodes, for a Service that has them.
    node_ports: Vec<(String, Protocol, u16)>,
    affinity_s: u32,
    /// Calls of its own addresses are led to endpoints of the caller's own node alone (`internalTrafficPolicy`).
    is_local: bool,
}

/// What is kept of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptSlice {
    /// The Service that it is of, with its namespace.
    pub(super) service: String,
    /// Its ports: name, protocol and number.
    ports: Vec<(String, Protocol, u16)>,
    endpoints: Vec<KeptEndpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct KeptEndpoint {
    address: IpAddr,
    is_ready: bool,
    /// It is about to end, and answers yet.
    is_leaving: bool,
    is_on_this_node: bool,
}

/// A Service and an EndpointSlice of a few endpoints have about 2 kB.
const PAGE: u32 = 500;
/// Services are quiet on many clusters, and nodes are watched beside them.
const SILENCE_MAX: Duration = Duration::from_secs(90);

impl Kind for Service {
    const NAME: &'static str = "Service";
    const PATH: &'static str = "/api/v1/services";
    const LABELS: Option<&'static str> = Some(LABELS);
    const PAGE: u32 = PAGE;
    const SILENCE_MAX: Duration = SILENCE_MAX;
}

impl Kind for EndpointSlice {
    const NAME: &'static str = "EndpointSlice";
    const PATH: &'static str = "/apis/discovery.k8s.io/v1/endpointslices";
    const LABELS: Option<&'static str> = Some(LABELS);
    const PAGE: u32 = PAGE;
    const SILENCE_MAX: Duration = SILENCE_MAX;
}

impl KeptService {
    /// What is kept of a Service; nothing of one without an address of its own.
    pub(super) fn of(service: Service) -> Option<KeptService> {
        let Service { spec, status, .. } = service;
        if spec.kind == "ExternalName" {
            return None;
        }
        let texts = if spec.cluster_ips.is_empty() { vec![spec.cluster_ip] } else { spec.cluster_ips };
        // One without an address has "None" here, and one that waits for it an empty text.
        let addresses: Vec<IpAddr> = texts.iter().filter_map(|text| text.parse().ok()).collect();
        if addresses.is_empty() {
            return None;
        }
        let (mut ports, mut node_ports) = (Vec::new(), Vec::new());
        for ServicePort { name, protocol, port, node_port } in spec.ports {
            let Some(protocol) = protocol_of(&protocol) else { continue };
            if node_port > 0 {
                node_ports.push((name.clone(), protocol, node_port));
            }
            ports.push((name, protocol, port));
        }
        let config = spec.session_affinity_config.and_then(|config| config.client_ip);
        let affinity_s = match spec.session_affinity.as_str() {
            "ClientIP" => config.and_then(|config| config.timeout_seconds).unwrap_or(AFFINITY_S),
            _ => 0,
        };
        let is_local = spec.internal_traffic_policy.as_deref() == Some("Local");
        // Where a load balancer admits some callers alone, kube-proxy does that, and packets must come
        // as they are sent.
        let is_open = spec.load_balancer_source_ranges.is_empty();
        let balanced = status.load_balancer.ingress.into_iter().flatten().filter(|_| is_open);
        let balanced = balanced.filter_map(Ingress::led);
        let external = spec.external_ips.into_iter().chain(balanced).filter_map(|text| text.parse().ok());
        // A Service without an address of the family has no endpoints of it.
        let is_of_family = |ip: &IpAddr| addresses.iter().any(|own| own.is_ipv4() == ip.is_ipv4());
        // An API server forbids the others in `externalIPs` alone. One of zeros would stand for the node itself.
        let is_outside = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast();
        let external = external.filter(is_of_family).filter(is_outside).collect();
        Some(KeptService { addresses, external, ports, node_ports, affinity_s, is_local })
    }

    /// Whether calls of an address are led that another Service may claim too.
    pub(super) fn shares(&self, address: IpAddr) -> bool {
        self.external.contains(&address) && !self.addresses.contains(&address)
    }

    /// Whether it has addresses that another Service may claim too.
    pub(super) fn has_external(&self) -> bool {
        !self.external.is_empty()
    }

    /// Where calls of it are led, at each of its addresses and ports, and at the ports of nodes.
    pub(super) fn led(&self, slices: &[&KeptSlice]) -> Vec<LedService> {
        // As `lease::Services` has the node's own address.
        let of_node = |address: &IpAddr| match address {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let virtual_ones = self.addresses.iter().map(|address| (*address, &self.ports));
        let external = self.external.iter().map(|address| (*address, &self.ports));
        let of_node = self.addresses.iter().map(|address| (of_node(address), &self.node_ports));
        let mut led = Vec::new();
        for (address, ports) in virtual_ones.chain(external).chain(of_node) {
            for (name, protocol, port) in ports {
                let at = ServiceAddress { address, port: *port, protocol: *protocol };
                let backends = self.backends(&at, name, slices);
                led.push(LedService { at, affinity_s: self.affinity_s, backends });
            }
        }
        led
    }

    /// The endpoints that are ready. Where there is none, those that are about to end and answer yet: so a rollout of
    /// one endpoint loses no call.
    fn backends(&self, at: &ServiceAddress, port: &str, slices: &[&KeptSlice]) -> BTreeSet<SocketAddr> {
        let (mut ready, mut leaving) = (BTreeSet::new(), BTreeSet::new());
        for slice in slices {
            let ports = slice
                .ports
                .iter()
                .filter(|(name, protocol, _)| (name.as_str(), *protocol) == (port, at.protocol));
            for (_, _, number) in ports {
                for endpoint in slice.endpoints.iter().filter(|endpoint| self.may_have(endpoint, at)) {
                    let backend = SocketAddr::new(endpoint.address, *number);
                    if endpoint.is_ready {
                        ready.insert(backend);
                    } else if endpoint.is_leaving {
                        leaving.insert(backend);
                    }
                }
            }
        }
        if ready.is_empty() { leaving } else { ready }
    }

    /// To kube-proxy, a call from the node or its pods of a port of the node, or of an address outside, comes from
    /// inside the cluster, and may go to any endpoint whatever `externalTrafficPolicy` says.
    fn may_have(&self, endpoint: &KeptEndpoint, at: &ServiceAddress) -> bool {
        let is_of_family = endpoint.address.is_ipv4() == at.address.is_ipv4();
        let is_local = self.is_local && self.addresses.contains(&at.address);
        is_of_family && (endpoint.is_on_this_node || !is_local)
    }
}

impl Ingress {
    /// The address, unless the load balancer wants to see the calls itself (`ipMode: Proxy`).
    fn led(self) -> Option<String> {
        self.ip.filter(|_| self.ip_mode.as_deref().is_none_or(|mode| mode == "VIP"))
    }
}

impl KeptSlice {
    /// What is kept of an EndpointSlice, on a node of this name; nothing of one without addresses or without a Service.
    pub(super) fn of(slice: EndpointSlice, node: &str) -> Option<KeptSlice> {
        let service = format!("{}/{}", slice.metadata.namespace, slice.metadata.labels.service?);
        if !["IPv4", "IPv6"].contains(&slice.address_type.as_str()) {
            return None;
        }
        let endpoint = |Endpoint { addresses, conditions, node_name }: Endpoint| {
            // All addresses of one are of one endpoint, and the first will do.
            let address = addresses.first()?.parse().ok()?;
            let is_ready = conditions.ready.unwrap_or(true);
            let is_leaving =
                conditions.serving.unwrap_or(is_ready) && conditions.terminating.unwrap_or(false);
            let is_on_this_node = node_name.as_deref() == Some(node);
            Some(KeptEndpoint { address, is_ready, is_leaving, is_on_this_node })
        };
        let port = |EndpointPort { name, protocol, port }: EndpointPort| {
            let number = port.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
            Some((name?, protocol_of(protocol.as_deref().unwrap_or("TCP"))?, number?))
        };
        Some(KeptSlice {
            service,
            ports: slice.ports.unwrap_or_default().into_iter().filter_map(port).collect(),
            endpoints: slice.endpoints.unwrap_or_default().into_iter().filter_map(endpoint).collect(),
        })
    }
}

/// The protocols whose sockets can be led: those of SCTP have no hook.
fn protocol_of(text: &str) -> Option<Protocol> {
    match text {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        _ => None,
    }
}

fn tcp() -> String {
    "TCP".to_owned()
}

#[cfg(test)]
mod tests;
