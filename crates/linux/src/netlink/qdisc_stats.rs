//! What queueing disciplines counted.

use netlink_packet_core::Nla;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2, TcXstats};
use serde::{Deserialize, Serialize};

use super::Netlink;
use crate::Result;

/// A queueing discipline and what it counted since it was put there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscCounters {
    /// The index of the link whose discipline it is.
    pub index: u32,
    /// The kernel's name of its kind.
    pub kind: String,
    /// It is the link's root; else it stands below another.
    pub root: bool,
    /// Its number; 0 if the kernel chose the discipline.
    pub major: u16,
    /// Below which class of its parent it stands; of `mq`, the queue.
    pub minor: u16,
    /// Bytes sent, in 64 bits.
    pub bytes: u64,
    /// Packets sent; 32 bits that restart at 0 before Linux 5.5.
    pub packets: u64,
    /// Packets dropped, in 32 bits that restart at 0.
    pub drops: u64,
    /// How often the driver had no room and the packet came back, in 32 bits that restart at 0.
    pub requeues: u64,
    /// Bytes that wait in the queue now.
    pub backlog_bytes: u32,
    /// Packets that wait in the queue now.
    pub queued: u32,
    /// Of `fq`: packets dropped because their flow had too many waiting already. They are among the drops.
    #[serde(default)]
    pub flow_limited: u64,
}

/// Packets in 64 bits, reported where 32 do not suffice (Linux 5.5).
const TCA_STATS_PKT64: u16 = 8;
/// Where `struct tc_fq_qd_stats` (include/uapi/linux/pkt_sched.h) has `flows_plimit`.
const FQ_FLOWS_PLIMIT: usize = 32;

impl QdiscCounters {
    /// Packets dropped since an earlier look.
    pub fn drops_since(&self, before: &QdiscCounters) -> u64 {
        self.grew(before, |counters| counters.drops)
    }

    /// How often a packet came back since an earlier look.
    pub fn requeues_since(&self, before: &QdiscCounters) -> u64 {
        self.grew(before, |counters| counters.requeues)
    }

    /// Growth of a 32-bit counter.
    fn grew(&self, before: &QdiscCounters, count: impl Fn(&QdiscCounters) -> u64) -> u64 {
        let grew = count(self).wrapping_sub(count(before)) & u64::from(u32::MAX);
        // A new discipline of the same kind replaced the old one, so everything it counted is new. No window is long
        // enough for half the range of 32 bits.
        let is_new = self.bytes < before.bytes || grew > u64::from(u32::MAX / 2);
        if is_new { count(self) } else { grew }
    }
}

impl Netlink {
    /// All queueing disciplines of the namespace with their counts, by link.
    pub fn qdisc_counters(&self) -> Result<Vec<QdiscCounters>> {
        let question = TcMessage::with_index(0);
        let answers = self.dump(&Message::GetQueueDiscipline(question), "list queueing disciplines")?;
        let messages = answers.iter().filter_map(|answer| match answer {
            Message::NewQueueDiscipline(message) => Some(read(message)),
            _ => None,
        });
        let mut qdiscs: Vec<_> = messages.collect();
        qdiscs.sort_by_key(|qdisc| (qdisc.index, !qdisc.root, qdisc.minor));
        Ok(qdiscs)
    }
}

fn read(message: &TcMessage) -> QdiscCounters {
    let header = &message.header;
    let mut qdisc = QdiscCounters {
        index: header.index.cast_unsigned(),
        kind: String::new(),
        root: header.parent == TcHandle::ROOT,
        major: header.handle.major,
        minor: header.parent.minor,
        bytes: 0,
        packets: 0,
        drops: 0,
        requeues: 0,
        backlog_bytes: 0,
        queued: 0,
        flow_limited: 0,
    };
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Kind(kind) => qdisc.kind.clone_from(kind),
            TcAttribute::Stats2(parts) => parts.iter().for_each(|part| match part {
                TcStats2::Basic(basic) => (qdisc.bytes, qdisc.packets) = (basic.bytes, basic.packets.into()),
                TcStats2::Queue(queue) => {
                    qdisc.drops = queue.drops.into();
                    qdisc.requeues = queue.requeues.into();
                    (qdisc.backlog_bytes, qdisc.queued) = (queue.backlog, queue.qlen);
                }
                TcStats2::Other(attribute) if attribute.kind() == TCA_STATS_PKT64 => {
                    let mut value = vec![0; attribute.value_len()];
                    attribute.emit_value(&mut value);
                    let packets = value.try_into().map(u64::from_ne_bytes);
                    qdisc.packets = packets.unwrap_or(qdisc.packets);
                }
                TcStats2::App(TcXstats::Other(bytes)) if qdisc.kind == "fq" => {
                    let field = bytes.get(FQ_FLOWS_PLIMIT..FQ_FLOWS_PLIMIT + 8);
                    let field = field.and_then(|field| field.try_into().ok());
                    qdisc.flow_limited = field.map_or(0, u64::from_ne_bytes);
                }
                _ => {}
            }),
            _ => {}
        }
    }
    qdisc
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::DefaultNla;

    use super::*;

    #[test]
    fn drops_by_the_flow_limit_of_fq_are_read() {
        let mut bytes = vec![0; 88];
        bytes[FQ_FLOWS_PLIMIT] = 7;
        let dropped = |kind: &str, bytes: Vec<u8>| {
            let mut message = TcMessage::with_index(2);
            let stats = vec![TcStats2::App(TcXstats::Other(bytes))];
            message.attributes = vec![TcAttribute::Kind(kind.to_owned()), TcAttribute::Stats2(stats)];
            read(&message).flow_limited
        };
        assert_eq!(dropped("fq", bytes.clone()), 7);
        assert_eq!((dropped("sfq", bytes), dropped("fq", vec![0; 39])), (0, 0));
    }

    #[test]
    fn packets_beyond_32_bits_are_counted() {
        let many = u64::from(u32::MAX) + 7;
        let attribute = DefaultNla::new(TCA_STATS_PKT64, many.to_ne_bytes().to_vec());
        let mut message = TcMessage::with_index(2);
        message.attributes = vec![TcAttribute::Stats2(vec![TcStats2::Other(attribute)])];
        assert_eq!(read(&message).packets, many);
    }

    #[test]
    fn drops_begin_anew_at_32_bits_and_with_a_new_discipline() {
        let counted = |bytes, drops| {
            let mut qdisc = read(&TcMessage::with_index(2));
            (qdisc.bytes, qdisc.drops) = (bytes, drops);
            qdisc
        };
        let before = counted(1000, u64::from(u32::MAX));
        assert_eq!(counted(2000, 4).drops_since(&before), 5);
        assert_eq!(counted(10, 4).drops_since(&before), 4);
        assert_eq!(counted(2000, 4).drops_since(&counted(1000, 900)), 4);
        assert_eq!(counted(2000, 900).drops_since(&counted(1000, 4)), 896);
    }
}
