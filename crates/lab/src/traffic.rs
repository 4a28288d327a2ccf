//! Whether packets took the path: what its counters show of a trial, against what the trial's answers must have taken.

use std::collections::BTreeMap;

use datapath::{PacketCounter, PacketDirection, Trace};
use linux::IfName;
use linux::procfs::{Counters, LinkCounters};
use plan::Place;
use serde::{Deserialize, Serialize};

/// What the namespaces of a topology counted, since their beginning or between two looks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Traffic {
    places: BTreeMap<Place, Counted>,
    /// Messages past TCP, by node.
    spliced: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Counted {
    links: BTreeMap<IfName, LinkCounters>,
    forwarded: u64,
    delivered: u64,
}

/// The least that must have crossed a path in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Amount {
    packets: u64,
    bytes: u64,
    /// Of one process to another.
    messages: u64,
}

/// What a trial got through its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct TransferredAmounts {
    requests: Amount,
    answers: Amount,
}

/// Bytes of the largest packet that a link is given before it is cut into segments (`GSO_LEGACY_MAX_SIZE`).
const PACKET_MAX: u64 = 65_536;

/// The share of the packets, and of the bytes, that a counter of the path must show, in permille. Both looks lie
/// outside of what they count, so that nothing is missing but what a driver adds up a moment later.
const SHOWN_PERMILLE: u64 = 900;
/// The share of the packets that may show where none of the path's are to be, in permille: a program leaves the first
/// packet of a way to the kernel, and neighbours are asked for.
const HIDDEN_PERMILLE: u64 = 100;

impl TransferredAmounts {
    /// Requests that were answered: at least a packet each way.
    pub(crate) fn exchanges(answered: u64) -> TransferredAmounts {
        let amount = Amount { packets: answered, bytes: 0, messages: answered };
        TransferredAmounts { requests: amount, answers: amount }
    }

    /// Bytes that arrived at the server, in messages of any length.
    pub(crate) fn stream(bytes: u64) -> TransferredAmounts {
        let requests = Amount { packets: bytes / PACKET_MAX, bytes, messages: u64::from(bytes > 0) };
        TransferredAmounts { requests, answers: Amount::default() }
    }

    /// Objects of so many bytes in all, a connection each.
    pub(crate) fn download(objects: u64, bytes: u64) -> TransferredAmounts {
        let answers = Amount { packets: objects.max(bytes / PACKET_MAX), bytes, messages: objects };
        TransferredAmounts { requests: Amount { packets: objects, bytes: 0, messages: objects }, answers }
    }

    fn of(&self, packets: PacketDirection) -> Amount {
        match packets {
            PacketDirection::Requests => self.requests,
            PacketDirection::Answers => self.answers,
            PacketDirection::Both => Amount {
                packets: self.requests.packets + self.answers.packets,
                bytes: self.requests.bytes + self.answers.bytes,
                messages: self.requests.messages + self.answers.messages,
            },
            PacketDirection::None => Amount::default(),
        }
    }
}

impl Traffic {
    /// Adds what the links and the IP stack of a namespace counted, both families together.
    pub(crate) fn add(&mut self, place: &Place, links: BTreeMap<IfName, LinkCounters>, counters: &Counters) {
        let forwarded = counters.get("IpForwDatagrams") + counters.get("Ip6OutForwDatagrams");
        let delivered = counters.get("IpInDelivers") + counters.get("Ip6InDelivers");
        self.places.insert(place.clone(), Counted { links, forwarded, delivered });
    }

    /// Adds what the splices counted that are among the traces.
    pub(crate) fn add_spliced(&mut self, traces: &[Trace]) -> Result<(), linux::Error> {
        for trace in traces {
            let PacketCounter::Spliced(splice) = &trace.counter else { continue };
            let counters = bpf::splice::counters(&bpf::pins::folder(&splice.node));
            let messages = match counters {
                // It is gone, which the check of the plan's steps reports.
                Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => 0,
                counters => counters?
                    .into_iter()
                    .find(|(counter, _)| *counter == bpf::splice::SpliceCounter::Messages)
                    .map_or(0, |(_, count)| count),
            };
            self.spliced.insert(splice.node.clone(), messages);
        }
        Ok(())
    }

    /// What was counted since an earlier look.
    pub(crate) fn since(&self, earlier: &Traffic) -> Traffic {
        let none = Counted::default();
        let counted = |(place, now): (&Place, &Counted)| {
            let before = earlier.places.get(place).unwrap_or(&none);
            (place.clone(), now.since(before))
        };
        let spliced = |(node, now): (&String, &u64)| {
            (node.clone(), now.saturating_sub(earlier.spliced.get(node).copied().unwrap_or(0)))
        };
        Traffic {
            places: self.places.iter().map(counted).collect(),
            spliced: self.spliced.iter().map(spliced).collect(),
        }
    }

