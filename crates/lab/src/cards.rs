//! The cards at the ends of a race's wires: those of the virtual machine, two for each contender.
//!
//! All topologies stand at the same time, so each has a pair of its own, joined in the emulator. A topology takes its
//! cards into its nodes and gives them back, as it does with all that it uses.

use std::time::{Duration, Instant};

use datapath::{Between, DataPath, Enters, NodeSpec};
use linux::ethtool::Ethtool;
use linux::sysfs::{NetSysfs, Queue};
use linux::{IfName, Netlink, Netns};
use record::{Card, Experiment};
use vm::Nic;

use crate::card_description::describe;
use crate::shape::CardWire;
use crate::{ByRole, LabError};

/// How long a wire may take to carry. A driver looks at its card's link every two seconds, and emulation slows it down.
const CARRIER_MAX: Duration = Duration::from_secs(60);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// The cards of this machine in pairs, by contender.
#[derive(Debug, Default)]
pub(crate) struct Cards(Vec<CardWire>);

/// The queues of a card: as many as its driver says, or else as many as the kernel shows.
pub(crate) fn queues_of(link: &IfName, sysfs: &NetSysfs) -> Result<tune::Nic, LabError> {
    let shown = sysfs.queues(link)?;
    let count = |is_meant: fn(&Queue) -> bool| {
        u16::try_from(shown.iter().filter(|queue| is_meant(queue)).count()).unwrap_or(u16::MAX)
    };
    let shown = (count(|queue| matches!(queue, Queue::Rx(_))), count(|queue| matches!(queue, Queue::Tx(_))));
    let channels = Ethtool::open()?.channels(link).filter(|channels| channels.combined > 0);
    let said = channels.and_then(|channels| u16::try_from(channels.combined).ok());
    let (rx, tx) = said.map_or(shown, |both| (both, both));
    Ok(tune::Nic { rx, tx, ..tune::Nic::default() })
}

impl Cards {
    /// Finds the cards of so many contenders; none where the experiment has no such wire.
    ///
    /// # Errors
    /// This is no virtual machine of ours, or it lacks some of them.
    pub(crate) fn of(experiment: &Experiment, in_guest: bool, contenders: usize) -> Result<Cards, LabError> {
        let Some(card) = experiment.underlay.card else { return Ok(Cards::default()) };
        if !in_guest {
            let why = "it takes a virtual machine of a race, which emulates them".to_owned();
            return Err(LabError::Experiment { what: format!("a wire between two {card} cards"), why });
        }
        let links = Netlink::open()?.links()?;
        let end = |number| {
            let mac = Nic::mac(number);
            let found = links.iter().find(|link| link.kind.is_none() && link.mac == Some(mac));
            found.map(|link| link.name.clone()).ok_or_else(|| LabError::Experiment {
                what: format!("a wire between two {card} cards"),
                why: format!("there is no card with address {mac}; does this kernel have {}?", card.driver()),
            })
        };
        let sysfs = NetSysfs::open(&Netns::current()?)?;
        let pair = |number| {
            let ends = ByRole { client: end(2 * number)?, server: end(2 * number + 1)? };
            wire_between(ends, &sysfs, has_waits_off(experiment, card))
        };
        (0..contenders).map(pair).collect::<Result<_, LabError>>().map(Cards)
    }

    /// What they are, in words, for the record; `None` where there are none.
    pub(crate) fn describe(&self, experiment: &Experiment) -> Result<Option<String>, LabError> {
        let (Some(card), Some(wire)) = (experiment.underlay.card, self.0.first()) else { return Ok(None) };
        let link = Netlink::open()?.link(&wire.ends.client)?;
        let of = link.map_or_else(String::new, |link| format!(", {}", describe(&link)));
        Ok(Some(format!("two of model {card} for each candidate{of}")))
    }

    /// The cards of the contender with this number; `None`: there are none for it.
    pub(crate) fn of_contender(&self, number: usize) -> Option<CardWire> {
        self.0.get(number).cloned()
    }
}

/// A wire between two cards of one model. The driver says how many queues they will have when they are up; until
/// then the kernel may show as many as the card has at most.
fn wire_between(
    ends: ByRole<IfName>,
    sysfs: &NetSysfs,
    interrupts_at_once: bool,
) -> Result<CardWire, LabError> {
    let nic = queues_of(&ends.client, sysfs)?;
    Ok(CardWire { ends, nic, interrupts_at_once })
}

