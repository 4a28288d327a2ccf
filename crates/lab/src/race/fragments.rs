//! What is said before a race of datagrams that do not fit into one packet.

use datapath::Reach;
use record::{Entrant, Placement};

use super::Race;
use crate::candidate::Contender;
use crate::datagrams::{packet_bytes, too_large, wire_mtu};

/// The MTU of every loopback link, in bytes.
const LOOPBACK_MTU: u32 = 65_536;

impl Race {
    /// The candidates whose datagrams their sender cuts into fragments, with the packets that they have. `None`: none.
    pub(super) fn fragments(&self, entrants: &[Entrant]) -> Option<String> {
        let workload = &self.experiment.workload;
        let mut cut: Vec<(u32, Vec<u32>, Vec<&str>)> = Vec::new();
        for (contender, entrant) in self.contenders.iter().zip(entrants) {
            let Some(pod_mtu) = entrant.mtu else { continue };
            let packet = self.packet_bytes(contender, pod_mtu);
            let sizes = too_large(workload, packet);
            match cut.iter_mut().find(|(bytes, _, _)| *bytes == packet) {
                Some((_, _, names)) => names.push(&contender.name),
                None if sizes.is_empty() => {}
                None => cut.push((packet, sizes, vec![&contender.name])),
            }
        }
        let each = |(packet, sizes, names): &(u32, Vec<u32>, Vec<&str>)| {
            let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
            format!("{}: {} bytes in packets of {packet}", names.join(", "), sizes.join(" and "))
        };
        let cut: Vec<String> = cut.iter().map(each).collect();
        (!cut.is_empty())
            .then(|| format!("datagrams go in fragments, which is a cost of their path: {}", cut.join("; ")))
    }

    /// The most bytes of a packet between client and server.
    fn packet_bytes(&self, contender: &Contender, pod_mtu: u32) -> u32 {
        let Contender { path, settings, .. } = contender;
        let is_relayed = path.attach.relay_mtu().is_some();
        let link = match self.experiment.placement {
            Placement::SameNode if path.reach == Reach::Node => LOOPBACK_MTU,
            // What a relay sends anew is a datagram of the node.
            Placement::TwoNodes if is_relayed => {
                pod_mtu.min(wire_mtu(settings, self.experiment.underlay.mtu))
            }
            Placement::SameNode | Placement::TwoNodes => pod_mtu,
        };
        packet_bytes(settings, link)
    }
}
