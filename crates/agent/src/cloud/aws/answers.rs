//! What EC2 answers, in XML.

use std::net::IpAddr;

use ipnet::IpNet;
use quick_xml::de;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::{Interface, Route, Table};

/// A list: elements of this name in one that is named after the list.
#[derive(Debug, Deserialize)]
struct Items<T> {
    #[serde(default = "Vec::new")]
    item: Vec<T>,
}

impl<T> Default for Items<T> {
    fn default() -> Items<T> {
        Items { item: Vec::new() }
    }
}

/// `DescribeNetworkInterfacesResponse`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InterfacesAnswer {
    #[serde(default)]
    network_interface_set: Items<InterfaceItem>,
    next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InterfaceItem {
    network_interface_id: String,
    subnet_id: String,
    vpc_id: String,
    source_dest_check: bool,
    #[serde(default)]
    private_ip_addresses_set: Items<AddressItem>,
    #[serde(default)]
    ipv6_addresses_set: Items<AddressItem>,
}

#[derive(Debug, Deserialize)]
struct AddressItem {
    #[serde(alias = "privateIpAddress", alias = "ipv6Address")]
    address: IpAddr,
}

/// `DescribeRouteTablesResponse`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RouteTablesAnswer {
    #[serde(default)]
    route_table_set: Items<TableItem>,
    next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TableItem {
    route_table_id: String,
    #[serde(default)]
    route_set: Items<RouteItem>,
}

/// A route. Where it leads is in an element of the gateway's kind.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RouteItem {
    destination_cidr_block: Option<IpNet>,
    destination_ipv6_cidr_block: Option<IpNet>,
    network_interface_id: Option<String>,
    instance_id: Option<String>,
    gateway_id: Option<String>,
    nat_gateway_id: Option<String>,
    transit_gateway_id: Option<String>,
    local_gateway_id: Option<String>,
    carrier_gateway_id: Option<String>,
    egress_only_internet_gateway_id: Option<String>,
    vpc_peering_connection_id: Option<String>,
    core_network_arn: Option<String>,
    state: Option<String>,
    origin: Option<String>,
}

/// The answer to what changes something. Some have one word, others none.
#[derive(Debug, Deserialize)]
pub(super) struct Done {
    #[serde(rename = "return")]
    is_done: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RefusalAnswer {
    errors: Refusals,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refusals {
    #[serde(default)]
    error: Vec<Refusal>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refusal {
    code: String,
    #[serde(default)]
    message: String,
}

/// Reads an answer.
///
/// # Errors
/// In words: it is none of this kind.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let text = std::str::from_utf8(body).map_err(|error| format!("the answer makes no sense: {error}"))?;
    de::from_str(text).map_err(|error| format!("the answer makes no sense: {error}"))
}

/// The code and the words of a refusal.
pub(super) fn refusal(body: &[u8]) -> Option<(String, String)> {
    let answer: RefusalAnswer = read(body).ok()?;
    answer.errors.error.into_iter().next().map(|refusal| (refusal.code, refusal.message))
}

impl InterfacesAnswer {
    /// The interfaces of an instance with their addresses, and what the next page is asked by.
    pub(super) fn read(self, instance: &str) -> (Vec<(Interface, Vec<IpAddr>)>, Option<String>) {
        let interface = |item: InterfaceItem| {
            let addresses = item.private_ip_addresses_set.item.iter().chain(&item.ipv6_addresses_set.item);
            let addresses = addresses.map(|item| item.address).collect();
            let interface = Interface {
                id: item.network_interface_id,
                instance: instance.to_owned(),
                subnet: item.subnet_id,
                vpc: item.vpc_id,
                checks_source: item.source_dest_check,
            };
            (interface, addresses)
        };
        (self.network_interface_set.item.into_iter().map(interface).collect(), page(self.next_token))
    }
}

impl RouteTablesAnswer {
    /// The tables, and what the next page is asked by.
    pub(super) fn read(self) -> (Vec<Table>, Option<String>) {
        let table = |item: TableItem| {
            let mut counted = [0, 0];
            for route in item.route_set.item.iter().filter(|route| !route.is_propagated()) {
                counted[usize::from(route.destination_ipv6_cidr_block.is_some())] += 1;
            }
            let routes = item.route_set.item.into_iter().filter_map(RouteItem::read).collect();
            Table { id: item.route_table_id, routes, counted }
        };
        (self.route_table_set.item.into_iter().map(table).collect(), page(self.next_token))
    }
}

impl RouteItem {
    fn is_propagated(&self) -> bool {
        self.origin.as_deref() == Some("EnableVgwRoutePropagation")
    }

    /// `None`: it leads to a list of prefixes, which the cloud keeps.
    fn read(self) -> Option<Route> {
        let prefix = self.destination_cidr_block.or(self.destination_ipv6_cidr_block)?.trunc();
        let targets = [
            self.network_interface_id,
            self.gateway_id,
            self.nat_gateway_id,
            self.transit_gateway_id,
            self.local_gateway_id,
            self.carrier_gateway_id,
            self.egress_only_internet_gateway_id,
            self.vpc_peering_connection_id,
            self.core_network_arn,
            self.instance_id.clone(),
        ];
        Some(Route {
            prefix,
            target: targets.into_iter().flatten().next().unwrap_or_default(),
            instance: self.instance_id,
            is_dead: self.state.as_deref() == Some("blackhole"),
            is_static: self.origin.as_deref() == Some("CreateRoute"),
        })
    }
}

impl Done {
    /// Whether it says no, which comes with a refusal elsewhere.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.is_done == Some(false) { Err("the answer is false".to_owned()) } else { Ok(()) }
    }
}

/// An empty token is none.
fn page(token: Option<String>) -> Option<String> {
    token.filter(|token| !token.is_empty())
}