/// The cards that the virtual machine of an experiment needs.
///
/// # Errors
/// It has no room for so many.
pub(crate) fn of_machine(experiment: &Experiment) -> Result<Vec<Nic>, LabError> {
    let Some(card) = experiment.underlay.card else { return Ok(Vec::new()) };
    // The host is counted below, and what cannot race between such cards needs none.
    let needs = |path: &&DataPath| {
        path.enters == Enters::Always && path.name != "host" && unmet(path, card).is_none()
    };
    let usual = || datapath::ALL.iter().filter(needs).count();
    let candidates = if experiment.candidates.is_empty() { usual() } else { experiment.candidates.len() };
    // The reference, and the reference again.
    let cards = 2 * (2 + candidates);
    if cards > Nic::MAX {
        let most = Nic::MAX / 2 - 2;
        return Err(LabError::Experiment {
            what: format!("{candidates} candidates on wires between {card} cards"),
            why: format!("a virtual machine has room for {most} beside the host; name fewer"),
        });
    }
    let nic = match card {
        Card::Virtio => Nic::Virtio { queues: 1 },
        Card::Igb => Nic::Igb,
        Card::Vmxnet3 => Nic::Vmxnet3,
    };
    Ok(vec![nic; cards])
}

/// The cards of a wire as a machine calls them that has no others, for commands that people read.
pub fn shown_cards(experiment: &Experiment) -> Option<CardWire> {
    let name = |text| IfName::new(text).expect("a constant name is valid");
    experiment.underlay.card.map(|card| CardWire {
        ends: ByRole { client: name("eth0"), server: name("eth1") },
        nic: tune::Nic::default(),
        interrupts_at_once: has_waits_off(experiment, card),
    })
}

/// Whether waits before interrupts have to be switched off. Only the emulated 82576 has any.
fn has_waits_off(experiment: &Experiment, card: Card) -> bool {
    experiment.exact() && card == Card::Igb
}

/// Why a data path cannot race between two cards. No connection comes about through a tunnel over QEMU 11's `igb`, nor
/// between that and `vmxnet3`.
pub(crate) fn unmet(path: &DataPath, card: Card) -> Option<String> {
    if path.between == Between::Router {
        return Some(format!("the router between its nodes would need two {card} cards more"));
    }
    (path.transport.is_open_tunnel() && card != Card::Virtio).then(|| {
        format!("an emulated {card} card does not carry connections through a tunnel; `virtio` does")
    })
}

/// Waits until the links of these nodes carry: a wire's both ends, or that of a machine, which the settings of the
/// candidate before may have reset.
///
/// # Errors
/// They do not, or are not there.
pub(crate) fn await_carrier(candidate: &str, nodes: &[&NodeSpec]) -> Result<(), LabError> {
    let deadline = Instant::now() + CARRIER_MAX;
    for node in nodes {
        let netlink = Netlink::open_in(&node.place.open()?)?;
        while !netlink.link(&node.wire)?.is_some_and(|link| link.carrier) {
            if Instant::now() > deadline {
                let what = format!("has no carrier on {} in {}", node.wire, node.place);
                return Err(LabError::Unreachable { candidate: candidate.to_owned(), what });
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(candidates: usize) -> Experiment {
        let mut text = "schema = 1\nname = \"x\"\nunderlay = { wire = \"igb\" }\n".to_owned();
        for number in 0..candidates {
            text += &format!("[[candidates]]\npath = \"host\"\nname = \"c{number}\"\n");
        }
        Experiment::from_toml(&text).unwrap()
    }

    #[test]
    fn each_contender_has_two_cards_as_long_as_there_is_room() {
        assert_eq!(of_machine(&experiment(2)).unwrap(), [Nic::Igb; 8]);
        assert_eq!(of_machine(&experiment(Nic::MAX / 2 - 2)).unwrap().len(), Nic::MAX);
        let error = of_machine(&experiment(Nic::MAX / 2 - 1)).unwrap_err().to_string();
        assert!(error.contains("room for 10 beside the host"), "{error}");
        assert!(of_machine(&Experiment::default()).unwrap().is_empty());
    }

    #[test]
    fn what_such_cards_do_not_carry_is_left_out_with_a_reason() {
        let why = |name: &str, card| unmet(datapath::find(name).unwrap(), card);
        assert!(why("bridge+vpc", Card::Virtio).unwrap().contains("two virtio cards more"));
        for path in ["bridge+vxlan", "ebpf+vxlan", "ovs+geneve"] {
            assert!(why(path, Card::Igb).unwrap().contains("through a tunnel"), "{path}");
            assert_eq!(why(path, Card::Virtio), None, "{path}");
        }
        assert_eq!(why("ptp+wireguard", Card::Igb), None);
    }

    #[test]
    fn cards_are_those_of_a_virtual_machine() {
        let error = Cards::of(&experiment(1), false, 3).unwrap_err().to_string();
        assert!(error.contains("takes a virtual machine"), "{error}");
        assert!(Cards::of(&Experiment::default(), false, 3).unwrap().of_contender(0).is_none());
    }
}