    /// Why the packets of a trial cannot have taken the path, in words; `None` if every counter shows what it has to.
    pub(crate) fn detour(&self, traces: &[Trace], work: &TransferredAmounts) -> Option<String> {
        let all = self.all(traces, work);
        traces.iter().find_map(|trace| {
            let Shown { count, bytes } = self.count(trace);
            let what = describe(trace);
            if trace.packets == PacketDirection::None {
                let elsewhere = count * 1000 <= all * HIDDEN_PERMILLE;
                return (!elsewhere)
                    .then(|| format!("{what} {count}, and none of this path's {all} packets go that way"));
            }
            let amount = work.of(trace.packets);
            let least = match trace.counter {
                PacketCounter::Spliced(_) => amount.messages,
                PacketCounter::Received(_)
                | PacketCounter::Sent(_)
                | PacketCounter::Forwarded
                | PacketCounter::Delivered => amount.packets,
            };
            if count * 1000 < least * SHOWN_PERMILLE {
                return Some(format!("{what} {count}, and the trial took at least {least}"));
            }
            let bytes = bytes.filter(|bytes| bytes * 1000 < amount.bytes * SHOWN_PERMILLE)?;
            Some(format!("{what} {count} of {bytes} bytes, and the trial took {} bytes", amount.bytes))
        })
    }

    /// The packets of both directions, as the pods or the wires sent them; at least those that the answers took.
    fn all(&self, traces: &[Trace], work: &TransferredAmounts) -> u64 {
        let sent = |direction: PacketDirection| {
            let of_it = traces.iter().filter(|trace| trace.packets == direction);
            let sent = of_it.filter(|trace| matches!(trace.counter, PacketCounter::Sent(_)));
            sent.map(|trace| self.count(trace).count).max().unwrap_or(0).max(work.of(direction).packets)
        };
        sent(PacketDirection::Requests) + sent(PacketDirection::Answers)
    }

    fn count(&self, trace: &Trace) -> Shown {
        let none = Counted::default();
        let counted = self.places.get(&trace.place).unwrap_or(&none);
        let link = |name: &IfName| counted.links.get(name).copied().unwrap_or_default();
        match &trace.counter {
            PacketCounter::Received(name) => {
                Shown { count: link(name).rx_packets, bytes: Some(link(name).rx_bytes) }
            }
            PacketCounter::Sent(name) => {
                Shown { count: link(name).tx_packets, bytes: Some(link(name).tx_bytes) }
            }
            PacketCounter::Forwarded => Shown { count: counted.forwarded, bytes: None },
            PacketCounter::Delivered => Shown { count: counted.delivered, bytes: None },
            PacketCounter::Spliced(splice) => {
                Shown { count: self.spliced.get(&splice.node).copied().unwrap_or(0), bytes: None }
            }
        }
    }
}

/// What a counter showed.
struct Shown {
    count: u64,
    bytes: Option<u64>,
}

impl Counted {
    fn since(&self, earlier: &Counted) -> Counted {
        let none = LinkCounters::default();
        let link = |(name, now): (&IfName, &LinkCounters)| {
            (name.clone(), grown(now, earlier.links.get(name).unwrap_or(&none)))
        };
        Counted {
            links: self.links.iter().map(link).collect(),
            forwarded: self.forwarded.saturating_sub(earlier.forwarded),
            delivered: self.delivered.saturating_sub(earlier.delivered),
        }
    }
}

/// A link that was replaced has counted less than the one before it.
fn grown(now: &LinkCounters, before: &LinkCounters) -> LinkCounters {
    LinkCounters {
        rx_bytes: now.rx_bytes.saturating_sub(before.rx_bytes),
        rx_packets: now.rx_packets.saturating_sub(before.rx_packets),
        rx_errors: now.rx_errors.saturating_sub(before.rx_errors),
        rx_dropped: now.rx_dropped.saturating_sub(before.rx_dropped),
        tx_bytes: now.tx_bytes.saturating_sub(before.tx_bytes),
        tx_packets: now.tx_packets.saturating_sub(before.tx_packets),
        tx_errors: now.tx_errors.saturating_sub(before.tx_errors),
        tx_dropped: now.tx_dropped.saturating_sub(before.tx_dropped),
    }
}

/// The beginning of a sentence about a counter; its count comes next.
fn describe(trace: &Trace) -> String {
    let what = match &trace.counter {
        PacketCounter::Received(link) => format!("packets that link {link} received"),
        PacketCounter::Sent(link) => format!("packets that link {link} sent"),
        PacketCounter::Forwarded => "packets that were forwarded by routes".to_owned(),
        PacketCounter::Delivered => "packets that the kernel delivered".to_owned(),
        PacketCounter::Spliced(_) => "messages that went past TCP".to_owned(),
    };
    format!("{}: {what}:", trace.place)
}

