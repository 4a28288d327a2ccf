//! Frames that the kernel makes, and a filter that each of them meets at the server's node: those of the workload
//! `packets`, and those of a flood beside another workload.
//!
//! The steps of a filter are part of the topology's plan ([`extend`]): rules, links, offloads. Its programs are
//! attached while the topology stands ([`Judge`]), and end with this process, whatever ends it. Trials are run by
//! `workload::packets`, and by `workload::flood` where the frames are a flood.

mod flood;
mod frame;
mod judge;

use std::num::NonZero;

use datapath::NodeSpec;
use linux::ethtool::{NicFeature, NicParameter};
use linux::nft::priority::{FILTER, RAW};
use linux::nft::{self, Base, Chain, ChainKind, Hook, Match, Rule, Statement, Table};
use linux::{IfName, Link, LinkKind, VethPeer, sysctl};
use plan::{Plan, SetLinkUp, SetNic, SetSysctl, Step};
use record::PacketFilter;

use crate::ByRole;

pub(crate) use judge::{Judge, is_whole, program, sends_on};

/// Where frames of a flood go: the port of the service that discards everything (RFC 863).
pub(crate) const JUNK_PORT: NonZero<u16> = NonZero::new(9).expect("9 is not 0");

/// The link by which a filter sends frames on, and the one at which they end.
fn onward() -> [IfName; 2] {
    ["onward", "end"].map(|name| IfName::new(name).expect("a constant name is valid"))
}

/// Keeps nodes from sending frames of their own, which would be judged too. What is set for all links holds for those
/// that are made later.
pub(crate) fn silence(nodes: &ByRole<NodeSpec>, plan: &mut Plan) {
    if !linux::features::has_ipv6() {
        return;
    }
    for node in nodes.as_ref().both() {
        let key = sysctl::Key::new("net/ipv6/conf/all/disable_ipv6").expect("a constant key is a path");
        plan.push(&node.place, SetSysctl { key, value: "1".to_owned() });
    }
}

/// Lets the wire's end take frames of XDP. A veth link does so only where it polls: with XDP of its own, or with GRO.
pub(crate) fn take_frames(node: &NodeSpec, plan: &mut Plan) {
    let parameter = NicParameter::Feature(NicFeature::Gro);
    plan.push(&node.place, SetNic { link: node.wire.clone(), parameter, value: 1 });
}

/// Adds what a filter needs besides programs, at the node that frames arrive at. With a port the filter is about
/// UDP to it alone.
pub(crate) fn extend(filter: PacketFilter, port: Option<NonZero<u16>>, node: &NodeSpec, plan: &mut Plan) {
    if filter == PacketFilter::XdpRedirect {
        let [near, far] = onward();
        let peer = VethPeer { name: far.clone(), netns: None, mtu: None, mac: None };
        let pair = Link { name: near.clone(), kind: LinkKind::Veth { peer }, mtu: None, mac: None };
        plan.push(&node.place, Step::AddLink(pair));
        for link in [near, far] {
            plan.push(&node.place, SetLinkUp { link });
        }
    }
    if let Some(table) = table(filter, port, &node.wire) {
        plan.push(&node.place, Step::AddNftTable(table));
    }
}

/// True for filters that are rules of nftables.
pub(crate) fn has_rules(filter: PacketFilter) -> bool {
    let any = IfName::new("any").expect("a constant name is valid");
    table(filter, None, &any).is_some()
}

/// The rules of a filter of nftables, which may be about UDP to a port alone.
pub(crate) fn table(filter: PacketFilter, port: Option<NonZero<u16>>, wire: &IfName) -> Option<Table> {
    let dropped = port.map(|port| Match::UdpDport(port.get())).into_iter().chain([Match::Counter]);
    let drop = Rule { matches: dropped.collect(), then: Statement::Drop };
    let tracked = Rule { matches: vec![Match::Established], then: Statement::Accept };
    let (family, hook, priority, rules) = match filter {
        PacketFilter::NftIngress => {
            (nft::Family::Netdev, Hook::Ingress { device: wire.clone() }, FILTER, vec![drop])
        }
        PacketFilter::NftRaw => (nft::Family::Ip, Hook::Prerouting, RAW, vec![drop]),
        PacketFilter::NftInput => (nft::Family::Ip, Hook::Input, FILTER, vec![drop]),
        PacketFilter::NftInputCt => (nft::Family::Ip, Hook::Input, FILTER, vec![tracked, drop]),
        PacketFilter::Socket
        | PacketFilter::XdpDrop
        | PacketFilter::XdpTx
        | PacketFilter::XdpRedirect
        | PacketFilter::XdpGeneric
        | PacketFilter::TcDrop
        | PacketFilter::XdpPass => return None,
    };
    let base = Some(Base { kind: ChainKind::Filter, hook, priority });
    let chains = vec![Chain { name: "packets".to_owned(), base, rules }];
    Some(Table { family, name: "hostgap-packets".to_owned(), maps: Vec::new(), chains })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_filter_of_nftables_has_one_rule_that_drops_and_counts() {
        let wire = IfName::new("eth0").unwrap();
        let tables = PacketFilter::ALL.map(|filter| (filter, table(filter, None, &wire)));
        for (filter, table) in &tables {
            assert_eq!(table.is_some(), filter.name().starts_with("nft-"), "{filter}");
            let Some(table) = table else { continue };
            assert_eq!(table.to_text().matches("counter drop").count(), 1, "{}", table.to_text());
        }
        let text = |filter| table(filter, None, &wire).unwrap().to_text();
        assert!(text(PacketFilter::NftIngress).contains("hook ingress device \"eth0\" priority 0"));
        assert!(text(PacketFilter::NftRaw).contains("hook prerouting priority -300"));
        assert!(
            text(PacketFilter::NftInputCt).contains("ct state established,related accept\n\t\tcounter drop")
        );
        assert!(!text(PacketFilter::NftInput).contains("ct state"));
        let junk = table(PacketFilter::NftRaw, Some(JUNK_PORT), &wire).unwrap().to_text();
        assert!(junk.contains("udp dport 9 counter drop"), "{junk}");
    }
}
