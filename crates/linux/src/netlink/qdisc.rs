//! Queueing disciplines, as far as others' must be told from ours.

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::Netlink;
use crate::Result;

/// What packets of a direction meet at a link's clsact qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterInfo {
    /// False: it is for packets that the link sends.
    pub ingress: bool,
    /// Its place in the order, 1 to 65535.
    pub priority: u16,
    /// Its number among those of its priority; 0 stands for the priority as such.
    pub handle: u32,
}

/// Where a clsact qdisc has its filters for either direction (`TC_H_CLSACT` with `TC_H_MIN_INGRESS`, `_EGRESS`).
const INGRESS: u16 = 0xfff2;
const EGRESS: u16 = 0xfff3;

impl Netlink {
    /// The filters of a link's clsact qdisc; none if it has no such qdisc.
    pub fn filters(&self, index: u32) -> Result<Vec<FilterInfo>> {
        let mut filters = Vec::new();
        for minor in [INGRESS, EGRESS] {
            let mut question = TcMessage::default();
            question.header.index = index.cast_signed();
            question.header.parent = TcHandle { major: u16::MAX, minor };
            let answers = self.dump(&Message::GetTrafficFilter(question), "list filters")?;
            filters.extend(answers.iter().filter_map(|answer| {
                let Message::NewTrafficFilter(filter) = answer else { return None };
                let priority = u16::try_from(filter.header.info >> 16).expect("sixteen bits are left");
                let handle = filter.header.handle.into();
                let is_at_link = filter.header.index == index.cast_signed();
                is_at_link.then_some(FilterInfo { ingress: minor == INGRESS, priority, handle })
            }));
        }
        Ok(filters)
    }

    /// Whether a link has a queueing discipline of a kind, `clsact` for instance.
    pub fn has_qdisc(&self, index: u32, kind: &str) -> Result<bool> {
        let mut question = TcMessage::default();
        question.header.index = index.cast_signed();
        let answers = self.dump(&Message::GetQueueDiscipline(question), "list queueing disciplines")?;
        Ok(answers.iter().any(|answer| {
            let Message::NewQueueDiscipline(qdisc) = answer else { return false };
            let is_kind =
                |attribute: &TcAttribute| matches!(attribute, TcAttribute::Kind(name) if name == kind);
            qdisc.header.index == index.cast_signed() && qdisc.attributes.iter().any(is_kind)
        }))
    }
}
