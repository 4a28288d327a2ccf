//! Ports of the node that lead to a container: the capability `portMappings`.

use std::net::{IpAddr, Ipv6Addr};

use cni::Failure;
use datapath::{Addresses, Family, Protocol, PublishedPort};
use serde::Deserialize;
use serde_json::Value;

use crate::failures::{invalid_conf, unsupported};

/// An entry of `portMappings`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortMapping {
    host_port: u16,
    container_port: u16,
    #[serde(default)]
    protocol: String,
    #[serde(default, rename = "hostIP")]
    host_ip: String,
}

/// The ports that are published on a container with these addresses. A runtime that writes down a port for all
/// addresses of each family (`0.0.0.0` and `::`) means those that the container has.
pub(crate) fn ports_at(wanted: &[PublishedPort], addresses: &Addresses) -> Vec<PublishedPort> {
    let leads = |port: &PublishedPort| port.address.is_none_or(|at| addresses.of(Family::of(at)).is_some());
    let is_same = |one: &PublishedPort, other: &PublishedPort| {
        (one.node, one.pod, one.protocol) == (other.node, other.pod, other.protocol)
    };
    let is_spare = |port: &PublishedPort| {
        let is_everywhere = port.address.is_some_and(|at| at.is_unspecified());
        is_everywhere && !leads(port) && wanted.iter().any(|other| leads(other) && is_same(port, other))
    };
    wanted.iter().filter(|port| !is_spare(port)).copied().collect()
}

pub(super) fn ports(value: &Value) -> Result<Vec<PublishedPort>, Failure> {
    let mappings: Vec<PortMapping> = serde_json::from_value(value.clone())
        .map_err(|error| invalid_conf(format!("`runtimeConfig.portMappings` is {value}: {error}")))?;
    mappings.iter().map(port).collect()
}

fn port(mapping: &PortMapping) -> Result<PublishedPort, Failure> {
    let PortMapping { host_port, container_port, protocol, host_ip } = mapping;
    let within = "`runtimeConfig.portMappings`";
    let protocol = match protocol.to_ascii_lowercase().as_str() {
        "" | "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        _ => {
            let why = format!("{within} has the protocol {protocol:?}; tcp and udp can be published");
            return Err(unsupported(why));
        }
    };
    let address = match host_ip.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            invalid_conf(format!("{within} has the `hostIP` {text:?}; an IP address is expected"))
        })?),
    };
    if address == Some(IpAddr::V6(Ipv6Addr::LOCALHOST)) {
        let why = format!("{within} has the `hostIP` ::1, from which no packet leaves a node");
        return Err(unsupported(why));
    }
    if *host_port == 0 || *container_port == 0 {
        let why = format!("{within} has the port {host_port} for {container_port}; 1 to 65535 are ports");
        return Err(invalid_conf(why));
    }
    Ok(PublishedPort { node: *host_port, address, pod: *container_port, protocol })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_on_all_addresses_of_each_family_is_one_on_those_that_there_are() {
        let at = |at: &str, node| {
            let address = at.parse().unwrap();
            PublishedPort { node, address: Some(address), pod: 80, protocol: Protocol::Tcp }
        };
        let of = |addresses: &[&str]| addresses.iter().map(|one| one.parse::<IpAddr>().unwrap()).collect();
        let both = [at("0.0.0.0", 8080), at("::", 8080)];
        assert_eq!(ports_at(&both, &of(&["10.244.1.2"])), both[..1]);
        assert_eq!(ports_at(&both, &of(&["fd00::2"])), both[1..]);
        assert_eq!(ports_at(&both, &of(&["10.244.1.2", "fd00::2"])), both);
        // What leads nowhere at all is left, to be refused.
        for kept in [[at("0.0.0.0", 8080), at("::", 8081)], [at("0.0.0.0", 8080), at("2001:db8::1", 8080)]] {
            assert_eq!(ports_at(&kept, &of(&["10.244.1.2"])), kept);
        }
    }
}
