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

/// The answer to `DescribeNetworkInterfaces`, as far as it is read.
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
    owner_id: Option<String>,
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

/// The answer to `DescribeRouteTables`, as far as it is read.
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

/// What AWS's words have behind them if a role may not do something: text that only AWS can read,
/// another one each time.
const ENCODED: &str = "Encoded authorization failure message";

/// The code and the words of a refusal.
pub(super) fn refusal(body: &[u8]) -> Option<(String, String)> {
    let answer: RefusalAnswer = read(body).ok()?;
    let Refusal { code, message } = answer.errors.error.into_iter().next()?;
    let words = message.split(ENCODED).next().unwrap_or_default();
    Some((code, words.trim().trim_end_matches('.').to_owned()))
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
                account: item.owner_id,
                checks_source: item.source_dest_check,
            };
            (interface, addresses)
        };
        (self.network_interface_set.item.into_iter().map(interface).collect(), self.next_token)
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
        (self.route_table_set.item.into_iter().map(table).collect(), self.next_token)
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

/// The pages of a list, each of which has what the next one is asked by.
#[derive(Debug, Default)]
pub(super) struct Pages {
    next: Option<String>,
    turned: usize,
}

/// The most pages of a list. One has a hundred entries and more.
const PAGES_MAX: usize = 100;

impl Pages {
    /// What the next page is asked by; `None`: it is the first one.
    pub(super) fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Goes on by what a page has; false: it was the last one.
    ///
    /// # Errors
    /// In words: the list has no end.
    pub(super) fn turn(&mut self, next: Option<String>) -> Result<bool, String> {
        // An empty token is none.
        let Some(next) = next.filter(|token| !token.is_empty()) else { return Ok(false) };
        self.turned += 1;
        if self.turned >= PAGES_MAX || self.next.as_ref() == Some(&next) {
            return Err(format!("after {} pages the list goes on", self.turned));
        }
        self.next = Some(next);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_quoted_without_its_encoded_part() {
        let body = "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>You are not authorized to perform \
                    this operation. Encoded authorization failure message: 4GIOHlTkIaWHQD0Q0m6XSnuUMCm-abcdef</Message>\
                    </Error></Errors><RequestID>ea966190</RequestID></Response>";
        let (code, words) = refusal(body.as_bytes()).unwrap();
        assert_eq!(code, "UnauthorizedOperation");
        assert_eq!(words, "You are not authorized to perform this operation");
    }

    #[test]
    fn a_list_ends_or_is_left() {
        let mut pages = Pages::default();
        assert_eq!(pages.turn(Some("b".to_owned())), Ok(true));
        assert_eq!(pages.next(), Some("b"));
        assert_eq!(pages.turn(Some(String::new())), Ok(false), "an empty token is none");
        assert_eq!(Pages::default().turn(None), Ok(false));
        let mut endless = Pages::default();
        let turns = (0..2 * PAGES_MAX).map(|number| endless.turn(Some(number.to_string())));
        assert_eq!(turns.take_while(Result::is_ok).count(), PAGES_MAX - 1);
        let mut same = Pages::default();
        assert!(same.turn(Some("a".to_owned())).is_ok() && same.turn(Some("a".to_owned())).is_err());
    }
}
