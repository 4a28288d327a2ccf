//! The parts of Services: one for the programs, and one for each Service, so that a Service that changes is the only
//! one that is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use datapath::Addresses;
use plan::forwarding::{Protocol, Service, ServiceAddress, ServiceAttachment, ServiceEntry, ServicePrograms};
use plan::{Place, Placed, Plan, Step};

use super::part_named;
use crate::lease::Services;

/// The part of the programs, on which all Services' parts rest. Its name comes before theirs, and after the
/// node's and the peers'.
pub const SERVICES_PART: &str = "service";
/// How the names of Services' parts begin.
const SERVICE_PART: &str = "service-";

/// Where calls of Services are led to backends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicesPlace {
    /// The name under which the programs are pinned.
    pub node: String,
    /// The directory of the control group whose sockets they see.
    pub cgroup: PathBuf,
}

/// The name of the unit's part that leads calls of this Service, by its name `NAMESPACE/NAME`.
pub fn service_part_of(service: &str) -> String {
    part_named(SERVICE_PART, service)
}

/// Whether a part is of a Service.
pub fn is_of_service(part: &str) -> bool {
    part.starts_with(SERVICE_PART)
}

/// Whether a step leads calls of an address by TCP.
pub(crate) fn leads(placed: &Placed, at: SocketAddr) -> bool {
    let led =
        |entry: &ServiceEntry| (entry.service.at.protocol, entry.service.at.address, entry.service.at.port);
    matches!(&placed.step, Step::ReplaceService(entry) if led(entry) == (Protocol::Tcp, at.ip(), at.port()))
}

/// The parts for what the source says of Services. As long as it says nothing, what stands of them stays.
pub(super) fn parts(
    place: &ServicesPlace,
    own: &Addresses,
    services: Option<&Services>,
    standing: &BTreeMap<String, Plan>,
) -> BTreeMap<String, Plan> {
    let mut parts: BTreeMap<String, Plan> = match services {
        Some(services) => {
            let node_ports = node_ports(services, own);
            let plan = |service: &[Service]| service_plan(place, own, service, &node_ports);
            services.iter().map(|(name, service)| (service_part_of(name), plan(service))).collect()
        }
        None => {
            let stays = standing.iter().filter(|(part, _)| is_of_service(part));
            stays.map(|(part, plan)| (part.clone(), plan.clone())).collect()
        }
    };
    parts.insert(SERVICES_PART.to_owned(), programs_plan(place));
    parts
}

fn programs_plan(place: &ServicesPlace) -> Plan {
    let ServicesPlace { node, cgroup } = place.clone();
    let mut plan = Plan::new();
    plan.push(&Place::Host, Step::LoadServices(ServicePrograms { node: node.clone() }));
    plan.push(&Place::Host, Step::AttachServices(ServiceAttachment { node, cgroup }));
    plan
}

/// The ports of the node, at its addresses.
fn node_ports(services: &Services, own: &Addresses) -> BTreeSet<ServiceAddress> {
    let all = services.values().flat_map(|services| services.iter());
    let of_node = all.filter(|service| service.at.address.is_unspecified());
    of_node
        .filter_map(|service| Some(ServiceAddress { address: address_of(service, own)?, ..service.at }))
        .collect()
}

/// A port of the node holds against a Service that has the node's address as one of its own outside of the cluster.
fn service_plan(
    place: &ServicesPlace,
    own: &Addresses,
    service: &[Service],
    node_ports: &BTreeSet<ServiceAddress>,
) -> Plan {
    let mut plan = Plan::new();
    for service in service {
        let Some(address) = address_of(service, own) else { continue };
        let at = ServiceAddress { address, ..service.at };
        if !service.at.address.is_unspecified() && node_ports.contains(&at) {
            continue;
        }
        let entry = ServiceEntry { node: place.node.clone(), service: Service { at, ..service.clone() } };
        plan.push(&Place::Host, Step::ReplaceService(entry));
    }
    plan
}

