//! The network cards at the ends of a wire: `wire = "igb"`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::experiment_error::{ExperimentError, out_of_range};
use crate::{Experiment, Steering, WorkloadKind};

/// A model of network card that the virtual machine of a race emulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Card {
    /// A virtual one, of the driver `virtio_net`: one queue, no offloads.
    Virtio,
    /// Intel's 82576, of the driver `igb`: queues, rings, waits before interrupts, a table over which flows are spread,
    /// offloads and virtual functions.
    Igb,
    /// VMware's, of the driver `vmxnet3`: queues, rings and offloads.
    Vmxnet3,
}

impl Card {
    /// Every model, in display order.
    pub const ALL: [Card; 3] = [Card::Virtio, Card::Igb, Card::Vmxnet3];

    /// Its name in an experiment.
    pub fn name(self) -> &'static str {
        match self {
            Card::Virtio => "virtio",
            Card::Igb => "igb",
            Card::Vmxnet3 => "vmxnet3",
        }
    }

    /// The kernel's name of its driver.
    pub fn driver(self) -> &'static str {
        match self {
            Card::Virtio => "virtio_net",
            Card::Igb => "igb",
            Card::Vmxnet3 => "vmxnet3",
        }
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is no model of card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a card: virtio, igb or vmxnet3 is expected")]
pub struct CardError(String);

impl FromStr for Card {
    type Err = CardError;

    fn from_str(text: &str) -> Result<Card, CardError> {
        Card::ALL.into_iter().find(|card| card.name() == text).ok_or_else(|| CardError(text.to_owned()))
    }
}

impl Experiment {
    /// Refuses what a wire between two cards cannot do.
    pub(crate) fn validate_cards(&self) -> Result<(), ExperimentError> {
        let Some(card) = self.underlay.card else { return Ok(()) };
        let own = self.candidates.iter().map(|candidate| self.underlay.with(&candidate.underlay));
        let mut underlays = std::iter::once(self.underlay.clone()).chain(own);
        let is_shaped = underlays.any(|of| of.to_server().is_shaped() || of.to_client().is_shaped());
        let refusals = [
            (is_shaped, "delay, loss and rate need a bridge between the nodes, and this wire has none"),
            (
                self.underlay.steering == Steering::Receiver,
                "a card interrupts CPUs by itself; `tune.rps_cpus` of a candidate steers further",
            ),
            (!self.placement.is_usual(), "with `placement = \"same_node\"` nothing crosses the wire"),
            (
                self.workload.kind == WorkloadKind::Packets || self.flood.is_some(),
                "frames that the kernel makes enter through a veth link",
            ),
        ];
        let refused = refusals.into_iter().find_map(|(is_so, why)| is_so.then_some(why));
        refused.map_or(Ok(()), |why| Err(out_of_range("underlay.wire", card, why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(lines: &str) -> Result<Experiment, ExperimentError> {
        Experiment::from_toml(&format!("schema = 1\nname = \"x\"\n{lines}"))
    }

    #[test]
    fn a_wire_is_between_cards_only_where_it_is_said() {
        let plain = experiment("").unwrap();
        assert!(plain.underlay.card.is_none() && !plain.to_toml().contains("wire"));
        for card in Card::ALL {
            let read = experiment(&format!("underlay = {{ wire = \"{card}\" }}")).unwrap();
            assert_eq!(read.underlay.card, Some(card));
            assert_eq!(Experiment::from_toml(&read.to_toml()).unwrap(), read);
            assert_eq!(card.name().parse(), Ok(card));
        }
        let unknown = experiment("underlay = { wire = \"e1000\" }").unwrap_err().to_string();
        assert!(unknown.contains("e1000") && unknown.contains("vmxnet3"), "{unknown}");
    }

    #[test]
    fn what_such_a_wire_cannot_do_is_refused() {
        let cases = [
            ("underlay = { wire = \"igb\", delay = \"1ms\" }", "a bridge between the nodes"),
            ("placement = \"same_node\"\nunderlay = { wire = \"igb\" }", "nothing crosses the wire"),
            ("underlay = { wire = \"igb\" }\nworkload = { kind = \"packets\" }", "through a veth link"),
            (
                "underlay = { wire = \"igb\" }\n[[candidates]]\npath = \"host\"\nname = \"a\"\n\
                 underlay.to_client.loss = \"1%\"",
                "a bridge between the nodes",
            ),
        ];
        for (lines, why) in cases {
            let message = experiment(lines).unwrap_err().to_string();
            assert!(message.contains("`underlay.wire` is igb") && message.contains(why), "{message}");
        }
        assert!(experiment("underlay = { wire = \"igb\", line_rate = \"1gbit\", gso = false }").is_ok());
    }
}
