//! Policy rules, listed so that two states of a namespace can be compared. This module makes none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use serde::Serialize;

use super::Netlink;
use crate::Result;

/// A policy rule as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleInfo {
    /// True for an IPv6 rule, false for IPv4.
    pub ipv6: bool,
    /// Order among rules, lowest first.
    pub priority: u32,
    /// Source prefix; `None`: any.
    pub src: Option<IpNet>,
    /// Destination prefix; `None`: any.
    pub dst: Option<IpNet>,
    /// The link by which packets come in.
    pub iifname: Option<String>,
    /// The link by which packets leave.
    pub oifname: Option<String>,
    /// The firewall mark that packets must have; `None`: any.
    pub fwmark: Option<u32>,
    /// The table that is looked into.
    pub table: u32,
    /// The number of the action (1 look into the table, 6 blackhole).
    pub action: u8,
}

impl Netlink {
    /// Every policy rule of the namespace, by family and priority.
    pub fn rules(&self) -> Result<Vec<RuleInfo>> {
        let answers = self.dump(&Message::GetRule(RuleMessage::default()), "list policy rules")?;
        let mut rules: Vec<RuleInfo> = answers.iter().filter_map(read).collect();
        rules.sort_by_key(|rule| (rule.ipv6, rule.priority));
        Ok(rules)
    }
}

impl RuleInfo {
    /// True if it sends every packet into its table.
    pub(super) fn is_for_all(&self) -> bool {
        let RuleInfo { src, dst, iifname, oifname, fwmark, .. } = self;
        const TO_TABLE: u8 = 1;
        let selects =
            src.is_some() || dst.is_some() || iifname.is_some() || oifname.is_some() || fwmark.is_some();
        self.action == TO_TABLE && !selects
    }
}

/// `None` for families other than IP.
fn read(answer: &Message) -> Option<RuleInfo> {
    let Message::NewRule(message) = answer else { return None };
    let header = &message.header;
    let any: IpAddr = match header.family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut rule = RuleInfo {
        ipv6: any.is_ipv6(),
        priority: 0,
        src: IpNet::new(any, header.src_len).ok().filter(|net| net.prefix_len() > 0),
        dst: IpNet::new(any, header.dst_len).ok().filter(|net| net.prefix_len() > 0),
        iifname: None,
        oifname: None,
        fwmark: None,
        table: header.table.into(),
        action: header.action.into(),
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Source(ip) => rule.src = IpNet::new(*ip, header.src_len).ok(),
            RuleAttribute::Destination(ip) => rule.dst = IpNet::new(*ip, header.dst_len).ok(),
            RuleAttribute::Iifname(name) => rule.iifname = Some(name.clone()),
            RuleAttribute::Oifname(name) => rule.oifname = Some(name.clone()),
            RuleAttribute::FwMark(mark) => rule.fwmark = Some(*mark),
            RuleAttribute::Table(table) => rule.table = *table,
            _ => {}
        }
    }
    Some(rule)
}