/// The address that sockets call; `None`: the node has none of that family.
fn address_of(service: &Service, own: &Addresses) -> Option<IpAddr> {
    let address = service.at.address;
    if !address.is_unspecified() {
        return Some(address);
    }
    own.iter().find(|own| own.is_ipv4() == address.is_ipv4())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn place() -> ServicesPlace {
        ServicesPlace { node: "pods-services".to_owned(), cgroup: "/sys/fs/cgroup".into() }
    }

    fn own() -> Addresses {
        [IpAddr::from([192, 0, 2, 1])].into_iter().collect()
    }

    fn service(at: &str, backends: &[&str]) -> Service {
        let backends = backends.iter().map(|backend| backend.parse().unwrap()).collect();
        Service { at: at.parse().unwrap(), affinity_s: 0, backends }
    }

    fn services(of: &[(&str, &[Service])]) -> Services {
        of.iter().map(|(name, service)| ((*name).to_owned(), Arc::new(service.to_vec()))).collect()
    }

    #[test]
    fn a_change_of_one_service_is_a_change_of_one_part() {
        let dns = [service("10.96.0.10:53/udp", &["10.244.1.2:53"]), service("10.96.0.10:53/tcp", &[])];
        let web = |backend| [service("10.96.7.7:80/tcp", &[backend])];
        let of = |backend| {
            let all = services(&[("kube-system/dns", &dns), ("default/web", &web(backend))]);
            parts(&place(), &own(), Some(&all), &BTreeMap::new())
        };
        let (before, after) = (of("10.244.1.3:80"), of("10.244.1.4:80"));
        let names: Vec<&str> = before.keys().map(String::as_str).collect();
        assert_eq!(names, ["service", "service-default%2fweb", "service-kube-system%2fdns"]);
        let differ: Vec<&String> = before.keys().filter(|part| before[*part] != after[*part]).collect();
        assert_eq!(differ, ["service-default%2fweb"]);
        assert_eq!(
            before["service-kube-system%2fdns"].commands(),
            [
                "hostgap bpf service pods-services 10.96.0.10:53/udp 10.244.1.2:53",
                "hostgap bpf service pods-services 10.96.0.10:53/tcp"
            ]
        );
        assert!(before.keys().all(|part| part.as_str() > "peer-~"));
        assert_eq!(service_part_of("default/web"), names[1]);
        assert!(is_of_service(names[1]) && !is_of_service(names[0]));
    }

    #[test]
    fn a_port_of_the_node_is_at_its_address() {
        let web =
            [service("0.0.0.0:30080/tcp", &["10.244.1.3:80"]), service("[::]:30080/tcp", &["[fd00::3]:80"])];
        let parts = parts(&place(), &own(), Some(&services(&[("default/web", &web)])), &BTreeMap::new());
        assert_eq!(
            parts["service-default%2fweb"].commands(),
            ["hostgap bpf service pods-services 192.0.2.1:30080/tcp 10.244.1.3:80"]
        );
    }

    #[test]
    fn a_port_of_the_node_holds_against_its_address_as_an_external_one() {
        let outside = [service("192.0.2.1:30080/tcp", &["10.244.1.4:80"]), service("192.0.2.1:80/tcp", &[])];
        let web = [service("0.0.0.0:30080/tcp", &["10.244.1.3:80"])];
        let all = services(&[("default/outside", &outside), ("default/web", &web)]);
        let parts = parts(&place(), &own(), Some(&all), &BTreeMap::new());
        let commands = |name: &str| parts[&service_part_of(name)].commands();
        assert_eq!(commands("default/outside"), ["hostgap bpf service pods-services 192.0.2.1:80/tcp"]);
        assert_eq!(
            commands("default/web"),
            ["hostgap bpf service pods-services 192.0.2.1:30080/tcp 10.244.1.3:80"]
        );
    }

    #[test]
    fn what_stands_stays_until_the_source_says_something() {
        let all = services(&[("default/web", &[service("10.96.7.7:80/tcp", &["10.244.1.3:80"])])]);
        let mut standing = parts(&place(), &own(), Some(&all), &BTreeMap::new());
        standing.insert("peer-a".to_owned(), Plan::new());
        let stays = parts(&place(), &own(), None, &standing);
        standing.remove("peer-a");
        assert_eq!(stays, standing);
        let gone = parts(&place(), &own(), Some(&Services::new()), &standing);
        assert_eq!(gone.into_keys().collect::<Vec<_>>(), [SERVICES_PART]);
    }
}