#[cfg(test)]
mod tests {
    use linux::NetnsName;

    use super::*;

    const NODE: &str = "hg-x-n1";

    fn ifname(name: &str) -> IfName {
        IfName::new(name).unwrap()
    }

    fn node() -> Place {
        Place::Netns(NetnsName::new(NODE).unwrap())
    }

    fn trace(counter: PacketCounter, packets: PacketDirection) -> Trace {
        Trace { place: node(), counter, packets }
    }

    fn link(rx_packets: u64, tx_packets: u64, bytes: u64) -> LinkCounters {
        LinkCounters { rx_packets, tx_packets, rx_bytes: bytes, tx_bytes: bytes, ..LinkCounters::default() }
    }

    /// What a namespace counted: links, and what its routes forwarded.
    fn traffic(links: &[(&str, LinkCounters)], forwarded: u64) -> Traffic {
        let links = links.iter().map(|(name, counters)| (ifname(name), *counters)).collect();
        let counted = Counted { links, forwarded, delivered: forwarded };
        let places = BTreeMap::from([(node(), counted)]);
        Traffic { places, spliced: BTreeMap::new() }
    }

    #[track_caller]
    fn check(found: &Traffic, traces: &[Trace], work: TransferredAmounts, expected: Option<&str>) {
        assert_eq!(found.detour(traces, &work).as_deref(), expected);
    }

    #[test]
    fn every_answer_took_a_packet_each_way() {
        let bridge = ifname("hgbr0");
        let traces = [
            trace(PacketCounter::Received(bridge.clone()), PacketDirection::Requests),
            trace(PacketCounter::Sent(bridge), PacketDirection::Answers),
            trace(PacketCounter::Forwarded, PacketDirection::Both),
        ];
        let work = TransferredAmounts::exchanges(1000);
        check(&traffic(&[("hgbr0", link(1000, 1003, 0))], 2001), &traces, work, None);
        let around =
            "namespace hg-x-n1: packets that link hgbr0 received: 3, and the trial took at least 1000";
        check(&traffic(&[("hgbr0", link(3, 4, 0))], 2001), &traces, work, Some(around));
        let back = "namespace hg-x-n1: packets that link hgbr0 sent: 0, and the trial took at least 1000";
        check(&traffic(&[("hgbr0", link(1000, 0, 0))], 2001), &traces, work, Some(back));
        let past = "namespace hg-x-n1: packets that were forwarded by routes: 1000, and the trial took at least 2000";
        check(&traffic(&[("hgbr0", link(1000, 1003, 0))], 1000), &traces, work, Some(past));
        check(&traffic(&[], 0), &traces, TransferredAmounts::exchanges(0), None);
    }

    #[test]
    fn a_path_past_the_routes_leaves_nothing_there() {
        let traces = [
            trace(PacketCounter::Sent(ifname("eth0")), PacketDirection::Requests),
            trace(PacketCounter::Forwarded, PacketDirection::None),
        ];
        let work = TransferredAmounts::exchanges(1000);
        check(&traffic(&[("eth0", link(0, 1000, 0))], 200), &traces, work, None);
        let routed = "namespace hg-x-n1: packets that were forwarded by routes: 201, and none of this path's 2000 packets go that way";
        check(&traffic(&[("eth0", link(0, 1000, 0))], 201), &traces, work, Some(routed));
        let own = [traces[0].clone(), trace(PacketCounter::Delivered, PacketDirection::None)];
        let delivered = "namespace hg-x-n1: packets that the kernel delivered: 1000, and none of this path's 2000 packets go that way";
        check(&traffic(&[("eth0", link(0, 1000, 0))], 1000), &own, work, Some(delivered));
    }

    #[test]
    fn streams_are_counted_in_bytes() {
        let traces = [trace(PacketCounter::Sent(ifname("eth0")), PacketDirection::Requests)];
        let work = TransferredAmounts::stream(655_360);
        check(&traffic(&[("eth0", link(0, 10, 700_000))], 0), &traces, work, None);
        let little = "namespace hg-x-n1: packets that link eth0 sent: 10 of 300000 bytes, and the trial took 655360 bytes";
        check(&traffic(&[("eth0", link(0, 10, 300_000))], 0), &traces, work, Some(little));
        // The number of acknowledgements of a stream is not known.
        check(
            &traffic(&[], 0),
            &[trace(PacketCounter::Sent(ifname("eth0")), PacketDirection::Answers)],
            work,
            None,
        );
    }

    #[test]
    fn a_link_that_was_made_anew_shows_nothing_of_before() {
        let old = traffic(&[("hgbr0", link(5000, 5000, 0))], 7);
        let new = traffic(&[("hgbr0", link(10, 10, 0))], 9);
        assert_eq!(new.since(&old), traffic(&[("hgbr0", link(0, 0, 0))], 2));
    }
}
