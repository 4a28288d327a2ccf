//! Queueing disciplines, as far as others' must be told from ours.

use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{TcAttribute, TcMessage};

use super::Netlink;
use crate::Result;

impl Netlink {
    /// Whether a link has a queueing discipline of a kind, `clsact` for instance.
    pub fn has_qdisc(&self, index: u32, kind: &str) -> Result<bool> {
        let mut question = TcMessage::default();
        question.header.index = index.cast_signed();
        let answers =
            self.dump(&Message::GetQueueDiscipline(question), "list queueing disciplines")?;
        Ok(answers.iter().any(|answer| {
            let Message::NewQueueDiscipline(qdisc) = answer else { return false };
            let is_kind = |attribute: &TcAttribute| matches!(attribute, TcAttribute::Kind(name) if name == kind);
            qdisc.header.index == index.cast_signed() && qdisc.attributes.iter().any(is_kind)
        }))
    }
}
